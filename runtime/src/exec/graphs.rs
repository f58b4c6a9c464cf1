//! Graphs of a device: stretches of a plan that are recorded once and then asked for by one request each.
//!
//! A launch of a kernel costs the host some microseconds, which small models wait for. A *stretch* is a run of instructions that no
//! jump leads into and none leaves, which give the device alone work, by kernels and by copies from one place on it to another. All
//! sizes and places that they take follow from the extents of the inputs and the memory as it is laid out, so the graph holds until
//! either changes; both go through [`Frame::lay_out`], which forgets all graphs. Copies from and to memory of the host stay outside,
//! since that may be the caller's and lie elsewhere in the next run.
//!
//! The first run after a change is plain: drivers load kernels when these are launched first, which must not happen in a recording. The
//! second records. A stretch that cannot be recorded is run plainly, in that run and in all to the next change.
#![allow(unsafe_code, reason = "asks a device for work that was recorded")]

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::{Exec, Frame};
use crate::device::{DeviceError, GraphId, Stream};
use crate::error::RunError;
use crate::plan::{BufferId, Instr, Plan, PlanOp, SizeId, Space};

/// Works of a stretch at least. A request for a graph costs what a few launches do.
const LEAST_WORKS: usize = 4;

/// What an instruction is to a stretch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Work of the device, which is recorded.
    Work,
    /// Arithmetic of the host on sizes that are known before the first instruction, which is done as ever.
    Sizes,
    /// The end of the stretch before it.
    Other,
}

/// The stretches of a plan, in order; none of a plan that is not to be kept awake. `late_sizes` and `late_buffers` say what is not
/// known before the first instruction.
pub(crate) fn stretches(plan: &Plan, late_sizes: &[bool], late_buffers: &[bool]) -> Vec<Range<usize>> {
    if !plan.keep_awake || !plan.needs_device() {
        return Vec::new();
    }
    let mut is_target = vec![false; plan.instrs.len() + 1];
    for instr in &plan.instrs {
        if let PlanOp::BranchIfZero { target, .. } | PlanOp::Jump { target } = instr.op {
            is_target[target as usize] = true;
        }
    }
    let known = Known { plan, late_sizes, late_buffers };
    let mut found = Vec::new();
    let (mut start, mut works) = (0, 0);
    for (index, is_target) in is_target.into_iter().enumerate() {
        let part = plan.instrs.get(index).map_or(Part::Other, |instr| known.part(instr));
        if is_target || part == Part::Other {
            if works >= LEAST_WORKS {
                found.push(start..index);
            }
            (start, works) = (index, 0);
        }
        match part {
            Part::Work => works += 1,
            Part::Sizes => {}
            Part::Other => start = index + 1,
        }
    }
    found
}

/// What of a plan is known before the first instruction.
struct Known<'a> {
    plan: &'a Plan,
    late_sizes: &'a [bool],
    late_buffers: &'a [bool],
}

impl Known<'_> {
    fn part(&self, instr: &Instr) -> Part {
        let size = |id: &SizeId| !self.late_sizes[id.index()];
        let buffer = |id: &BufferId| !self.late_buffers[id.index()];
        let on_device = |id: &BufferId| self.plan.buffers[id.index()].space == Space::Device;
        let (part, is_known) = match &instr.op {
            PlanOp::Call { kernel, buffers, sizes, rounds, per_round, in_order: _ } => {
                let is_device = self.plan.kernels[kernel.index()].space == Space::Device;
                let sizes = sizes.iter().chain([rounds, per_round]).all(size);
                (Part::Work, is_device && sizes && buffers.iter().all(buffer))
            }
            PlanOp::Copy { from, to } => {
                let both = [from, to];
                (Part::Work, both.into_iter().all(on_device) && both.into_iter().all(buffer))
            }
            PlanOp::Guard { lhs, rhs, .. } => (Part::Sizes, size(lhs) && size(rhs)),
            PlanOp::SetSize { value, .. } => (Part::Sizes, size(value)),
            PlanOp::Host { .. }
            | PlanOp::Alloc { .. }
            | PlanOp::Grow { .. }
            | PlanOp::Free { .. }
            | PlanOp::ReadSize { .. }
            | PlanOp::ScaleSize { .. }
            | PlanOp::WriteSize { .. }
            | PlanOp::ReadDim { .. }
            | PlanOp::CopyValue { .. }
            | PlanOp::BranchIfZero { .. }
            | PlanOp::Jump { .. } => (Part::Other, false),
        };
        if is_known { part } else { Part::Other }
    }
}

/// What is recorded of the stretches of a program.
#[derive(Default)]
pub(crate) struct Graphs {
    /// Whether a run came to its end since memory was laid out.
    has_run: bool,
    /// By stretch; empty before the first is recorded.
    recorded: Vec<Recorded>,
}

#[derive(Clone, Copy)]
enum Recorded {
    NotYet,
    As(GraphId),
    /// It could not be recorded, or not be asked for.
    Never,
}

impl Graphs {
    /// After a run.
    pub(super) fn after_run(&mut self, is_ok: bool) {
        self.has_run |= is_ok;
    }
}

impl Frame {
    /// Takes another stream in place of its own.
    pub(crate) fn set_stream(&mut self, stream: Box<dyn Stream>) -> Result<(), DeviceError> {
        self.wait()?;
        self.forget_graphs();
        self.stream = Some(stream);
        Ok(())
    }

    /// Gives up what was recorded: it is for other extents, other memory, or another stream. No work may be under way.
    pub(super) fn forget_graphs(&mut self) {
        if let Some(stream) = self.stream.as_mut().filter(|_| !self.graphs.recorded.is_empty()) {
            stream.forget_graphs();
        }
        self.graphs.recorded.clear();
        self.graphs.has_run = false;
    }
}

impl Exec<'_> {
    /// Runs the stretch that begins at an instruction as a graph; gives the place after it. `None` where none begins, it is to be
    /// watched, or it cannot be: then its instructions are to be run one by one.
    pub(super) fn stretch(&mut self, index: usize, is_watched: bool) -> Result<Option<usize>, RunError> {
        let program = self.program;
        let stretches = &program.facts.stretches;
        if is_watched || !self.frame.graphs.has_run {
            return Ok(None);
        }
        let Ok(place) = stretches.binary_search_by_key(&index, |stretch| stretch.start) else {
            return Ok(None);
        };
        let stretch = stretches[place].clone();
        self.frame.graphs.recorded.resize(stretches.len(), Recorded::NotYet);
        let graph = match self.frame.graphs.recorded[place] {
            Recorded::Never => return Ok(None),
            Recorded::NotYet => self.record(stretch.clone()),
            Recorded::As(graph) => {
                self.set_sizes(stretch.clone())?;
                Some(graph)
            }
        };
        let done = graph.filter(|graph| self.replay(*graph));
        self.frame.graphs.recorded[place] = done.map_or(Recorded::Never, Recorded::As);
        Ok(done.map(|_| stretch.end))
    }

    /// Records a stretch; nothing of it is done but arithmetic on sizes, which may be done again.
    fn record(&mut self, stretch: Range<usize>) -> Option<GraphId> {
        let program = self.program;
        // Errors are not told: what they are about fails again where it is run plainly.
        if !self.frame.stream.as_mut()?.begin_capture().unwrap_or(false) {
            return None;
        }
        let asked = program.plan.instrs[stretch].iter().all(|instr| self.step(instr).is_ok());
        let graph = self.frame.stream.as_mut()?.end_capture();
        graph.ok().flatten().filter(|_| asked)
    }

    /// What the host does in a stretch.
    fn set_sizes(&mut self, stretch: Range<usize>) -> Result<(), RunError> {
        let program = self.program;
        for instr in &program.plan.instrs[stretch] {
            if matches!(instr.op, PlanOp::Guard { .. } | PlanOp::SetSize { .. }) {
                self.step(instr).map_err(|failure| self.name(failure, instr.provenance))?;
            }
        }
        Ok(())
    }

    /// Asks for a graph; whether it will be done.
    fn replay(&mut self, graph: GraphId) -> bool {
        let Some(stream) = self.frame.stream.as_mut() else { return false };
        self.frame.under_way.any = true;
        // SAFETY: the graph is forgotten when memory is laid out anew, so its addresses are those of the frame; `Exec::call` and
        // `Exec::copy` located them when it was recorded, and all that they are located by is the same.
        unsafe { stream.replay(graph) }.is_ok()
    }
}

#[cfg(all(test, feature = "text"))]
mod tests {
    use super::*;

    const HEAD: &str = "arena 64 bytes, weights 0 bytes
device arena 64 bytes
threads stay awake
input \"x\": f32[n = s0] in b0
output \"y\": f32[s0] in b1
s0 = dim 0 of input 0
s1 = computed
b0: f32[s0], s0 bytes, input 0
b1: f32[s0], s0 bytes, output 0
b2: f32[s0], s0 bytes, device arena at 0
b3: f32[s1], s1 bytes, device dynamic
b4: f32[s0], s0 bytes, device alias of b2 at s1
b5: f32[s0], s0 bytes, arena at 0
k0: far(write align 4; 0 sizes) on device
k1: near(write align 4; 0 sizes)
";

    /// Where stretches begin and end.
    fn found(head: &str, instrs: &[&str]) -> Vec<(usize, usize)> {
        let lines = instrs.iter().enumerate().map(|(i, instr)| alloc::format!("{i}: {instr}\n"));
        let text = alloc::string::String::from(head) + &lines.collect::<alloc::string::String>();
        let plan: Plan = text.parse().expect("a plan");
        assert_eq!(plan.validate(), Ok(()));
        let late = plan.late_sizes();
        let found = stretches(&plan, &late, &[false, false, false, true, true, false]);
        found.into_iter().map(|stretch| (stretch.start, stretch.end)).collect()
    }

    const WORK: &str = "call k0(b2) tasks s0 x s0";

    #[test]
    fn work_of_the_device_is_one_stretch() {
        let copy = "copy b2 to b2";
        let instrs =
            ["copy b0 to b2", WORK, WORK, copy, "guard s0 <= s0 \"m\"", "s1 = s0", WORK, "copy b2 to b1"];
        assert_eq!(found(HEAD, &instrs), [(1, 7)]);
        assert_eq!(found(HEAD, &[WORK; 4]), [(0, 4)]);
        assert_eq!(found(HEAD, &[WORK; 3]), []);
        assert_eq!(found(&HEAD.replace("threads stay awake\n", ""), &[WORK; 4]), []);
    }

    #[test]
    fn what_is_not_known_before_ends_it() {
        for other in [
            "call k1(b5) tasks s0 x s0",
            "call k0(b2) tasks s1 x s0",
            "call k0(b4) tasks s0 x s0",
            "call k0(b3) tasks s0 x s0",
            "copy b2 to b4",
            "copy b5 to b2",
            "guard s1 <= s0 \"m\"",
            "s1 = s1",
            "alloc b3",
            "branch if s0 == 0 to 9",
        ] {
            let instrs = [WORK, WORK, WORK, WORK, other, WORK, WORK, WORK, WORK];
            assert_eq!(found(HEAD, &instrs), [(0, 4), (5, 9)], "{other}");
        }
    }

    #[test]
    fn jumps_lead_to_beginnings_only() {
        let instrs = [WORK, WORK, WORK, WORK, WORK, WORK, WORK, WORK, "branch if s0 == 0 to 3", "jump to 4"];
        assert_eq!(found(HEAD, &instrs), [(4, 8)]);
    }
}
