//! `pipeline`: what later iterations read is copied while earlier ones are computed.

use serde::{Deserialize, Serialize};

use crate::expr::Buffer;
use crate::func::{Block, Func, LoopKind, Scope, Stmt};
use crate::schedule::{Apply, ScheduleError, tree};

/// Runs the copies to shared memory at the beginning of a loop's body `stages - 1` iterations ahead of the rest (software pipelining).
///
/// The shared arrays get a version for each stage, so a task waits for memory only where the copies of several iterations are not there
/// yet, and threads wait for each other once an iteration rather than twice. Where kernels have asynchronous copies (`cp.async`), plain
/// copies are; others are loaded and stored earlier. Values are not affected. What runs the loop by one thread ignores it. The loop is
/// serial, and the copies fill buffers that nothing outside of the loop uses. It can be neither split nor merged with others afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    /// The loop.
    pub loop_name: String,
    /// Iterations that are under way at a time: that which is computed, and those that are copied for.
    pub stages: u32,
}

/// More stages would hide nothing more, and shared memory is small.
const MAX_STAGES: u32 = 8;

/// Whether a pipeline may have so many stages.
pub(crate) fn is_stages(stages: u32) -> bool {
    (2..=MAX_STAGES).contains(&stages)
}

impl Apply for Pipeline {
    const NAME: &'static str = "pipeline";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.loop_name, reason));
        if !is_stages(self.stages) {
            return fail(format!("{} stages, not from 2 to {MAX_STAGES}", self.stages));
        }
        let path = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let Some(l) = tree::loop_at(func, &path) else { return Ok(Vec::new()) };
        if l.kind != LoopKind::Serial {
            return fail(format!("the loop is {:?}", l.kind));
        }
        if let Some(tied) = l.tied() {
            return fail(format!("the loop {tied}"));
        }
        let mut filled: Vec<Buffer> = Vec::new();
        let copies = l.body.iter().take_while(|stmt| fills(func, stmt, &mut filled)).count();
        if copies == 0 || copies == l.body.len() {
            return fail("its body is not copies to shared memory and what comes after them".into());
        }
        let uses = |b: &Block, buffer: Buffer| tree::reads(b, buffer) || tree::writes(b, buffer);
        for (place, block) in tree::blocks_with_paths(func) {
            let is_copy = place.starts_with(&path) && place[path.len()] < copies;
            let is_inside = place.starts_with(&path);
            let wrong = |&&buffer: &&Buffer| match is_inside {
                true => !is_copy && tree::writes(block, buffer),
                false => uses(block, buffer),
            };
            if let Some(&buffer) = filled.iter().find(wrong) {
                let name = &func.buffers[buffer].name;
                return fail(format!("`{name}` is not for this loop alone: block `{}` uses it", block.name));
            }
        }
        if let Some(l) = tree::loop_at_mut(func, &path) {
            l.stages = self.stages;
        }
        Ok(Vec::new())
    }
}

/// Whether a statement does nothing but fill shared buffers from global ones; notes which.
fn fills(func: &Func, stmt: &Stmt, filled: &mut Vec<Buffer>) -> bool {
    let scope = |buffer: Buffer| func.buffers[buffer].scope;
    let mut all = true;
    let mut own = Vec::new();
    tree::for_each_block(std::slice::from_ref(stmt), &mut |block| {
        let written = tree::written(block);
        all &= block.init.is_empty()
            && written.iter().all(|&buffer| scope(buffer) == Scope::Shared)
            && tree::read_buffers(block).into_iter().all(|buffer| scope(buffer) == Scope::Global);
        own.extend(written);
    });
    if all {
        filled.extend(own);
    }
    all
}

#[cfg(test)]
mod tests {
    use crate::func::Func;
    use crate::schedule::Schedule;

    const COPIED: &str = "func sums(x: f32[8, 4]) -> (sum: f32[4]) {
  buffer part: f32[4] shared
  for k in 0..8 {
    for i in 0..4 {
      block copy(row: spatial 8 = k, at: spatial 4 = i) {
        part[at] = x[row, at]
      }
    }
    for j in 0..4 {
      block sum(out: spatial 4 = j, step: reduce 8 = k) {
        init sum[out] = f32(0.0)
        sum[out] = (sum[out] + part[out])
      }
    }
  }
}
";

    fn schedule() -> Schedule {
        Schedule::new(COPIED.parse::<Func>().expect("a function"))
    }

    #[test]
    fn a_pipelined_loop_says_so_and_stays() {
        let mut s = schedule();
        s.pipeline("k", 4).expect("copies, then sums");
        let text = s.func().to_string();
        assert_eq!(text, COPIED.replace("for k in 0..8 {", "for k in 0..8 pipeline 4 {"));
        assert_eq!(text.parse::<Func>().expect("the same").to_string(), text);
        let refused = s.split("k", &[None, Some(2)]).expect_err("it is pipelined").to_string();
        assert!(refused.contains("the loop is pipelined"), "{refused}");
        let refused = s.pipeline("k", 2).expect_err("it is pipelined").to_string();
        assert!(refused.contains("the loop is pipelined"), "{refused}");
    }

    #[test]
    fn what_cannot_run_ahead_is_refused() {
        let refusal = |loop_name: &str, stages: u32| {
            let mut s = schedule();
            let before = s.func().to_string();
            let error = s.pipeline(loop_name, stages).expect_err("refused").to_string();
            assert_eq!(s.func().to_string(), before);
            error
        };
        assert!(refusal("k", 1).contains("1 stages, not from 2 to 8"));
        assert!(refusal("k", 9).contains("9 stages, not from 2 to 8"));
        assert!(refusal("j", 2).contains("not copies to shared memory and what comes after them"));
        let mut s = schedule();
        s.unroll("k").expect("eight iterations");
        assert!(s.pipeline("k", 2).expect_err("refused").to_string().contains("the loop is Unrolled"));
        let twice = COPIED.replace(
            "  for k in",
            "  for n in 0..4 {\n    block before(place: spatial 4 = n) {\n      part[place] = f32(1.0)\n    }\n  }\n  for k in",
        );
        let mut s = Schedule::new(twice.parse::<Func>().expect("a function"));
        let refused = s.pipeline("k", 2).expect_err("refused").to_string();
        assert!(refused.contains("`part` is not for this loop alone: block `before` uses it"), "{refused}");
    }
}
