//! What differs between the threads of a task, and whether they arrive together where they must.
//!
//! A value may be the same in all threads, in all lanes of a warp, or in none: [`Varies`]. So may be what decides whether
//! an instruction is run. Barriers, and groups of copies, need all threads of the task; a shuffle all lanes of its warp.
//! What is loaded is taken to differ.

use cranelift_entity::SecondaryMap;

use super::{Inst, Kernel, KernelOp, Value};

/// Between which threads something differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Varies {
    /// The same in all threads of a task.
    #[default]
    Nowhere,
    /// The same in all lanes of a warp.
    ByWarp,
    /// Of every thread's own.
    ByLane,
}

/// Barriers, shuffles and groups of copies that not all threads reach that must.
pub(crate) fn divergent(kernel: &Kernel) -> Vec<String> {
    let mut walk = Walk { values: SecondaryMap::new(), faults: Vec::new() };
    walk.list(&kernel.body, Varies::Nowhere);
    walk.faults
}

impl Kernel {
    /// Between which threads each value differs.
    pub fn varies(&self) -> SecondaryMap<Value, Varies> {
        let mut walk = Walk { values: SecondaryMap::new(), faults: Vec::new() };
        walk.list(&self.body, Varies::Nowhere);
        walk.values
    }
}

struct Walk {
    values: SecondaryMap<Value, Varies>,
    faults: Vec<String>,
}

impl Walk {
    /// Instructions that are run where something that varies so decides it.
    fn list(&mut self, insts: &[Inst], control: Varies) {
        for inst in insts {
            self.inst(inst, control);
        }
    }

    fn inst(&mut self, inst: &Inst, control: Varies) {
        match inst {
            Inst::Let { result, op } => {
                if matches!(op, KernelOp::Shuffle { .. }) && control > Varies::ByWarp {
                    self.faults.push(format!("{result} is shuffled where not all lanes of a warp are"));
                }
                self.values[*result] = self.op(op);
            }
            Inst::Barrier => self.demand_all("a barrier", control),
            Inst::CommitCopies => self.demand_all("a group of copies", control),
            Inst::WaitCopies { pending: _ } => self.demand_all("a wait for copies", control),
            Inst::Store { .. } | Inst::Scatter { .. } | Inst::Prefetch { .. } | Inst::CopyAsync { .. } => {}
            Inst::Loop { var, begin, end, carried, body } => {
                let bounds = self.values[*begin].max(self.values[*end]);
                self.values[*var] = bounds;
                for c in carried {
                    self.values[c.param] = self.values[c.init].max(bounds);
                }
                // Levels only rise, so this ends.
                loop {
                    let n_faults = self.faults.len();
                    self.list(body, control.max(bounds));
                    let mut rose = false;
                    for c in carried {
                        rose |= self.values[c.next] > self.values[c.param];
                        self.values[c.param] = self.values[c.param].max(self.values[c.next]);
                    }
                    if !rose {
                        break;
                    }
                    self.faults.truncate(n_faults);
                }
                for c in carried {
                    self.values[c.result] = self.values[c.param];
                }
            }
            Inst::If { condition, then_body, else_body, joins } => {
                let condition = self.values[*condition];
                self.list(then_body, control.max(condition));
                self.list(else_body, control.max(condition));
                for join in joins {
                    let sides = self.values[join.then_value].max(self.values[join.else_value]);
                    self.values[join.result] = sides.max(condition);
                }
            }
        }
    }

    fn demand_all(&mut self, what: &str, control: Varies) {
        if control > Varies::Nowhere {
            self.faults.push(format!("{what} where not all threads of the task are"));
        }
    }

    fn op(&self, op: &KernelOp) -> Varies {
        let operands = || {
            let mut most = Varies::Nowhere;
            op.for_each_operand(|operand| most = most.max(self.values[operand]));
            most
        };
        match op {
            KernelOp::Warp => Varies::ByWarp,
            KernelOp::Lane | KernelOp::Load { .. } | KernelOp::Gather { .. } => Varies::ByLane,
            // One lane's value is the same in all of them.
            KernelOp::Shuffle { value, from } => {
                self.values[*value].min(self.values[*from].max(Varies::ByWarp))
            }
            KernelOp::Int(_)
            | KernelOp::Float(_)
            | KernelOp::Size(_)
            | KernelOp::Iota
            | KernelOp::Splat(_)
            | KernelOp::Extract(..)
            | KernelOp::Concat(_)
            | KernelOp::Slice(..)
            | KernelOp::Unary(..)
            | KernelOp::Binary(..)
            | KernelOp::Compare(..)
            | KernelOp::Select(..)
            | KernelOp::Cast(_)
            | KernelOp::Bitcast(_)
            | KernelOp::Fma(..) => operands(),
        }
    }
}
