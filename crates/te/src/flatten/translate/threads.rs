//! Translation of what threads do: loops of threads, and blocks outside of them.
//!
//! A loop of threads binds its variable to the index of the warp or lane. Where there are more threads than iterations, or
//! more of the other level than anything inside asks for, its body is in a branch. Lanes that shuffle must all be there: then
//! those without a part compute as the others do, and keep their registers.

use tilewright_dtype::DType;

use super::address::Address;
use super::emit::{Binding, Emitter};
use crate::expr::{BinaryOp, Buffer, CompareOp, Expr, ExprKind};
use crate::flatten::deal::{From, Own};
use crate::flatten::error::FlattenError;
use crate::flatten::hoist::Nesting;
use crate::flatten::nest::{self, Loop, LoopKind, Stmt, Stores};
use crate::func::{Scope, Store, ThreadLevel};
use crate::kernel::{Inst, KernelOp, Type, Value};

impl Emitter<'_> {
    /// A loop whose iterations are threads.
    pub(super) fn thread_loop(&mut self, l: &Loop<'_>, level: ThreadLevel) -> Result<(), FlattenError> {
        let extent = l.end.as_int().unwrap_or(0);
        let threads = self.kernel.threads;
        let (index, all) = match level {
            ThreadLevel::Warp => (self.warp, threads.warps),
            ThreadLevel::Lane => (self.thread, threads.lanes),
        };
        let value = match index {
            Some(value) => value,
            None => self.int(0),
        };
        self.bindings.insert(l.var, Binding::Scalar(value));
        let outer = self.covered;
        let mut others = None;
        match level {
            ThreadLevel::Warp => {
                self.covered.0 = true;
                if !self.covered.1 && !holds(&l.body.stmts, ThreadLevel::Lane) {
                    others = self.thread;
                    self.covered.1 = true;
                }
            }
            ThreadLevel::Lane => {
                self.covered.1 = true;
                if !self.covered.0 && self.is_of_one_warp(&l.body.stmts) {
                    others = self.warp;
                    self.covered.0 = true;
                }
            }
        }
        let others = others.map(|index| self.is_below(index, 1));
        let own = (extent < i64::from(all)).then(|| self.is_below(value, extent));
        let (warps, lanes) = match level {
            ThreadLevel::Warp => (own, others),
            ThreadLevel::Lane => (others, own),
        };
        let shuffle = self.shuffles(&l.body.stmts);
        let body =
            |emitter: &mut Self| emitter.some_lanes(lanes, shuffle, |emitter| emitter.stmts(&l.body.stmts));
        let result = match warps {
            None => body(self),
            Some(warps) => self.some_threads(warps, body),
        };
        self.covered = outer;
        result
    }

    /// What those lanes do for which a condition holds; all of them are there where some `shuffle`.
    fn some_lanes(
        &mut self,
        condition: Option<Value>,
        shuffle: bool,
        body: impl FnOnce(&mut Self) -> Result<(), FlattenError>,
    ) -> Result<(), FlattenError> {
        match condition {
            None => body(self),
            Some(condition) if shuffle => {
                let outer = std::mem::replace(&mut self.in_shuffling, true);
                self.guards.push(condition);
                let result = body(self);
                self.guards.pop();
                self.in_shuffling = outer;
                result
            }
            Some(condition) => self.some_threads(condition, body),
        }
    }

    /// Stores, by the threads that are to do them.
    pub(super) fn stores_of_threads(&mut self, stores: &Stores<'_>) -> Result<(), FlattenError> {
        let [every_warp, every_lane] = self.deal.dealt.is_for_everyone(self.func, stores);
        let (warps, lanes) = (self.covered.0 || every_warp, self.covered.1 || every_lane);
        let warps = self.warp.filter(|_| !warps).map(|index| self.is_below(index, 1));
        let lanes = self.thread.filter(|_| !lanes).map(|index| self.is_below(index, 1));
        let shuffle = lanes.is_some() && self.shuffles(&[Stmt::Stores(stores.clone())]);
        let body = |emitter: &mut Self| emitter.some_lanes(lanes, shuffle, |emitter| emitter.stores(stores));
        match warps {
            None => body(self),
            Some(warps) => self.some_threads(warps, body),
        }
    }

    /// What some threads do: registers of the others are not theirs.
    fn some_threads(
        &mut self,
        condition: Value,
        body: impl FnOnce(&mut Self) -> Result<(), FlattenError>,
    ) -> Result<(), FlattenError> {
        let before = self.registers.clone();
        self.open(Nesting::Branch);
        let result = body(self);
        let then_body = self.close();
        result?;
        let then_registers = std::mem::replace(&mut self.registers, before.clone());
        let joins = self.join_registers(then_registers, before, false)?;
        self.push(Inst::If { condition, then_body, else_body: Vec::new(), joins });
        Ok(())
    }

    /// Writes memory where a scalar condition holds.
    pub(super) fn store_under(
        &mut self,
        condition: Value,
        buffer: Buffer,
        indices: &[Expr],
        value: Value,
        mask: Option<Value>,
    ) -> Result<(), FlattenError> {
        self.open(Nesting::Branch);
        let result = self.store_memory(buffer, indices, value, mask);
        let then_body = self.close();
        result?;
        self.push(Inst::If { condition, then_body, else_body: Vec::new(), joins: Vec::new() });
        Ok(())
    }

    /// A store as an asynchronous copy, if it is one: of an element of memory that the kernel does not write, or of zero where a condition fails.
    pub(super) fn copied_ahead(&mut self, store: &Store) -> Result<bool, FlattenError> {
        let (condition, read) = match store.value.kind() {
            ExprKind::Select(condition, read, other) if is_zero(other) => (Some(condition), read),
            _ => (None, &store.value),
        };
        let ExprKind::Load(source, source_indices) = read.kind() else { return Ok(false) };
        let is_input = self.func.buffers[*source].scope == Scope::Global && !self.written.contains(source);
        let follows_data = |index: &Expr| index.any(&mut |e| matches!(e.kind(), ExprKind::Load(..)));
        let is_plain = is_input
            && self.func.buffers[store.buffer].scope == Scope::Shared
            && COPIED_BYTES.contains(&read.dtype().bytes())
            && (self.lane.is_none() || condition.is_none())
            && self.guards.is_empty()
            && !source_indices.iter().any(follows_data);
        if !is_plain {
            return Ok(false);
        }
        let mask = condition.map(|condition| self.expr(condition)).transpose()?;
        let (to, from) = (self.place(store.buffer)?, self.place(*source)?);
        let (own, other) =
            (self.address(store.buffer, &store.indices)?, self.address(*source, source_indices)?);
        let (
            Address::Consecutive { index: to_index, offset: to_offset, per_lane },
            Address::Consecutive { index, offset, per_lane: from_lanes },
        ) = (own, other)
        else {
            return Ok(false);
        };
        let elements = self.lane.map_or(1, |lane| lane.lanes);
        if self.lane.is_some() && !(per_lane && from_lanes) {
            return Ok(false);
        }
        self.push(Inst::CopyAsync { to, to_index, to_offset, from, index, offset, elements, mask });
        Ok(true)
    }

    /// Both of two conditions, of which the second may be one of lanes of a vector.
    pub(super) fn both(&mut self, scalar: Option<Value>, vector: Option<Value>) -> Option<Value> {
        match (scalar, vector) {
            (Some(scalar), Some(vector)) => {
                let ty = self.type_of(vector);
                let wide = self.widen(scalar, ty.lanes);
                Some(self.op(ty, KernelOp::Binary(BinaryOp::And, vector, wide)))
            }
            (scalar, vector) => scalar.or(vector),
        }
    }

    /// What another lane has.
    pub(super) fn shuffled(&mut self, value: Value, from: From) -> Value {
        let from = match (from, self.thread) {
            (From::Lane(lane), _) => self.int(lane),
            (From::Further(distance), Some(own)) => {
                let distance = self.int(distance);
                self.op(Type::scalar(DType::I64), KernelOp::Binary(BinaryOp::Add, own, distance))
            }
            (From::Further(_), None) => self.int(0),
        };
        self.op(self.type_of(value), KernelOp::Shuffle { value, from })
    }

    /// A lane's own value if it is in the half that takes it, or another's.
    pub(super) fn own_or(&mut self, own: Own, value: Value, others: Value) -> Value {
        let Some(lane) = self.thread else { return value };
        let (bit, zero) = (self.int(own.bit), self.int(0));
        let bit = self.op(Type::scalar(DType::I64), KernelOp::Binary(BinaryOp::And, lane, bit));
        let compare = if own.is_set { CompareOp::Ne } else { CompareOp::Eq };
        let is_own = self.op(Type::scalar(DType::Bool), KernelOp::Compare(compare, bit, zero));
        let ty = self.type_of(value);
        let is_own = self.widen(is_own, ty.lanes);
        self.op(ty, KernelOp::Select(is_own, value, others))
    }

    fn is_below(&mut self, index: Value, end: i64) -> Value {
        let end = self.int(end);
        self.op(Type::scalar(DType::Bool), KernelOp::Compare(CompareOp::Lt, index, end))
    }

    /// Whether statements have no loop over warps, and write no registers that every warp has: the first warp does all of it.
    fn is_of_one_warp(&self, stmts: &[Stmt<'_>]) -> bool {
        let mut is_of_one = !holds(stmts, ThreadLevel::Warp);
        nest::for_each(stmts, &mut |stmt| {
            let Stmt::Stores(stores) = stmt else { return };
            is_of_one &= !stores.stores.iter().any(|store| self.deal.dealt.is_of_every_warp(store.buffer));
        });
        is_of_one
    }

    /// Whether something in statements takes another lane's register.
    fn shuffles(&self, stmts: &[Stmt<'_>]) -> bool {
        let mut found = false;
        nest::for_each(stmts, &mut |stmt| {
            let Stmt::Stores(stores) = stmt else { return };
            for e in stores.stores.iter().flat_map(|store| store.indices.iter().chain([&store.value])) {
                e.walk(&mut |x| {
                    if let ExprKind::Load(buffer, indices) = x.kind() {
                        found |= self.deal.shuffles.contains_key(&(*buffer, indices.clone()));
                    }
                });
            }
        });
        found
    }
}

/// Bytes that a copy may have (PTX ISA, `cp.async`); larger ones are of several elements.
const COPIED_BYTES: [usize; 2] = [4, 8];

fn is_zero(e: &Expr) -> bool {
    match e.kind() {
        ExprKind::Int(value) => *value == 0,
        ExprKind::Float(bits) => *bits == 0,
        _ => false,
    }
}

/// Whether there are loops of a level among statements.
fn holds(stmts: &[Stmt<'_>], level: ThreadLevel) -> bool {
    let mut found = false;
    nest::for_each_loop(stmts, &mut |l| found |= l.kind == LoopKind::Thread(level));
    found
}
