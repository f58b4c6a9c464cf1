//! Translation of expressions: values, addresses, loads and stores.

use tilewright_dtype::DType;

use super::address::Address;
use super::emit::{Binding, Emitter};
use crate::expr::{BinaryOp, Buffer, CompareOp, Expr, ExprKind};
use crate::flatten::error::FlattenError;
use crate::func::Scope;
use crate::kernel::{Inst, KernelOp, MemRef, Type, Value};

/// A computed expression.
#[derive(Clone, Copy)]
pub(super) struct Computed {
    pub(super) value: Value,
    /// Whether evaluating the expression again in this scope would give the same value.
    stable: bool,
}

impl Emitter<'_> {
    /// The value of an expression over loop variables; a scalar where it does not depend on the lane.
    pub(super) fn expr(&mut self, expr: &Expr) -> Result<Value, FlattenError> {
        self.transient.clear();
        self.expr_in_common(expr)
    }

    /// As [`Emitter::expr`], where nothing has been stored since the expression before that this one reads: what they
    /// have in common is computed once.
    pub(super) fn expr_in_common(&mut self, expr: &Expr) -> Result<Value, FlattenError> {
        Ok(self.computed(expr)?.value)
    }

    fn computed(&mut self, expr: &Expr) -> Result<Computed, FlattenError> {
        if let Some(value) = self.known(expr) {
            return Ok(Computed { value, stable: true });
        }
        // What was computed under the first of the guards is right where all of them hold.
        let mut shared = (expr.clone(), self.guards.clone());
        loop {
            if let Some(&value) = self.transient.get(&shared) {
                return Ok(Computed { value, stable: false });
            }
            if shared.1.pop().is_none() {
                break;
            }
        }
        shared.1.clone_from(&self.guards);
        let computed = self.compute(expr)?;
        if computed.stable {
            self.remember(expr.clone(), computed.value);
        } else {
            self.transient.insert(shared, computed.value);
        }
        Ok(computed)
    }

    fn compute(&mut self, expr: &Expr) -> Result<Computed, FlattenError> {
        let dtype = expr.dtype();
        let stable = |value| Computed { value, stable: true };
        match expr.kind() {
            ExprKind::Int(value) => Ok(stable(self.op(Type::scalar(dtype), KernelOp::Int(*value)))),
            ExprKind::Float(bits) => Ok(stable(self.op(Type::scalar(dtype), KernelOp::Float(*bits)))),
            ExprKind::Var(var) => match self.bindings.get(var).copied() {
                Some(Binding::Scalar(value)) => Ok(stable(value)),
                Some(Binding::Lane) => {
                    let lanes = self.lane.map_or(1, |l| l.lanes);
                    Ok(stable(self.op(Type::vector(DType::I64, lanes), KernelOp::Iota)))
                }
                None => self.error(format!("variable `{}` is not bound", self.func.vars[*var].name)),
            },
            ExprKind::Unary(op, a) => {
                if op.is_intrinsic() {
                    return self.error(format!("intrinsic `{}` was not expanded", op.name()));
                }
                let a = self.computed(a)?;
                let lanes = self.type_of(a.value).lanes;
                let value = self.op(Type::vector(dtype, lanes), KernelOp::Unary(*op, a.value));
                Ok(Computed { value, stable: a.stable })
            }
            ExprKind::Binary(op, a, b) => {
                if op.is_intrinsic() {
                    return self.error(format!("intrinsic `{}` was not expanded", op.name()));
                }
                self.operation(dtype, &[a, b], |v| KernelOp::Binary(*op, v[0], v[1]))
            }
            ExprKind::Compare(op, a, b) => {
                self.operation(dtype, &[a, b], |v| KernelOp::Compare(*op, v[0], v[1]))
            }
            ExprKind::Fma(a, b, c) => self.operation(dtype, &[a, b, c], |v| KernelOp::Fma(v[0], v[1], v[2])),
            ExprKind::Cast(a) => self.operation(dtype, &[a], |v| KernelOp::Cast(v[0])),
            ExprKind::Bitcast(a) => self.operation(dtype, &[a], |v| KernelOp::Bitcast(v[0])),
            ExprKind::Select(condition, a, b) => self.select(dtype, condition, a, b),
            ExprKind::Load(buffer, indices) => self.load(*buffer, indices),
        }
    }

    fn operation(
        &mut self,
        dtype: DType,
        operands: &[&Expr],
        op: impl FnOnce(&[Value]) -> KernelOp,
    ) -> Result<Computed, FlattenError> {
        let computed = operands.iter().map(|e| self.computed(e)).collect::<Result<Vec<_>, _>>()?;
        let lanes = computed.iter().map(|c| self.type_of(c.value).lanes).max().unwrap_or(1);
        let values: Vec<Value> = computed.iter().map(|c| self.widen(c.value, lanes)).collect();
        let value = self.op(Type::vector(dtype, lanes), op(&values));
        Ok(Computed { value, stable: computed.iter().all(|c| c.stable) })
    }

    /// Both sides are evaluated; loads in a side are guarded by the condition.
    fn select(
        &mut self,
        dtype: DType,
        condition: &Expr,
        a: &Expr,
        b: &Expr,
    ) -> Result<Computed, FlattenError> {
        let c = self.computed(condition)?;
        let lanes = self.type_of(c.value).lanes;
        let loads = |e: &Expr| e.any(&mut |x| matches!(x.kind(), ExprKind::Load(..)));
        let on_true = if loads(a) { self.guarded(c.value, a)? } else { self.computed(a)? };
        let on_false = if loads(b) {
            let inverse = self.inverse(c.value);
            self.guarded(inverse, b)?
        } else {
            self.computed(b)?
        };
        let width = lanes.max(self.type_of(on_true.value).lanes).max(self.type_of(on_false.value).lanes);
        let (x, y) = (self.widen(on_true.value, width), self.widen(on_false.value, width));
        let value = self.op(Type::vector(dtype, width), KernelOp::Select(c.value, x, y));
        Ok(Computed { value, stable: c.stable && on_true.stable && on_false.stable })
    }

    fn guarded(&mut self, guard: Value, expr: &Expr) -> Result<Computed, FlattenError> {
        self.guards.push(guard);
        let result = self.computed(expr);
        self.guards.pop();
        result
    }

    fn load(&mut self, buffer: Buffer, indices: &[Expr]) -> Result<Computed, FlattenError> {
        if self.func.buffers[buffer].scope == Scope::Register {
            let value = self.load_register(buffer, indices)?;
            return Ok(Computed { value, stable: false });
        }
        let dtype = self.func.buffers[buffer].dtype;
        let place = self.place(buffer)?;
        let address = self.address(buffer, indices)?;
        let (scalar_guard, vector_guard) = self.combined_guard()?;
        if self.in_shuffling && self.written.contains(&buffer) {
            let name = &self.func.buffers[buffer].name;
            return self
                .error(format!("`{name}` is written, and read where lanes shuffle that have no part in it"));
        }
        let stable = !self.written.contains(&buffer) && self.guards.is_empty();
        let value = match address {
            Address::Consecutive { index, offset, per_lane } => {
                let lanes = if per_lane { self.lane.map_or(1, |l| l.lanes) } else { 1 };
                match vector_guard {
                    // One element for lanes of which only some may read it: read it if any may.
                    Some(mask) if !per_lane => {
                        let width = self.type_of(mask).lanes;
                        let base = self.widen(index, width);
                        let base = self.offset_lanes(base, offset);
                        self.masked_gather(dtype, place, base, mask, scalar_guard)
                    }
                    Some(mask) if self.masks(buffer) => {
                        let mask = self.and_scalar(mask, scalar_guard);
                        self.op(
                            Type::vector(dtype, lanes),
                            KernelOp::Load { place, index, offset, mask: Some(mask) },
                        )
                    }
                    Some(mask) => {
                        let iota = self.op(Type::vector(DType::I64, lanes), KernelOp::Iota);
                        let base = self.widen(index, lanes);
                        let sum = self
                            .op(Type::vector(DType::I64, lanes), KernelOp::Binary(BinaryOp::Add, base, iota));
                        let sum = self.offset_lanes(sum, offset);
                        self.masked_gather(dtype, place, sum, mask, scalar_guard)
                    }
                    None => {
                        let (index, offset) = self.clamp(index, offset, scalar_guard);
                        self.op(
                            Type::vector(dtype, lanes),
                            KernelOp::Load { place, index, offset, mask: None },
                        )
                    }
                }
            }
            Address::Clamped { index, last, offset } => {
                self.load_clamped(buffer, [index, last], offset, (scalar_guard, vector_guard))?
            }
            Address::Runs { starts, len } => {
                self.load_runs(buffer, &starts, len, (scalar_guard, vector_guard))?
            }
            Address::Scattered { indices, offset } => {
                self.gather((dtype, place), indices, offset, (scalar_guard, vector_guard))
            }
        };
        Ok(Computed { value, stable })
    }

    /// Loads consecutive elements up to the last that is there, and that one for the lanes behind it.
    fn load_clamped(
        &mut self,
        buffer: Buffer,
        [index, last]: [Value; 2],
        offset: i64,
        (scalar_guard, vector_guard): (Option<Value>, Option<Value>),
    ) -> Result<Value, FlattenError> {
        let (place, dtype) = (self.place(buffer)?, self.func.buffers[buffer].dtype);
        let lanes = self.lane.map_or(1, |lane| lane.lanes);
        let ty = Type::vector(dtype, lanes);
        if !self.masks(buffer) || scalar_guard.is_some() || vector_guard.is_some() {
            let indices = self.clamped_indices([index, last], lanes);
            return Ok(self.gather((dtype, place), indices, offset, (scalar_guard, vector_guard)));
        }
        let (indices, end) = (self.consecutive_indices(index, lanes), self.widen(last, lanes));
        let is_there = Type::vector(DType::Bool, lanes);
        let mask = self.op(is_there, KernelOp::Compare(CompareOp::Le, indices, end));
        let elements = self.op(ty, KernelOp::Load { place, index, offset, mask: Some(mask) });
        let scalar = Type::scalar(dtype);
        let behind = self.op(scalar, KernelOp::Load { place, index: last, offset, mask: None });
        let behind = self.widen(behind, lanes);
        Ok(self.op(ty, KernelOp::Select(mask, elements, behind)))
    }

    /// As many indices as there are lanes, from one on.
    fn consecutive_indices(&mut self, from: Value, lanes: u32) -> Value {
        let ty = Type::vector(DType::I64, lanes);
        let (from, iota) = (self.widen(from, lanes), self.op(ty, KernelOp::Iota));
        self.op(ty, KernelOp::Binary(BinaryOp::Add, from, iota))
    }

    /// The same, none beyond the last.
    fn clamped_indices(&mut self, [from, last]: [Value; 2], lanes: u32) -> Value {
        let (indices, last) = (self.consecutive_indices(from, lanes), self.widen(last, lanes));
        self.op(Type::vector(DType::I64, lanes), KernelOp::Binary(BinaryOp::Min, indices, last))
    }

    /// Loads a vector run by run, under the guards.
    fn load_runs(
        &mut self,
        buffer: Buffer,
        starts: &[(Value, i64)],
        len: u32,
        (scalar_guard, vector_guard): (Option<Value>, Option<Value>),
    ) -> Result<Value, FlattenError> {
        let (place, dtype) = (self.place(buffer)?, self.func.buffers[buffer].dtype);
        let lanes = len * starts.len() as u32;
        let mask = match vector_guard {
            Some(guard) if self.masks(buffer) => Some(self.and_scalar(guard, scalar_guard)),
            Some(guard) => {
                let indices = self.run_indices(starts, len);
                return Ok(self.masked_gather(dtype, place, indices, guard, scalar_guard));
            }
            None => None,
        };
        let mut runs = Vec::with_capacity(starts.len());
        for (n, &(index, offset)) in starts.iter().enumerate() {
            let (index, offset, mask) = match mask {
                Some(mask) => {
                    let ty = Type::vector(DType::Bool, len);
                    (index, offset, Some(self.op(ty, KernelOp::Slice(mask, n as u32 * len))))
                }
                None => {
                    let (index, offset) = self.clamp(index, offset, scalar_guard);
                    (index, offset, None)
                }
            };
            runs.push(self.op(Type::vector(dtype, len), KernelOp::Load { place, index, offset, mask }));
        }
        Ok(self.op(Type::vector(dtype, lanes), KernelOp::Concat(runs)))
    }

    /// The element index of every lane of runs.
    fn run_indices(&mut self, starts: &[(Value, i64)], len: u32) -> Value {
        let run = |e: &mut Self, &(index, offset): &(Value, i64)| {
            let indices = e.consecutive_indices(index, len);
            e.offset_lanes(indices, offset)
        };
        let runs: Vec<Value> = starts.iter().map(|start| run(self, start)).collect();
        self.op(Type::vector(DType::I64, len * starts.len() as u32), KernelOp::Concat(runs))
    }

    /// Loads one element a lane, under the guards.
    fn gather(
        &mut self,
        (dtype, place): (DType, MemRef),
        indices: Value,
        offset: i64,
        (scalar_guard, vector_guard): (Option<Value>, Option<Value>),
    ) -> Value {
        let lanes = self.type_of(indices).lanes;
        match (scalar_guard, vector_guard) {
            (None, None) => {
                let op = KernelOp::Gather { place, indices, offset, mask: None };
                self.op(Type::vector(dtype, lanes), op)
            }
            (Some(guard), None) => {
                let mask = self.widen(guard, lanes);
                let indices = self.offset_lanes(indices, offset);
                self.masked_gather(dtype, place, indices, mask, None)
            }
            (scalar, Some(mask)) => {
                let indices = self.offset_lanes(indices, offset);
                self.masked_gather(dtype, place, indices, mask, scalar)
            }
        }
    }

    /// A gather that reads element 0 in lanes that are masked off (every buffer has at least 64 bytes).
    fn masked_gather(
        &mut self,
        dtype: DType,
        place: MemRef,
        indices: Value,
        mask: Value,
        scalar_guard: Option<Value>,
    ) -> Value {
        let lanes = self.type_of(indices).lanes;
        let mask = self.and_scalar(mask, scalar_guard);
        let zero = self.int(0);
        let zeros = self.widen(zero, lanes);
        let safe = self.op(Type::vector(DType::I64, lanes), KernelOp::Select(mask, indices, zeros));
        self.op(Type::vector(dtype, lanes), KernelOp::Gather { place, indices: safe, offset: 0, mask: None })
    }

    fn offset_lanes(&mut self, indices: Value, offset: i64) -> Value {
        if offset == 0 {
            return indices;
        }
        let lanes = self.type_of(indices).lanes;
        let constant = self.int(offset);
        let constant = self.widen(constant, lanes);
        self.op(Type::vector(DType::I64, lanes), KernelOp::Binary(BinaryOp::Add, indices, constant))
    }

    /// The address to use under a scalar guard: element 0 where the guard is false, which may always be
    /// read because the caller guarantees 64 readable bytes for every buffer.
    fn clamp(&mut self, index: Value, offset: i64, guard: Option<Value>) -> (Value, i64) {
        let Some(guard) = guard else { return (index, offset) };
        let whole = self.offset_lanes(index, offset);
        let zero = self.int(0);
        (self.op(Type::scalar(DType::I64), KernelOp::Select(guard, whole, zero)), 0)
    }

    fn and_scalar(&mut self, mask: Value, scalar: Option<Value>) -> Value {
        match scalar {
            None => mask,
            Some(scalar) => {
                let lanes = self.type_of(mask).lanes;
                let wide = self.widen(scalar, lanes);
                self.op(Type::vector(DType::Bool, lanes), KernelOp::Binary(BinaryOp::And, mask, wide))
            }
        }
    }

    /// The conjunction of the scalar guards and that of the vector guards.
    pub(super) fn combined_guard(&mut self) -> Result<(Option<Value>, Option<Value>), FlattenError> {
        let (mut scalar, mut vector): (Option<Value>, Option<Value>) = (None, None);
        for guard in self.guards.clone() {
            let ty = self.type_of(guard);
            let slot = if ty.lanes == 1 { &mut scalar } else { &mut vector };
            *slot = Some(match *slot {
                None => guard,
                Some(so_far) => self.op(ty, KernelOp::Binary(BinaryOp::And, so_far, guard)),
            });
        }
        Ok((scalar, vector))
    }

    pub(super) fn place(&self, buffer: Buffer) -> Result<MemRef, FlattenError> {
        match self.places.get(&buffer) {
            Some(place) => Ok(*place),
            None => self.error(format!("buffer `{}` has no place", self.func.buffers[buffer].name)),
        }
    }

    /// Writes memory.
    pub(super) fn store_memory(
        &mut self,
        buffer: Buffer,
        indices: &[Expr],
        value: Value,
        mask: Option<Value>,
    ) -> Result<(), FlattenError> {
        let place = self.place(buffer)?;
        match self.address(buffer, indices)? {
            Address::Consecutive { index, offset, per_lane: true } => {
                let lanes = self.lane.map_or(1, |l| l.lanes);
                let value = self.widen(value, lanes);
                self.push(Inst::Store { place, index, offset, value, mask });
            }
            Address::Consecutive { index, offset, per_lane: false } => {
                if self.type_of(value).lanes > 1 || mask.is_some() {
                    let name = &self.func.buffers[buffer].name;
                    return self.error(format!("lanes of a vector are written to one element of `{name}`"));
                }
                self.push(Inst::Store { place, index, offset, value, mask: None });
            }
            Address::Clamped { index, last, offset } => {
                let lanes = self.lane.map_or(1, |l| l.lanes);
                let indices = self.clamped_indices([index, last], lanes);
                let value = self.widen(value, lanes);
                self.push(Inst::Scatter { place, indices, offset, value, mask });
            }
            Address::Runs { starts, len } => {
                let value = self.widen(value, len * starts.len() as u32);
                let ty = self.type_of(value);
                for (n, (index, offset)) in starts.into_iter().enumerate() {
                    let at = n as u32 * len;
                    let value = self.op(Type::vector(ty.dtype, len), KernelOp::Slice(value, at));
                    let slice =
                        |e: &mut Self, mask| e.op(Type::vector(DType::Bool, len), KernelOp::Slice(mask, at));
                    let mask = mask.map(|mask| slice(self, mask));
                    self.push(Inst::Store { place, index, offset, value, mask });
                }
            }
            Address::Scattered { indices, offset } => {
                let lanes = self.type_of(indices).lanes;
                let value = self.widen(value, lanes);
                self.push(Inst::Scatter { place, indices, offset, value, mask });
            }
        }
        Ok(())
    }
}
