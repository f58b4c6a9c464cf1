//! Flattening of statements: loops, blocks, predicates.

use rustc_hash::FxHashSet;
use tilewright_dtype::DType;

use super::FlattenError;
use super::emit::{Binding, Emitter, Lane, Nesting};
use crate::expr::{BinaryOp, Buffer, CompareOp, Expr, ExprKind, Var};
use crate::func::{Block, Func, IterKind, Loop, LoopKind, Scope, Stmt, Store};
use crate::kernel::{Carried, Inst, Join, Op, Type, Value};
use crate::schedule::tree;

/// Register contents by buffer and first element.
type Registers = std::collections::BTreeMap<(Buffer, i64), Value>;

impl Emitter<'_> {
    /// Emits a statement.
    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Result<(), FlattenError> {
        match stmt {
            Stmt::Loop(l) => self.for_loop(l),
            Stmt::Block(b) => {
                let outer = std::mem::replace(&mut self.block, b.name.clone());
                let result = self.block(b);
                self.block = outer;
                result
            }
        }
    }

    fn for_loop(&mut self, l: &Loop) -> Result<(), FlattenError> {
        let extent = self.resolve(&l.extent);
        let name = &self.func.vars[l.var].name;
        match l.kind {
            LoopKind::Unrolled => {
                let Some(n) = extent.as_int() else {
                    return self.error(format!("unrolled loop `{name}` has no constant extent"));
                };
                for i in 0..n {
                    self.bindings.insert(l.var, Binding::Constant(i));
                    self.iteration(l)?;
                }
                Ok(())
            }
            LoopKind::Vectorized => {
                let lanes = extent.as_int().and_then(|n| u32::try_from(n).ok());
                let Some(lanes) = lanes else {
                    return self.error(format!("vectorized loop `{name}` has no constant extent"));
                };
                if self.lane.is_some() {
                    return self.error(format!("vectorized loop `{name}` is inside another vectorized loop"));
                }
                match lanes {
                    0 => return Ok(()),
                    1 => {
                        self.bindings.insert(l.var, Binding::Constant(0));
                        return l.body.iter().try_for_each(|s| self.stmt(s));
                    }
                    _ => {}
                }
                self.simplifier.bind_range(l.var, Expr::int(0), extent);
                self.bindings.insert(l.var, Binding::Lane);
                self.lane = Some(Lane { var: l.var, lanes });
                let result = l.body.iter().try_for_each(|s| self.stmt(s));
                self.lane = None;
                result
            }
            LoopKind::Serial => match extent.as_int() {
                Some(n) if n <= 1 => self.counted_loop(l, &Expr::int(0), &Expr::int(n.max(0))),
                _ => self.serial_loop(l, &extent),
            },
            LoopKind::Parallel => self.error(format!("parallel loop `{name}` is not outermost")),
            LoopKind::Thread(_) => {
                self.error(format!("loop `{name}` is bound to threads this target has not"))
            }
        }
    }

    /// One iteration of a loop whose variable is bound: what it asks for, then its statements.
    fn iteration(&mut self, l: &Loop) -> Result<(), FlattenError> {
        for prefetch in &l.prefetches {
            let is_global = self.func.buffers[prefetch.buffer].scope == Scope::Global;
            let Some(&place) = self.places.get(&prefetch.buffer).filter(|_| is_global) else { continue };
            let element = self.resolve(&prefetch.element);
            let mut poly = self.atoms.poly(&element);
            let offset = std::mem::take(&mut poly.constant);
            let index = self.poly_value(&poly)?;
            self.push(Inst::Prefetch { place, index, offset });
        }
        self.stmts(&l.body.iter().collect::<Vec<_>>())
    }

    /// Emits statements one after the other, behind a branch where all their blocks have conditions in common that are decided.
    pub(super) fn stmts(&mut self, stmts: &[&Stmt]) -> Result<(), FlattenError> {
        let conditions = match stmts {
            [Stmt::Block(_)] => Vec::new(),
            stmts => self.common_conditions(stmts),
        };
        let n_known = self.conditions.len();
        self.conditions.extend(conditions.iter().cloned());
        let body = |e: &mut Self| e.tile(stmts);
        let result = match tree::conjunction(conditions).map(|condition| self.resolve(&condition)) {
            None => body(self),
            Some(condition) => match condition.as_int() {
                Some(0) => Ok(()),
                Some(_) => body(self),
                None => {
                    let condition = self.expr(&condition)?;
                    self.branch(condition, body, |_| Ok(()))
                }
            },
        };
        self.conditions.truncate(n_known);
        result
    }

    /// Emits statements one after the other; those of a tile once for where it lies inside as a whole, and once for where it does not.
    fn tile(&mut self, stmts: &[&Stmt]) -> Result<(), FlattenError> {
        let body = |e: &mut Self| stmts.iter().try_for_each(|s| e.stmt(s));
        let Some(whole) = self.whole_tile(stmts) else { return body(self) };
        let condition = self.expr(&whole)?;
        let inside = |e: &mut Self| e.assuming(&whole, body);
        let at_edge = |e: &mut Self| {
            e.at_edge = true;
            let result = body(e);
            e.at_edge = false;
            result
        };
        self.branch(condition, inside, at_edge)
    }

    /// Conditions that the predicates of all blocks in some statements have in common, over loops that are open already.
    fn common_conditions(&self, stmts: &[&Stmt]) -> Vec<Expr> {
        let mut common: Option<Vec<Expr>> = None;
        let mut visit = |block: &Block| {
            let conditions: Vec<Expr> = block.predicate.iter().flat_map(tree::conjuncts).collect();
            match &mut common {
                None => common = Some(conditions),
                Some(common) => common.retain(|c| conditions.contains(c)),
            }
        };
        let mut varies: Vec<Var> = self.lane.iter().map(|lane| lane.var).collect();
        for stmt in stmts.iter().map(|stmt| std::slice::from_ref(*stmt)) {
            tree::for_each_block(stmt, &mut visit);
            tree::for_each_loop(stmt, &mut |l| varies.push(l.var));
        }
        let is_decided = |c: &Expr| {
            let depends = |e: &Expr| match e.kind() {
                ExprKind::Var(var) => varies.contains(var),
                ExprKind::Load(..) => true,
                _ => false,
            };
            !c.any(&mut |e| depends(e)) && !self.conditions.contains(c)
        };
        common.unwrap_or_default().into_iter().filter(is_decided).collect()
    }

    /// Takes a task's number apart: the iteration of the loop of rounds, and of the loop that threads share.
    pub(super) fn bind_task(
        &mut self,
        task: Value,
        rounds: &Loop,
        shared: &Loop,
    ) -> Result<(), FlattenError> {
        let ty = Type::scalar(DType::I64);
        let per_round = self.expr(&shared.extent)?;
        let round = self.op(ty, Op::Binary(BinaryOp::FloorDiv, task, per_round));
        let index = self.op(ty, Op::Binary(BinaryOp::FloorMod, task, per_round));
        self.bind_scalar(rounds.var, &rounds.extent, round);
        self.bind_scalar(shared.var, &shared.extent, index);
        Ok(())
    }

    /// Emits the iterations of a loop from `first` to `end`, which is not below it, as a loop of the kernel; registers that its body
    /// writes are carried from iteration to iteration.
    pub(super) fn counted_loop(&mut self, l: &Loop, first: &Expr, end: &Expr) -> Result<(), FlattenError> {
        let extent = self.resolve(&(end.clone() - first.clone()));
        match (extent.as_int(), first.as_int()) {
            (Some(0), _) => return Ok(()),
            (Some(1), Some(only)) => {
                self.bindings.insert(l.var, Binding::Constant(only));
                return self.iteration(l);
            }
            _ => {}
        }
        let begin = self.expr(first)?;
        let end = self.expr(end)?;
        let mut stored = FxHashSet::default();
        l.body.iter().for_each(|s| stored_buffers(s, &mut stored));
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
        self.simplifier.bind_range(l.var, first.clone(), extent);
        self.bindings.insert(l.var, Binding::Scalar(var));
        self.iteration(l)?;
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

    fn block(&mut self, block: &Block) -> Result<(), FlattenError> {
        let conditions = block.predicate.iter().flat_map(tree::conjuncts);
        let open = tree::conjunction(conditions.filter(|c| !self.conditions.contains(c)));
        let Some(predicate) = open else { return self.block_body(block) };
        let predicate = self.resolve(&predicate);
        match predicate.as_int() {
            Some(0) => return Ok(()),
            Some(_) => return self.block_body(block),
            None => {}
        }
        match self.lane {
            Some(lane) if predicate.uses(lane.var) => self.partial_vector(block, &predicate, lane),
            _ => {
                let condition = self.expr(&predicate)?;
                self.branch(condition, |e| e.block_body(block), |_| Ok(()))
            }
        }
    }

    /// A block of which only some lanes may run. Where the first and the last lane decide for all, the full
    /// vector runs unmasked behind a branch; the rest runs masked, or lane by lane.
    fn partial_vector(&mut self, block: &Block, predicate: &Expr, lane: Lane) -> Result<(), FlattenError> {
        if !self.is_convex(predicate, lane.var) {
            return self.some_lanes(block, predicate, lane);
        }
        let first = predicate.substitute_var(lane.var, &Expr::int(0));
        let last = predicate.substitute_var(lane.var, &Expr::int(lane.lanes as i64 - 1));
        let all = first.and(last);
        match all.as_int() {
            Some(0) => self.some_lanes(block, predicate, lane),
            Some(_) => self.block_body(block),
            None => {
                let condition = self.expr(&all)?;
                self.branch(condition, |e| e.block_body(block), |e| e.some_lanes(block, predicate, lane))
            }
        }
    }

    fn some_lanes(&mut self, block: &Block, predicate: &Expr, lane: Lane) -> Result<(), FlattenError> {
        if masks(self.func, block, self.options.masked_access) {
            let mask = self.expr(predicate)?;
            let mask = self.widen(mask, lane.lanes);
            self.guards.push(mask);
            let result = self.block_body(block);
            self.guards.pop();
            return result;
        }
        self.lane = None;
        for i in 0..lane.lanes as i64 {
            self.bindings.insert(lane.var, Binding::Constant(i));
            let here = self.resolve(predicate);
            match here.as_int() {
                Some(0) => {}
                Some(_) => self.block_body(block)?,
                None => {
                    let condition = self.expr(&here)?;
                    self.branch(condition, |e| e.block_body(block), |_| Ok(()))?;
                }
            }
        }
        self.bindings.insert(lane.var, Binding::Lane);
        self.lane = Some(lane);
        Ok(())
    }

    /// Whether loads and stores of a buffer's elements can be masked.
    pub(super) fn masks(&self, buffer: Buffer) -> bool {
        is_maskable(self.func, buffer, self.options.masked_access)
    }

    /// Whether the predicate, a conjunction of comparisons linear in the lane, holds for all lanes if it
    /// holds for the first and the last.
    fn is_convex(&mut self, predicate: &Expr, lane: Var) -> bool {
        match predicate.kind() {
            ExprKind::Binary(BinaryOp::And, a, b) => self.is_convex(a, lane) && self.is_convex(b, lane),
            ExprKind::Compare(CompareOp::Ne, ..) => false,
            ExprKind::Compare(_, a, b) if a.dtype() == DType::I64 => {
                let difference = self.atoms.poly(&(a.clone() - b.clone()));
                difference.terms.keys().all(|product| {
                    let uses = product.iter().filter(|&&atom| self.atoms.uses(atom, lane)).count();
                    uses == 0
                        || product
                            .iter()
                            .all(|&a| !self.atoms.uses(a, lane) || self.atoms.expr(a).as_var() == Some(lane))
                            && uses == 1
                })
            }
            _ => !predicate.uses(lane),
        }
    }

    /// `if condition { on_true } else { on_false }` with registers joined behind it.
    pub(super) fn branch(
        &mut self,
        condition: Value,
        on_true: impl FnOnce(&mut Self) -> Result<(), FlattenError>,
        on_false: impl FnOnce(&mut Self) -> Result<(), FlattenError>,
    ) -> Result<(), FlattenError> {
        let before = self.registers.clone();
        self.open(Nesting::Branch);
        on_true(self)?;
        let then_registers = std::mem::replace(&mut self.registers, before.clone());
        let then_body = self.close();
        self.open(Nesting::Branch);
        on_false(self)?;
        let else_registers = std::mem::replace(&mut self.registers, before);
        let else_body = self.close();
        let joins = self.join_registers(then_registers, else_registers)?;
        self.push(Inst::If { condition, then_body, else_body, joins });
        Ok(())
    }

    fn join_registers(&mut self, then: Registers, other: Registers) -> Result<Vec<Join>, FlattenError> {
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
            if a.is_none() || b.is_none() {
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
        let op = if ty.dtype.is_float() { Op::Float(0) } else { Op::Int(0) };
        let scalar = self.op(Type::scalar(ty.dtype), op);
        self.widen(scalar, ty.lanes)
    }

    /// The block's stores where its predicate holds.
    fn block_body(&mut self, block: &Block) -> Result<(), FlattenError> {
        let values: Vec<(Var, Expr)> = block.iters.iter().map(|i| (i.var, self.resolve(&i.value))).collect();
        if !block.init.is_empty() {
            let reduce = block.iters.iter().zip(&values).filter(|(i, _)| i.kind == IterKind::Reduce);
            let first = reduce
                .fold(Expr::bool(true), |all, (_, (_, value))| all.and(value.clone().equals(Expr::int(0))));
            match first.as_int() {
                Some(0) => {}
                Some(_) => self.stores(&block.init, &values)?,
                None => {
                    let condition = self.expr(&first)?;
                    if self.type_of(condition).lanes > 1 {
                        return self.error("a reduction variable depends on a vector lane");
                    }
                    self.branch(condition, |e| e.stores(&block.init, &values), |_| Ok(()))?;
                }
            }
        }
        self.stores(&block.body, &values)
    }

    fn stores(&mut self, stores: &[Store], values: &[(Var, Expr)]) -> Result<(), FlattenError> {
        let bind =
            |e: &Expr| e.substitute(&|var| values.iter().find(|(v, _)| *v == var).map(|(_, x)| x.clone()));
        let reads = |e: &Expr| {
            let is_stored = |buffer: Buffer| stores.iter().any(|store| store.buffer == buffer);
            e.any(&mut |e| matches!(e.kind(), ExprKind::Load(buffer, _) if is_stored(*buffer)))
        };
        let independent = !stores.iter().any(|store| reads(&store.value) || store.indices.iter().any(reads));
        for (n, store) in stores.iter().enumerate() {
            let indices: Vec<Expr> = store.indices.iter().map(|i| self.resolve(&bind(i))).collect();
            let value = bind(&store.value);
            let value = if n > 0 && independent { self.expr_in_common(&value)? } else { self.expr(&value)? };
            let (scalar, vector) = self.combined_guard()?;
            debug_assert!(scalar.is_none(), "scalar predicates are branches");
            if self.func.buffers[store.buffer].scope == Scope::Register {
                self.store_register(store.buffer, &indices, value, vector)?;
            } else {
                self.store_memory(store.buffer, &indices, value, vector)?;
            }
        }
        Ok(())
    }
}

/// Whether a vector of a block of which some lanes are left out stays a vector, given [`FlattenOptions::masked_access`]: all that
/// the block loads and stores can be masked. What is computed lane by lane instead cannot be carried in vector registers.
///
/// [`FlattenOptions::masked_access`]: super::FlattenOptions::masked_access
pub fn masks(func: &Func, block: &Block, masked_access: Option<u32>) -> bool {
    let mut all =
        block.init.iter().chain(&block.body).all(|store| is_maskable(func, store.buffer, masked_access));
    block.for_each_expr(|e| {
        e.walk(&mut |x| {
            if let ExprKind::Load(buffer, _) = x.kind() {
                all &= is_maskable(func, *buffer, masked_access);
            }
        });
    });
    all
}

fn is_maskable(func: &Func, buffer: Buffer, masked_access: Option<u32>) -> bool {
    let data = &func.buffers[buffer];
    data.scope == Scope::Register || masked_access.is_some_and(|least| data.dtype.bytes() as u32 >= least)
}

fn stored_buffers(stmt: &Stmt, out: &mut FxHashSet<Buffer>) {
    match stmt {
        Stmt::Loop(l) => l.body.iter().for_each(|s| stored_buffers(s, out)),
        Stmt::Block(b) => out.extend(b.init.iter().chain(&b.body).map(|s| s.buffer)),
    }
}
