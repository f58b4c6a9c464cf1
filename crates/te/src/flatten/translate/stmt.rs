//! Translation of statements: loops and branches, with the registers that they carry and join.

use rustc_hash::FxHashSet;
use tilewright_dtype::DType;

use super::emit::{Binding, Emitter, Lane};
use crate::expr::{BinaryOp, Buffer, Expr, ExprKind};
use crate::flatten::error::FlattenError;
use crate::flatten::hoist::Nesting;
use crate::flatten::mask_vectors::is_maskable;
use crate::flatten::nest::{self, Body, Counter, If, Loop, LoopKind, Masked, Stmt, Stores};
use crate::func::{Prefetch, Scope, Store};
use crate::kernel::{Carried, Inst, Join, KernelOp, Type, Value};

/// Register contents by buffer and first element.
pub(super) type Registers = std::collections::BTreeMap<(Buffer, i64), Value>;

impl Emitter<'_> {
    /// Emits statements one after the other.
    pub(super) fn stmts(&mut self, stmts: &[Stmt<'_>]) -> Result<(), FlattenError> {
        stmts.iter().try_for_each(|stmt| match stmt {
            Stmt::Loop(l) => match (l.kind, self.lanes_of(l)) {
                (LoopKind::Vectorized, Some(lanes)) => self.vector(l, lanes),
                (LoopKind::Serial, _) => self.counted_loop(l),
                (LoopKind::Thread(level), _) => self.thread_loop(l, level),
                (LoopKind::Unrolled | LoopKind::Vectorized, _) => self.error("a loop is not unrolled yet"),
            },
            Stmt::If(branch) => self.branch(branch),
            Stmt::Masked(masked) => self.masked(masked),
            Stmt::Stores(stores) => self.stores_of_threads(stores),
            Stmt::Prefetch(hint) => self.prefetch(hint),
            Stmt::Barrier => {
                self.push(Inst::Barrier);
                Ok(())
            }
            Stmt::Copies(stmts) => {
                let outer = std::mem::replace(&mut self.is_ahead, true);
                let result = self.stmts(stmts);
                self.is_ahead = outer;
                result
            }
            Stmt::CommitCopies => {
                self.push(Inst::CommitCopies);
                Ok(())
            }
            Stmt::WaitCopies(pending) => {
                self.push(Inst::WaitCopies { pending: *pending });
                Ok(())
            }
            Stmt::Block(block) => self.error(format!("block `{}` is not bound yet", block.source.name)),
        })
    }

    fn lanes_of(&self, l: &Loop<'_>) -> Option<u32> {
        l.end.as_int().and_then(|n| u32::try_from(n).ok()).filter(|_| self.lane.is_none())
    }

    fn vector(&mut self, l: &Loop<'_>, lanes: u32) -> Result<(), FlattenError> {
        self.bindings.insert(l.var, Binding::Lane);
        self.lane = Some(Lane { var: l.var, lanes });
        let result = self.stmts(&l.body.stmts);
        self.lane = None;
        result
    }

    fn masked(&mut self, masked: &Masked<'_>) -> Result<(), FlattenError> {
        let mask = self.expr(&masked.mask)?;
        let mask = self.widen(mask, self.lane.map_or(1, |lane| lane.lanes));
        self.guards.push(mask);
        let result = self.stmts(&masked.stmts);
        self.guards.pop();
        result
    }

    fn prefetch(&mut self, hint: &Prefetch) -> Result<(), FlattenError> {
        let place = self.place(hint.buffer)?;
        let mut poly = self.atoms.poly(&hint.element);
        let offset = std::mem::take(&mut poly.constant);
        let index = self.poly_value(&poly)?;
        self.push(Inst::Prefetch { place, index, offset });
        Ok(())
    }

    /// Takes a task's number apart: the iteration of the loop of rounds, and of the loop that threads share.
    pub(super) fn bind_task(
        &mut self,
        task: Value,
        rounds: &Counter,
        shared: &Counter,
    ) -> Result<(), FlattenError> {
        let ty = Type::scalar(DType::I64);
        let per_round = self.expr(&shared.extent)?;
        let round = self.op(ty, KernelOp::Binary(BinaryOp::FloorDiv, task, per_round));
        let index = self.op(ty, KernelOp::Binary(BinaryOp::FloorMod, task, per_round));
        self.bindings.insert(rounds.var, Binding::Scalar(round));
        self.bindings.insert(shared.var, Binding::Scalar(index));
        Ok(())
    }

    /// Emits a loop; registers that its body writes are carried from iteration to iteration.
    fn counted_loop(&mut self, l: &Loop<'_>) -> Result<(), FlattenError> {
        let begin = self.expr(&l.begin)?;
        let end = self.expr(&l.end)?;
        let mut stored = FxHashSet::default();
        stored_buffers(&l.body.stmts, &mut stored);
        let before = self.registers.clone();
        let var = self.new_parameter(Type::scalar(DType::I64));
        let mut carried = Vec::new();
        for (&(buffer, element), &init) in &before {
            if stored.contains(&buffer) {
                let ty = self.type_of(init);
                let (param, result) = (self.new_parameter(ty), self.new_value(ty));
                self.registers.insert((buffer, element), param);
                carried.push(((buffer, element), Carried { init, param, next: param, result }));
            }
        }
        self.open(Nesting::Loop);
        self.bindings.insert(l.var, Binding::Scalar(var));
        self.stmts(&l.body.stmts)?;
        for (key, carried) in &mut carried {
            match self.registers.get(key) {
                Some(&next) if self.type_of(next) == self.type_of(carried.param) => carried.next = next,
                _ => {
                    let name = &self.func.buffers[key.0].name;
                    return self
                        .error(format!("vectors of register buffer `{name}` differ between iterations"));
                }
            }
        }
        // A register that is first written under a condition would have to keep its value for the next
        // iteration, and has none before the first.
        let persists = |key: &&(Buffer, i64)| stored.contains(&key.0) && !before.contains_key(*key);
        if let Some(key) = self.partial_reads.iter().find(persists) {
            let name = &self.func.buffers[key.0].name;
            return self.error(format!(
                "register buffer `{name}` is started under a condition inside the loop that uses it; decompose the reduction"
            ));
        }
        let body = self.close();
        self.registers = before;
        for (key, carried) in &carried {
            self.registers.insert(*key, carried.result);
        }
        let carried = carried.into_iter().map(|(_, c)| c).collect();
        self.push(Inst::Loop { var, begin, end, carried, body });
        Ok(())
    }

    /// Whether loads and stores of a buffer's elements can be masked.
    pub(super) fn masks(&self, buffer: Buffer) -> bool {
        is_maskable(self.func, buffer, self.options.masked_access)
    }

    /// `if condition { then } else { otherwise }` with registers joined behind it.
    fn branch(&mut self, branch: &If<'_>) -> Result<(), FlattenError> {
        let condition = self.expr(&branch.condition)?;
        let before = self.registers.clone();
        let mut side = |body: &Body<'_>, before: Registers| {
            self.open(Nesting::Branch);
            self.stmts(&body.stmts)?;
            Ok((std::mem::replace(&mut self.registers, before), self.close()))
        };
        let (then_registers, then_body) = side(&branch.then, before.clone())?;
        let (else_registers, else_body) = side(&branch.otherwise, before)?;
        let joins = self.join_registers(then_registers, else_registers, true)?;
        self.push(Inst::If { condition, then_body, else_body, joins });
        Ok(())
    }

    /// Registers after a branch. Where it `may_miss`, they may be read by who does not write them.
    pub(super) fn join_registers(
        &mut self,
        then: Registers,
        other: Registers,
        may_miss: bool,
    ) -> Result<Vec<Join>, FlattenError> {
        let mut joins = Vec::new();
        let keys: std::collections::BTreeSet<_> = then.keys().chain(other.keys()).copied().collect();
        let mut joined = Registers::new();
        for key in keys {
            let (a, b) = (then.get(&key).copied(), other.get(&key).copied());
            let some = a.or(b).map(|v| self.type_of(v));
            let Some(ty) = some else { continue };
            if a == b {
                joined.extend(a.map(|v| (key, v)));
                continue;
            }
            // A register that one side does not write is undefined there: nothing may read it, zero will do.
            let undefined = self.undefined(ty);
            if may_miss && (a.is_none() || b.is_none()) {
                self.partial.insert(key);
            }
            let (then_value, else_value) = (a.unwrap_or(undefined), b.unwrap_or(undefined));
            if self.type_of(then_value) != self.type_of(else_value) {
                let name = &self.func.buffers[key.0].name;
                return self.error(format!("vectors of register buffer `{name}` differ between branches"));
            }
            let result = self.new_value(ty);
            joins.push(Join { then_value, else_value, result });
            joined.insert(key, result);
        }
        self.registers = joined;
        Ok(joins)
    }

    fn undefined(&mut self, ty: Type) -> Value {
        let op = if ty.dtype.is_float() { KernelOp::Float(0) } else { KernelOp::Int(0) };
        let scalar = self.op(Type::scalar(ty.dtype), op);
        self.widen(scalar, ty.lanes)
    }

    /// The stores of a block.
    pub(super) fn stores(&mut self, block: &Stores<'_>) -> Result<(), FlattenError> {
        let outer = std::mem::replace(&mut self.block, block.block.to_string());
        let independent = !read_each_other(&block.stores);
        for (n, store) in block.stores.iter().enumerate() {
            let Store { buffer, indices, value } = store;
            if self.is_ahead && self.copied_ahead(store)? {
                continue;
            }
            let value = if n > 0 && independent { self.expr_in_common(value)? } else { self.expr(value)? };
            let (scalar, vector) = self.combined_guard()?;
            debug_assert!(scalar.is_none() || self.in_shuffling, "scalar predicates are branches");
            if self.func.buffers[*buffer].scope == Scope::Register {
                let mask = self.both(scalar, vector);
                self.store_register(*buffer, indices, value, mask)?;
            } else if let Some(scalar) = scalar {
                self.store_under(scalar, *buffer, indices, value, vector)?;
            } else {
                self.store_memory(*buffer, indices, value, vector)?;
            }
        }
        self.block = outer;
        Ok(())
    }
}

/// Whether some of these stores read a buffer that one of them writes.
fn read_each_other(stores: &[Store]) -> bool {
    let is_stored = |buffer: Buffer| stores.iter().any(|store| store.buffer == buffer);
    let reads =
        |e: &Expr| e.any(&mut |e| matches!(e.kind(), ExprKind::Load(buffer, _) if is_stored(*buffer)));
    stores.iter().any(|store| reads(&store.value) || store.indices.iter().any(reads))
}

fn stored_buffers(stmts: &[Stmt<'_>], out: &mut FxHashSet<Buffer>) {
    nest::for_each(stmts, &mut |stmt| {
        if let Stmt::Stores(stores) = stmt {
            out.extend(stores.stores.iter().map(|store| store.buffer));
        }
    });
}
