//! Loop-invariant code motion, with sharing of equal operations.
//!
//! Operations that only compute stand outside the loops that do not change them, and are computed once where an equal
//! one is in scope. They leave branches only where that leaves a loop too and costs next to nothing, or where they divide indices in a
//! kernel of open extents: those no code generator moves, for some processors trap where a divisor is 0. Loads, stores and
//! hints stay where they are: a guard may be what makes them safe. Done on kernels, since what there is to move
//! (products with strides, splats) is not there before.

use cranelift_entity::{PrimaryMap, SecondaryMap};
use rustc_hash::FxHashMap;

use crate::expr::BinaryOp;
use crate::kernel::{Inst, Kernel, KernelOp, Type, Value};

/// Moves operations out of loops and shares equal ones. Values are numbered anew.
pub fn hoist(kernel: &mut Kernel) {
    let mut pass = Hoist {
        old: std::mem::take(&mut kernel.values),
        values: PrimaryMap::new(),
        new: SecondaryMap::with_default(kernel.task),
        lists: Lists { is_open: !kernel.sizes.is_empty(), ..Lists::default() },
        open: Vec::new(),
    };
    pass.begin(Nesting::Task);
    kernel.task = pass.define(kernel.task, 0);
    pass.insts(std::mem::take(&mut kernel.body));
    kernel.body = pass.end();
    kernel.values = pass.values;
}

/// What a list of instructions is the body of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nesting {
    /// A task.
    Task,
    /// A loop.
    Loop,
    /// One side of a branch.
    Branch,
}

/// The lists of instructions around a place, and for each value the outermost of these where it can be computed.
#[derive(Default)]
pub(super) struct Lists {
    /// Outermost first.
    pub(super) nestings: Vec<Nesting>,
    /// Number of lists around the one of a value: the less, the longer it stays the same.
    pub(super) depths: SecondaryMap<Value, usize>,
    /// Whether extents are open: indices are then divided by what is not known.
    pub(super) is_open: bool,
}

impl Lists {
    /// Depth of the innermost list.
    pub(super) fn innermost(&self) -> usize {
        self.nestings.len() - 1
    }

    /// Depth of the outermost list where an operation that only computes can be, its operands being there: out of
    /// loops, and out of branches where that leaves a loop too and costs next to nothing when they are not taken.
    pub(super) fn home(&self, ty: Type, op: &KernelOp) -> usize {
        let mut least = 0;
        op.for_each_operand(|operand| least = least.max(self.depths[operand]));
        let leaves_branches = is_cheap(ty, op) || self.is_open && is_division(ty, op);
        let mut home = self.innermost();
        for depth in (least..home).rev() {
            match self.nestings[depth + 1] {
                Nesting::Loop => home = depth,
                Nesting::Branch if leaves_branches => {}
                Nesting::Task | Nesting::Branch => break,
            }
        }
        home
    }
}

struct Hoist {
    /// Types of the values as they were.
    old: PrimaryMap<Value, Type>,
    /// Types of the values made so far.
    values: PrimaryMap<Value, Type>,
    /// What values as they were are now.
    new: SecondaryMap<Value, Value>,
    lists: Lists,
    /// The open lists, outermost first.
    open: Vec<OpenList>,
}

#[derive(Default)]
struct OpenList {
    insts: Vec<Inst>,
    /// The operations known in it.
    ops: FxHashMap<(Type, KernelOp), Value>,
}

impl Hoist {
    fn begin(&mut self, nesting: Nesting) {
        self.lists.nestings.push(nesting);
        self.open.push(OpenList::default());
    }

    fn end(&mut self) -> Vec<Inst> {
        self.lists.nestings.pop();
        self.open.pop().map(|list| list.insts).unwrap_or_default()
    }

    fn push(&mut self, inst: Inst) {
        if let Some(list) = self.open.last_mut() {
            list.insts.push(inst);
        }
    }

    /// The new name of a value that the list at a depth defines.
    fn define(&mut self, old: Value, depth: usize) -> Value {
        let new = self.values.push(self.old[old]);
        self.lists.depths[new] = depth;
        self.new[old] = new;
        new
    }

    fn insts(&mut self, insts: Vec<Inst>) {
        for inst in insts {
            self.inst(inst);
        }
    }

    fn inst(&mut self, mut inst: Inst) {
        inst.for_each_operand_mut(|operand| *operand = self.new[*operand]);
        match inst {
            Inst::Let { result, op } => self.op(result, op),
            Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Barrier
            | Inst::CopyAsync { .. }
            | Inst::CommitCopies
            | Inst::WaitCopies { .. } => self.push(inst),
            Inst::Loop { var, begin, end, mut carried, body } => {
                let depth = self.lists.nestings.len();
                let var = self.define(var, depth);
                for c in &mut carried {
                    c.param = self.define(c.param, depth);
                    c.result = self.define(c.result, depth - 1);
                }
                self.begin(Nesting::Loop);
                self.insts(body);
                let body = self.end();
                carried.iter_mut().for_each(|c| c.next = self.new[c.next]);
                self.push(Inst::Loop { var, begin, end, carried, body });
            }
            Inst::If { condition, then_body, else_body, mut joins } => {
                let [then_body, else_body] = [then_body, else_body].map(|body| {
                    self.begin(Nesting::Branch);
                    self.insts(body);
                    self.end()
                });
                joins.retain_mut(|join| {
                    (join.then_value, join.else_value) =
                        (self.new[join.then_value], self.new[join.else_value]);
                    let differ = join.then_value != join.else_value;
                    if differ {
                        join.result = self.define(join.result, self.lists.innermost());
                    } else {
                        self.new[join.result] = join.then_value;
                    }
                    differ
                });
                self.push(Inst::If { condition, then_body, else_body, joins });
            }
        }
    }

    /// Places an operation whose operands have their new names.
    fn op(&mut self, result: Value, op: KernelOp) {
        if stays(&op) {
            let result = self.define(result, self.lists.innermost());
            return self.push(Inst::Let { result, op });
        }
        let ty = self.old[result];
        let key = (ty, op);
        if let Some(&known) = self.open.iter().rev().find_map(|list| list.ops.get(&key)) {
            self.new[result] = known;
            return;
        }
        let depth = self.lists.home(ty, &key.1);
        let result = self.define(result, depth);
        let list = &mut self.open[depth];
        list.insts.push(Inst::Let { result, op: key.1.clone() });
        list.ops.insert(key, result);
    }
}

/// Whether an operation must stay where it is: a guard may be what makes it safe, or all lanes of a warp what makes it
/// right.
pub(super) fn stays(op: &KernelOp) -> bool {
    matches!(op, KernelOp::Load { .. } | KernelOp::Gather { .. } | KernelOp::Shuffle { .. })
}

/// Whether an operation divides one integer by another.
fn is_division(ty: Type, op: &KernelOp) -> bool {
    let divides = matches!(op, KernelOp::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, ..));
    divides && ty.lanes == 1 && !ty.dtype.is_float()
}

/// Whether an operation is one instruction on a scalar or none.
fn is_cheap(ty: Type, op: &KernelOp) -> bool {
    match op {
        KernelOp::Int(_)
        | KernelOp::Float(_)
        | KernelOp::Size(_)
        | KernelOp::Warp
        | KernelOp::Lane
        | KernelOp::Iota => true,
        KernelOp::Unary(..) | KernelOp::Compare(..) | KernelOp::Select(..) => {
            ty.lanes == 1 && !ty.dtype.is_float()
        }
        KernelOp::Binary(op, ..) => {
            let divides =
                matches!(op, BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod);
            ty.lanes == 1 && !ty.dtype.is_float() && !divides
        }
        KernelOp::Splat(_)
        | KernelOp::Extract(..)
        | KernelOp::Concat(_)
        | KernelOp::Slice(..)
        | KernelOp::Cast(_)
        | KernelOp::Bitcast(_)
        | KernelOp::Fma(..)
        | KernelOp::Shuffle { .. }
        | KernelOp::Load { .. }
        | KernelOp::Gather { .. } => false,
    }
}
