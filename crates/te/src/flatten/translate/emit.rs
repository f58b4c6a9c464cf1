//! The state of translation: instruction lists, scopes of known values, registers.

use cranelift_entity::SecondaryMap;
use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use crate::expr::{BinaryOp, Buffer, Expr, Var};
use crate::flatten::poly::Atoms;
use crate::flatten::{FlattenError, FlattenOptions};
use crate::func::Func;
use crate::kernel::{Inst, Kernel, Op, Place, Type, Value};

/// Builds the body of one kernel.
pub(super) struct Emitter<'a> {
    pub(super) func: &'a Func,
    pub(super) kernel: &'a mut Kernel,
    pub(super) places: FxHashMap<Buffer, Place>,
    pub(super) written: FxHashSet<Buffer>,
    pub(super) options: FlattenOptions,
    /// Open instruction lists with the values known in each, innermost last.
    scopes: Vec<ScopeState>,
    /// Number of lists around the one that defines a value.
    depths: SecondaryMap<Value, usize>,
    /// Values that hold until something is stored, each with the guards it was computed under: parts that an
    /// expression has in common are computed once, of which expanded functions have exponentially many.
    pub(super) transient: FxHashMap<(Expr, Vec<Value>), Value>,
    /// What variables stand for.
    pub(super) bindings: FxHashMap<Var, Binding>,
    /// The vectorized loop around the current statement.
    pub(super) lane: Option<Lane>,
    /// Register contents by buffer and first element.
    pub(super) registers: std::collections::BTreeMap<(Buffer, i64), Value>,
    /// Registers that only some path to here has written.
    pub(super) partial: std::collections::BTreeSet<(Buffer, i64)>,
    /// Those of them that something has read.
    pub(super) partial_reads: std::collections::BTreeSet<(Buffer, i64)>,
    pub(super) atoms: Atoms,
    /// The block being lowered, for errors.
    pub(super) block: String,
    /// Conditions under which loads may be performed, innermost last; scalars or vectors of `Bool`.
    pub(super) guards: Vec<Value>,
}

/// What an instruction list is the body of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nesting {
    /// A task.
    Task,
    /// A loop.
    Loop,
    /// One side of a branch.
    Branch,
}

struct ScopeState {
    nesting: Nesting,
    insts: Vec<Inst>,
    known: FxHashMap<Expr, Value>,
    ops: FxHashMap<(Type, Op), Value>,
}

/// What a loop variable stands for.
#[derive(Clone, Copy)]
pub(super) enum Binding {
    /// The counter of a loop or the task.
    Scalar(Value),
    /// The lane of a vector.
    Lane,
}

/// The vectorized loop that is open.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) var: Var,
    pub(super) lanes: u32,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(
        func: &'a Func,
        kernel: &'a mut Kernel,
        places: FxHashMap<Buffer, Place>,
        written: FxHashSet<Buffer>,
        options: FlattenOptions,
    ) -> Emitter<'a> {
        let mut emitter = Emitter {
            func,
            kernel,
            places,
            written,
            options,
            scopes: Vec::new(),
            depths: SecondaryMap::new(),
            transient: FxHashMap::default(),
            bindings: FxHashMap::default(),
            lane: None,
            registers: Default::default(),
            partial: Default::default(),
            partial_reads: Default::default(),
            atoms: Atoms::default(),
            block: String::new(),
            guards: Vec::new(),
        };
        emitter.open(Nesting::Task);
        for (i, &var) in func.sizes.iter().enumerate() {
            let value = emitter.op(Type::scalar(DType::I64), Op::Size(i as u32));
            emitter.bindings.insert(var, Binding::Scalar(value));
        }
        emitter
    }

    /// The finished instruction list.
    pub(super) fn finish(mut self) -> Vec<Inst> {
        debug_assert_eq!(self.scopes.len(), 1);
        self.close()
    }

    /// Opens an instruction list nested in the current one.
    pub(super) fn open(&mut self, nesting: Nesting) {
        self.scopes.push(ScopeState {
            nesting,
            insts: Vec::new(),
            known: FxHashMap::default(),
            ops: FxHashMap::default(),
        });
    }

    /// Closes the innermost instruction list; values known only there are forgotten.
    pub(super) fn close(&mut self) -> Vec<Inst> {
        self.scopes.pop().map(|s| s.insts).unwrap_or_default()
    }

    pub(super) fn push(&mut self, inst: Inst) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insts.push(inst);
        }
    }

    /// A value that the innermost open list defines.
    pub(super) fn new_value(&mut self, ty: Type) -> Value {
        self.value_at(self.scopes.len() - 1, ty)
    }

    /// A value that the list about to be opened has from its beginning.
    pub(super) fn new_parameter(&mut self, ty: Type) -> Value {
        self.value_at(self.scopes.len(), ty)
    }

    fn value_at(&mut self, depth: usize, ty: Type) -> Value {
        let value = self.kernel.values.push(ty);
        self.depths[value] = depth;
        value
    }

    /// Number of lists around the one that defines a value: the less, the longer it stays the same.
    pub(super) fn depth_of(&self, value: Value) -> usize {
        self.depths[value]
    }

    pub(super) fn type_of(&self, value: Value) -> Type {
        self.kernel.values[value]
    }

    /// Emits an operation, or returns the value of an equal one that is in scope. It goes where its operands
    /// allow, out of the loops that it does not change in. Loads are never shared or moved here: whether their
    /// value is stable is known one level up, and a guard may be what makes them safe.
    pub(super) fn op(&mut self, ty: Type, op: Op) -> Value {
        if matches!(op, Op::Load { .. } | Op::Gather { .. }) {
            let result = self.new_value(ty);
            self.push(Inst::Let { result, op });
            return result;
        }
        if let Some(&value) = self.scopes.iter().rev().find_map(|s| s.ops.get(&(ty, op.clone()))) {
            return value;
        }
        let depth = self.home(ty, &op);
        let result = self.value_at(depth, ty);
        let scope = &mut self.scopes[depth];
        scope.ops.insert((ty, op.clone()), result);
        scope.insts.push(Inst::Let { result, op });
        result
    }

    /// Depth of the outermost list where an operation that only computes can be, its operands being there: out of
    /// loops, and out of branches where that leaves a loop too and costs next to nothing when they are not taken.
    fn home(&self, ty: Type, op: &Op) -> usize {
        let mut least = 0;
        op.for_each_operand(|operand| least = least.max(self.depths[operand]));
        let leaves_branches = is_cheap(ty, op);
        let mut home = self.scopes.len() - 1;
        for depth in (least..home).rev() {
            match self.scopes[depth + 1].nesting {
                Nesting::Loop => home = depth,
                Nesting::Branch if leaves_branches => {}
                Nesting::Task | Nesting::Branch => break,
            }
        }
        home
    }

    /// The value of an expression already computed in scope.
    pub(super) fn known(&self, expr: &Expr) -> Option<Value> {
        self.scopes.iter().rev().find_map(|s| s.known.get(expr).copied())
    }

    /// Remembers the value of an expression in the innermost scope.
    pub(super) fn remember(&mut self, expr: Expr, value: Value) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.known.insert(expr, value);
        }
    }

    pub(super) fn int(&mut self, value: i64) -> Value {
        self.op(Type::scalar(DType::I64), Op::Int(value))
    }

    /// The value with the given number of lanes: itself, or a scalar in every lane.
    pub(super) fn widen(&mut self, value: Value, lanes: u32) -> Value {
        let ty = self.type_of(value);
        if ty.lanes == lanes { value } else { self.op(Type::vector(ty.dtype, lanes), Op::Splat(value)) }
    }

    pub(super) fn error<T>(&self, reason: impl Into<String>) -> Result<T, FlattenError> {
        Err(FlattenError::of(self.func, &self.block, reason))
    }
}

/// Whether an operation is one instruction on a scalar or none.
fn is_cheap(ty: Type, op: &Op) -> bool {
    match op {
        Op::Int(_) | Op::Float(_) | Op::Size(_) | Op::Iota => true,
        Op::Unary(..) | Op::Compare(..) | Op::Select(..) => ty.lanes == 1 && !ty.dtype.is_float(),
        Op::Binary(op, ..) => {
            let divides =
                matches!(op, BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod);
            ty.lanes == 1 && !ty.dtype.is_float() && !divides
        }
        Op::Splat(_)
        | Op::Extract(..)
        | Op::Concat(_)
        | Op::Slice(..)
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::Fma(..)
        | Op::Load { .. }
        | Op::Gather { .. } => false,
    }
}
