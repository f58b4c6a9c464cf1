//! `storage_align`: how far apart the rows of a task's array lie.

use serde::{Deserialize, Serialize};

use crate::func::{Func, RowAlign, Scope};
use crate::schedule::{Apply, ScheduleError, tree};

/// Leaves elements unused at the end of each row of an array, so that the distance from a row to the next is `offset` more than a
/// multiple of `factor` elements.
///
/// A shared array has 32 banks of four bytes. Threads that store to one column of several rows wait for each other where rows are a
/// multiple of 32 elements apart; with a few elements between rows they do not. A row is what follows one another along the innermost
/// dimension, once the array has been shrunk to what is live at a time ([`crate::schedule::compact`]). Values are not affected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StorageAlign {
    /// The array: shared, or a task's own.
    pub buffer: String,
    /// What the distance is a multiple of but for the offset, in elements.
    pub factor: i64,
    /// The rest, from 0 to below the factor.
    pub offset: i64,
}

impl Apply for StorageAlign {
    const NAME: &'static str = "storage_align";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.buffer, reason));
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        let (factor, offset) = (self.factor, self.offset);
        let Some(align) = RowAlign::new(factor, offset) else {
            let most = RowAlign::MAX_FACTOR;
            return fail(format!(
                "{offset} more than a multiple of {factor} is no distance: the factor is from 1 to {most}, the offset below it"
            ));
        };
        let data = &mut func.buffers[buffer];
        if !matches!(data.scope, Scope::Shared | Scope::Stack) {
            return fail(format!("it lives in {:?} memory, not in a task's own array", data.scope));
        }
        if data.shape.len() < 2 {
            return fail("it has no rows: fewer than two dimensions".into());
        }
        data.row_align = Some(align);
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use crate::func::Func;
    use crate::schedule::{Schedule, compact};

    const TURNED: &str = "func turned(x: f32[64, 8]) -> (y: f32[8, 64]) {
  buffer part: f32[8, 64] shared
  for k in 0..4 parallel {
    for i in 0..16 {
      for s in 0..8 {
        block copy(step: spatial 8 = s, row: spatial 64 = ((k * 16) + i)) {
          part[step, row] = x[row, step]
        }
      }
    }
    for t in 0..8 {
      for j in 0..16 {
        block out(to: spatial 8 = t, at: spatial 64 = ((k * 16) + j)) {
          y[to, at] = part[to, at]
        }
      }
    }
  }
}
";

    fn schedule() -> Schedule {
        Schedule::new(TURNED.parse::<Func>().expect("a function"))
    }

    #[test]
    fn rows_of_what_is_live_lie_so_far_apart() {
        let shape = |factor: i64, offset: i64| {
            let mut s = schedule();
            s.storage_align("part", factor, offset).expect("a shared array");
            let text = s.func().to_string();
            assert!(text.contains(&format!("shared rows {offset} of {factor}\n")), "{text}");
            let mut func: Func = text.parse().expect("the same");
            assert_eq!(func.to_string(), text);
            compact::compact(&mut func).expect("nothing in the way");
            func.to_string().lines().find(|line| line.contains("part")).expect("its line").trim().to_string()
        };
        assert_eq!(shape(32, 4), "buffer part: f32[8, 36] shared");
        assert_eq!(shape(8, 4), "buffer part: f32[8, 20] shared");
        assert_eq!(shape(16, 0), "buffer part: f32[8, 16] shared");
        assert_eq!(shape(1, 0), "buffer part: f32[8, 16] shared");
    }

    #[test]
    fn what_has_no_rows_is_refused() {
        let refusal = |buffer: &str, factor: i64, offset: i64| {
            schedule().storage_align(buffer, factor, offset).expect_err("refused").to_string()
        };
        assert!(refusal("part", 0, 0).contains("0 more than a multiple of 0 is no distance"));
        assert!(refusal("part", 8, 8).contains("8 more than a multiple of 8 is no distance"));
        assert!(refusal("x", 32, 4).contains("it lives in Global memory"));
        let flat = TURNED
            .replace("f32[8, 64] shared", "f32[512] shared")
            .replace("part[step, row]", "part[((step * 64) + row)]");
        let mut s = Schedule::new(flat.parse::<Func>().expect("a function"));
        let refused = s.storage_align("part", 32, 4).expect_err("refused").to_string();
        assert!(refused.contains("fewer than two dimensions"), "{refused}");
    }
}
