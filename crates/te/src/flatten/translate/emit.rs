//! The state of translation: instruction lists, scopes of known values, registers.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use crate::expr::{Buffer, Expr, UnaryOp, Var};
use crate::flatten::deal::Deal;
use crate::flatten::error::FlattenError;
use crate::flatten::hoist::{Lists, Nesting, stays};
use crate::flatten::options::FlattenOptions;
use crate::flatten::poly::Atoms;
use crate::func::Func;
use crate::kernel::{Inst, Kernel, KernelOp, MemRef, Type, Value};

/// Builds the body of one kernel.
pub(super) struct Emitter<'a> {
    pub(super) func: &'a Func,
    pub(super) kernel: &'a mut Kernel,
    pub(super) places: FxHashMap<Buffer, MemRef>,
    pub(super) written: FxHashSet<Buffer>,
    pub(super) options: FlattenOptions,
    /// Open instruction lists with the values known in each, innermost last.
    scopes: Vec<ScopeState>,
    /// Where operations will be hoisted to.
    lists: Lists,
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
    /// How registers are dealt out to threads.
    pub(super) deal: Deal,
    /// The indices of this thread's warp and lane; nothing where there is one of the level.
    pub(super) warp: Option<Value>,
    pub(super) thread: Option<Value>,
    /// Whether loops of threads around have dealt with all warps, and with all lanes.
    pub(super) covered: (bool, bool),
    /// Whether lanes without a part in what is done do it all the same, since others shuffle.
    pub(super) in_shuffling: bool,
    /// Whether stores to shared arrays are copies that this thread need not wait for.
    pub(super) is_ahead: bool,
    /// The block being lowered, for errors.
    pub(super) block: String,
    /// Conditions under which loads may be performed, innermost last; scalars or vectors of `Bool`.
    pub(super) guards: Vec<Value>,
}

#[derive(Default)]
struct ScopeState {
    insts: Vec<Inst>,
    known: FxHashMap<Expr, Value>,
    /// The opposites of conditions.
    inverses: FxHashMap<Value, Value>,
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
        places: FxHashMap<Buffer, MemRef>,
        written: FxHashSet<Buffer>,
        options: FlattenOptions,
        deal: Deal,
    ) -> Emitter<'a> {
        let threads = kernel.threads;
        let lists = Lists { is_open: !kernel.sizes.is_empty(), ..Lists::default() };
        let mut emitter = Emitter {
            func,
            kernel,
            places,
            written,
            options,
            scopes: Vec::new(),
            lists,
            transient: FxHashMap::default(),
            bindings: FxHashMap::default(),
            lane: None,
            registers: Default::default(),
            partial: Default::default(),
            partial_reads: Default::default(),
            atoms: Atoms::default(),
            deal,
            warp: None,
            thread: None,
            covered: (false, false),
            in_shuffling: false,
            is_ahead: false,
            block: String::new(),
            guards: Vec::new(),
        };
        emitter.open(Nesting::Task);
        for (i, &var) in func.sizes.iter().enumerate() {
            let value = emitter.op(Type::scalar(DType::I64), KernelOp::Size(i as u32));
            emitter.bindings.insert(var, Binding::Scalar(value));
        }
        let index = Type::scalar(DType::I64);
        emitter.warp = (threads.warps > 1).then(|| emitter.op(index, KernelOp::Warp));
        emitter.thread = (threads.lanes > 1).then(|| emitter.op(index, KernelOp::Lane));
        emitter
    }

    /// The finished instruction list.
    pub(super) fn finish(mut self) -> Vec<Inst> {
        debug_assert_eq!(self.scopes.len(), 1);
        self.close()
    }

    /// Opens an instruction list nested in the current one.
    pub(super) fn open(&mut self, nesting: Nesting) {
        self.lists.nestings.push(nesting);
        self.scopes.push(ScopeState::default());
    }

    /// Closes the innermost instruction list; values known only there are forgotten.
    pub(super) fn close(&mut self) -> Vec<Inst> {
        self.lists.nestings.pop();
        self.scopes.pop().map(|s| s.insts).unwrap_or_default()
    }

    pub(super) fn push(&mut self, inst: Inst) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insts.push(inst);
        }
    }

    /// A value that the innermost open list defines.
    pub(super) fn new_value(&mut self, ty: Type) -> Value {
        self.value_at(self.lists.innermost(), ty)
    }

    /// A value that the list about to be opened has from its beginning.
    pub(super) fn new_parameter(&mut self, ty: Type) -> Value {
        self.value_at(self.scopes.len(), ty)
    }

    fn value_at(&mut self, depth: usize, ty: Type) -> Value {
        let value = self.kernel.values.push(ty);
        self.lists.depths[value] = depth;
        value
    }

    /// Number of lists around the one where a value will be computed: the less, the longer it stays the same.
    pub(super) fn depth_of(&self, value: Value) -> usize {
        self.lists.depths[value]
    }

    pub(super) fn type_of(&self, value: Value) -> Type {
        self.kernel.values[value]
    }

    /// Emits an operation.
    pub(super) fn op(&mut self, ty: Type, op: KernelOp) -> Value {
        let depth = if stays(&op) { self.lists.innermost() } else { self.lists.home(ty, &op) };
        let result = self.value_at(depth, ty);
        self.push(Inst::Let { result, op });
        result
    }

    /// The opposite of a condition, one value for each: guards are compared by value.
    pub(super) fn inverse(&mut self, condition: Value) -> Value {
        if let Some(&known) = self.scopes.iter().rev().find_map(|s| s.inverses.get(&condition)) {
            return known;
        }
        let ty = self.type_of(condition);
        let inverse = self.op(ty, KernelOp::Unary(UnaryOp::Not, condition));
        if let Some(scope) = self.scopes.last_mut() {
            scope.inverses.insert(condition, inverse);
        }
        inverse
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
        self.op(Type::scalar(DType::I64), KernelOp::Int(value))
    }

    /// The value with the given number of lanes: itself, or a scalar in every lane.
    pub(super) fn widen(&mut self, value: Value, lanes: u32) -> Value {
        let ty = self.type_of(value);
        if ty.lanes == lanes { value } else { self.op(Type::vector(ty.dtype, lanes), KernelOp::Splat(value)) }
    }

    pub(super) fn error<T>(&self, reason: impl Into<String>) -> Result<T, FlattenError> {
        Err(FlattenError::of(self.func, &self.block, reason))
    }
}
