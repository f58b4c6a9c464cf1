//! The state of flattening: instruction lists, scopes of known values, registers.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use super::poly::Atoms;
use super::{FlattenError, FlattenOptions};
use crate::expr::{Buffer, Expr, Var};
use crate::func::Func;
use crate::kernel::{Inst, Kernel, Op, Place, Type, Value};
use crate::simplify::Simplifier;

/// Builds the body of one kernel.
pub(super) struct Emitter<'a> {
    pub(super) func: &'a Func,
    pub(super) kernel: &'a mut Kernel,
    pub(super) places: FxHashMap<Buffer, Place>,
    pub(super) written: FxHashSet<Buffer>,
    pub(super) options: FlattenOptions,
    /// Open instruction lists with the values known in each, innermost last.
    scopes: Vec<ScopeState>,
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
    /// Knows the sizes and the open loops.
    pub(super) simplifier: Simplifier,
    /// Conditions under which loads may be performed, innermost last; scalars or vectors of `Bool`.
    pub(super) guards: Vec<Value>,
}

struct ScopeState {
    insts: Vec<Inst>,
    known: FxHashMap<Expr, Value>,
    ops: FxHashMap<(Type, Op), Value>,
}

/// What a loop variable stands for.
#[derive(Clone, Copy)]
pub(super) enum Binding {
    /// An iteration of an unrolled loop.
    Constant(i64),
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
            transient: FxHashMap::default(),
            bindings: FxHashMap::default(),
            lane: None,
            registers: Default::default(),
            partial: Default::default(),
            partial_reads: Default::default(),
            atoms: Atoms::default(),
            block: String::new(),
            simplifier: Simplifier::for_sizes(func),
            guards: Vec::new(),
        };
        emitter.open();
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

    /// Binds the counter of a loop of the given extent.
    pub(super) fn bind_scalar(&mut self, var: Var, extent: &Expr, value: Value) {
        self.simplifier.bind_range(var, Expr::int(0), extent.clone());
        self.bindings.insert(var, Binding::Scalar(value));
    }

    /// Opens an instruction list nested in the current one.
    pub(super) fn open(&mut self) {
        self.scopes.push(ScopeState {
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

    pub(super) fn new_value(&mut self, ty: Type) -> Value {
        self.kernel.values.push(ty)
    }

    pub(super) fn type_of(&self, value: Value) -> Type {
        self.kernel.values[value]
    }

    /// Emits an operation, or returns the value of an equal one that is in scope. Loads are never shared
    /// here: whether their value is stable is known one level up.
    pub(super) fn op(&mut self, ty: Type, op: Op) -> Value {
        let shareable = !matches!(op, Op::Load { .. } | Op::Gather { .. });
        if shareable && let Some(&value) = self.scopes.iter().rev().find_map(|s| s.ops.get(&(ty, op.clone())))
        {
            return value;
        }
        let result = self.new_value(ty);
        if shareable && let Some(scope) = self.scopes.last_mut() {
            scope.ops.insert((ty, op.clone()), result);
        }
        self.push(Inst::Let { result, op });
        result
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
        Err(FlattenError { func: self.func.name.clone(), block: self.block.clone(), reason: reason.into() })
    }
}
