//! Which lanes of values reach a store or decide what is run.
//!
//! C compilers warn of variables that nothing reads, so the others are not printed.

use cranelift_entity::SecondaryMap;
use tilewright_te::kernel::{Carried, Inst, Join, Kernel, KernelOp, Value};

/// How a value comes to be.
#[derive(Clone, Copy)]
enum Definition<'a> {
    /// By an operation.
    Op(&'a KernelOp),
    /// A loop carries it: its parameter and its result.
    Carried(&'a Carried),
    /// A branch chooses it.
    Join(&'a Join),
}

/// Lanes that are read.
pub(crate) struct Live {
    lanes: SecondaryMap<Value, Vec<bool>>,
    /// How often each value is an operand.
    n_uses: SecondaryMap<Value, u32>,
}

impl Live {
    /// Finds those of a kernel.
    pub(crate) fn new(kernel: &Kernel) -> Live {
        let mut search = Search {
            kernel,
            definitions: SecondaryMap::new(),
            live: Live { lanes: SecondaryMap::new(), n_uses: SecondaryMap::new() },
            pending: Vec::new(),
        };
        search.list(&kernel.body);
        while let Some((value, lane)) = search.pending.pop() {
            search.operands(value, lane);
        }
        search.live
    }

    /// Whether a value is an operand once in the whole kernel.
    pub(crate) fn is_used_once(&self, value: Value) -> bool {
        self.n_uses[value] == 1
    }

    /// Whether a lane of a value is read.
    pub(crate) fn has(&self, value: Value, lane: u32) -> bool {
        self.lanes[value].get(lane as usize).is_some_and(|live| *live)
    }
}

struct Search<'a> {
    kernel: &'a Kernel,
    definitions: SecondaryMap<Value, Option<Definition<'a>>>,
    live: Live,
    /// Lanes whose operands are still to be found.
    pending: Vec<(Value, u32)>,
}

impl<'a> Search<'a> {
    /// Notes how values come to be, and what instructions read by themselves.
    fn list(&mut self, insts: &'a [Inst]) {
        for inst in insts {
            match inst {
                Inst::Let { result, op } => {
                    op.for_each_operand(|value| self.live.n_uses[value] += 1);
                    self.definitions[*result] = Some(Definition::Op(op));
                }
                Inst::Store { index: at, value, mask, .. }
                | Inst::Scatter { indices: at, value, mask, .. } => {
                    self.whole(*at);
                    self.whole(*value);
                    mask.iter().for_each(|mask| self.whole(*mask));
                }
                // Hints, and what only tasks of several threads do.
                Inst::Prefetch { .. }
                | Inst::Barrier
                | Inst::CopyAsync { .. }
                | Inst::CommitCopies
                | Inst::WaitCopies { .. } => {}
                Inst::Loop { var: _, begin, end, carried, body } => {
                    self.whole(*begin);
                    self.whole(*end);
                    for c in carried {
                        self.live.n_uses[c.init] += 1;
                        self.live.n_uses[c.next] += 1;
                        self.definitions[c.param] = Some(Definition::Carried(c));
                        self.definitions[c.result] = Some(Definition::Carried(c));
                    }
                    self.list(body);
                }
                Inst::If { condition, then_body, else_body, joins } => {
                    self.whole(*condition);
                    for join in joins {
                        self.live.n_uses[join.then_value] += 1;
                        self.live.n_uses[join.else_value] += 1;
                        self.definitions[join.result] = Some(Definition::Join(join));
                    }
                    self.list(then_body);
                    self.list(else_body);
                }
            }
        }
    }

    /// All of a value is read, by an instruction that is printed in any case.
    fn whole(&mut self, value: Value) {
        self.live.n_uses[value] += 1;
        (0..self.kernel.values[value].lanes).for_each(|lane| self.lane(value, lane));
    }

    /// A lane is read; a scalar is the same in every lane.
    fn lane(&mut self, value: Value, lane: u32) {
        let n = self.kernel.values[value].lanes;
        let lane = if n == 1 { 0 } else { lane };
        let lanes = &mut self.live.lanes[value];
        lanes.resize(n as usize, false);
        if !std::mem::replace(&mut lanes[lane as usize], true) {
            self.pending.push((value, lane));
        }
    }

    /// What a lane that is read is made of is read.
    fn operands(&mut self, value: Value, lane: u32) {
        match self.definitions[value] {
            // The number of the task, or a counter.
            None => {}
            Some(Definition::Op(op)) => self.of_op(op, lane),
            Some(Definition::Carried(c)) => {
                [c.init, c.next, c.param, c.result].into_iter().for_each(|of| self.lane(of, lane));
            }
            Some(Definition::Join(join)) => {
                self.lane(join.then_value, lane);
                self.lane(join.else_value, lane);
            }
        }
    }

    fn of_op(&mut self, op: &KernelOp, lane: u32) {
        match op {
            KernelOp::Extract(a, from) => self.lane(*a, *from),
            KernelOp::Slice(a, first) => self.lane(*a, first + lane),
            KernelOp::Concat(parts) => {
                if let Some((part, lane)) = part_of(self.kernel, parts, lane) {
                    self.lane(part, lane);
                }
            }
            // Lane by lane.
            op => op.for_each_operand(|value| self.lane(value, lane)),
        }
    }
}

/// The operand of a concatenation that has a lane of it, and which of its lanes that is.
pub(crate) fn part_of(kernel: &Kernel, parts: &[Value], lane: u32) -> Option<(Value, u32)> {
    let mut before = 0;
    for part in parts {
        let lanes = kernel.values[*part].lanes;
        if lane < before + lanes {
            return Some((*part, lane - before));
        }
        before += lanes;
    }
    None
}
