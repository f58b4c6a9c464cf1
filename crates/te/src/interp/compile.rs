//! Functions to bytecode.
//!
//! Every expression is computed once, in the outermost loop that binds all it depends on; loads stay in
//! their block, and those of what the block writes are done again after each of its stores. Values that do not depend on the lane variable are computed for one lane and splatted where
//! a lane operation needs them.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_dtype::DType;

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, UnaryOp, Var};
use crate::func::{Block, Func, IterKind, Loop, LoopKind, Scope, Stmt, Store};
use crate::math;

use super::code::{Access, BlockCode, Class, Fold, Index, Inst, InterpOp, Node, Reg, Unit};
use super::lanes::{Chosen, FoldParts, affine_in, choose_lanes, fold_parts, substitute_iters};
use super::watch::{Together, WatchedLoop};
use super::{InterpError, Mode};

/// A register with what is known of it.
#[derive(Clone, Copy)]
struct Val {
    class: Class,
    reg: Reg,
    lanes: bool,
    level: usize,
}

/// Code and known values of one loop level (or of a block and its parts).
#[derive(Default)]
struct Frame {
    code: Vec<Inst>,
    pure: FxHashMap<Expr, Val>,
    /// What loads from buffers that the block does not write.
    loading: FxHashMap<(Expr, Option<Reg>), Val>,
    /// What loads from those that it does, until its next store.
    changing: FxHashMap<(Expr, Option<Reg>), Val>,
    splats: FxHashMap<(Class, Reg), Val>,
}

impl Frame {
    /// The values known of what `loads`.
    fn known(&mut self, loads: Loads) -> &mut FxHashMap<(Expr, Option<Reg>), Val> {
        if loads == Loads::Changing { &mut self.changing } else { &mut self.loading }
    }
}

/// What an expression loads from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Loads {
    Nothing,
    /// Buffers that the block does not write.
    Kept,
    /// One that it does, among others.
    Changing,
}

struct Compiler<'f> {
    func: &'f Func,
    mode: Mode,
    block_names: &'f mut Vec<String>,
    frames: Vec<Frame>,
    vars: FxHashMap<Var, Val>,
    lane: Option<Var>,
    chosen: Chosen,
    /// Whether the lane loop's block folds.
    folding: bool,
    mask: Option<Val>,
    registers: [Vec<bool>; 3],
    /// The buffers that the block writes.
    written: FxHashSet<Buffer>,
    loads_inside: FxHashMap<Expr, Loads>,
    uses: FxHashMap<Buffer, usize>,
}

/// Compiles every top-level statement. What is to be `watched` has no lanes.
pub(super) fn compile(
    func: &Func,
    mode: Mode,
    watched: bool,
    names: &mut Vec<String>,
) -> Result<Vec<Unit>, InterpError> {
    let uses = count_uses(&func.body);
    let mut units = Vec::new();
    for stmt in &func.body {
        let mut c = Compiler {
            func,
            mode,
            block_names: names,
            frames: vec![Frame::default()],
            vars: FxHashMap::default(),
            lane: None,
            chosen: if watched { Chosen::default() } else { choose_lanes(stmt) },
            folding: false,
            mask: None,
            registers: Default::default(),
            written: FxHashSet::default(),
            loads_inside: FxHashMap::default(),
            uses: uses.clone(),
        };
        let mut sizes = Vec::new();
        for &size in &func.sizes {
            let reg = c.register(Class::Int, false);
            sizes.push(reg);
            c.vars.insert(size, Val { class: Class::Int, reg, lanes: false, level: 0 });
        }
        let body = vec![c.stmt(stmt)?];
        let prologue = c.pop();
        units.push(Unit { prologue, body, registers: c.registers, sizes });
    }
    Ok(units)
}

/// How often each buffer occurs in the statements.
fn count_uses(stmts: &[Stmt]) -> FxHashMap<Buffer, usize> {
    fn count(e: &Expr, seen: &mut FxHashSet<Expr>, into: &mut FxHashMap<Buffer, usize>) {
        if !seen.insert(e.clone()) {
            return;
        }
        if let ExprKind::Load(buffer, _) = e.kind() {
            *into.entry(*buffer).or_insert(0) += 1;
        }
        e.for_each_operand(|operand| count(operand, seen, into));
    }
    fn visit(stmts: &[Stmt], into: &mut FxHashMap<Buffer, usize>) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => visit(&l.body, into),
                Stmt::Block(block) => {
                    let mut seen = FxHashSet::default();
                    block.for_each_expr(|e| count(e, &mut seen, into));
                    for store in block.init.iter().chain(&block.body) {
                        *into.entry(store.buffer).or_insert(0) += 1;
                    }
                }
            }
        }
    }
    let mut into = FxHashMap::default();
    visit(stmts, &mut into);
    into
}

impl Compiler<'_> {
    fn malformed(&self, what: String) -> InterpError {
        InterpError::Malformed { func: self.func.name.clone(), what }
    }

    fn class(&self, dtype: DType) -> Class {
        match dtype {
            DType::F64 => Class::Double,
            _ if !dtype.is_float() => Class::Int,
            _ if self.mode == Mode::Double => Class::Double,
            _ => Class::Single,
        }
    }

    fn register(&mut self, class: Class, lanes: bool) -> Reg {
        let file = &mut self.registers[class as usize];
        file.push(lanes);
        (file.len() - 1) as Reg
    }

    fn level(&self) -> usize {
        self.frames.len() - 1
    }

    fn pop(&mut self) -> Vec<Inst> {
        self.frames.pop().map(|frame| frame.code).unwrap_or_default()
    }

    // Statements.

    fn stmt(&mut self, stmt: &Stmt) -> Result<Node, InterpError> {
        match stmt {
            Stmt::Loop(l) => self.nest(l),
            Stmt::Block(block) => self.block(block),
        }
    }

    fn nest(&mut self, l: &Loop) -> Result<Node, InterpError> {
        let extent = self.expr(&l.extent)?;
        if extent.lanes || extent.level == self.frames.len() {
            return Err(self.malformed(format!("extent of loop {}", self.func.vars[l.var].name)));
        }
        let lanes = self.lane.is_none() && self.chosen.lanes.contains(&l.var);
        if lanes {
            self.lane = Some(l.var);
            self.folding = self.chosen.folds.contains(&l.var);
        }
        self.frames.push(Frame::default());
        let var = self.register(Class::Int, lanes);
        self.vars.insert(l.var, Val { class: Class::Int, reg: var, lanes, level: self.level() });
        let body = l.body.iter().map(|s| self.stmt(s)).collect::<Result<Vec<_>, _>>()?;
        let prologue = self.pop();
        Ok(if lanes {
            self.lane = None;
            self.folding = false;
            Node::Lanes { var, extent: extent.reg, prologue, body }
        } else {
            let fresh = self.private_buffers(l);
            let together = match l.kind {
                LoopKind::Serial | LoopKind::Unrolled => None,
                LoopKind::Vectorized => Some(Together::Lanes),
                LoopKind::Parallel => Some(Together::Tasks),
                LoopKind::Thread(level) => Some(Together::Threads(level)),
            };
            let private = fresh.clone();
            let watched =
                together.map(|together| WatchedLoop { together, var: l.var.as_u32() as usize, private });
            Node::Loop { var, extent: extent.reg, fresh, watched, prologue, body }
        })
    }

    /// Buffers of a task's own: those that occur inside a loop of tasks or threads only.
    fn private_buffers(&self, l: &Loop) -> Vec<usize> {
        match l.kind {
            LoopKind::Serial | LoopKind::Vectorized | LoopKind::Unrolled => return Vec::new(),
            LoopKind::Parallel | LoopKind::Thread(_) => {}
        }
        // Threads have nothing to themselves of what they share.
        let is_own = |scope: Scope| match scope {
            Scope::Global => false,
            Scope::Shared => l.kind == LoopKind::Parallel,
            Scope::Stack | Scope::Register => true,
        };
        let inside = count_uses(&l.body);
        let private = |&(buffer, count): &(&Buffer, &usize)| {
            is_own(self.func.buffers[*buffer].scope) && self.uses[buffer] == *count
        };
        let mut buffers: Vec<usize> =
            inside.iter().filter(private).map(|(buffer, _)| buffer.as_u32() as usize).collect();
        buffers.sort_unstable();
        buffers
    }

    fn block(&mut self, block: &Block) -> Result<Node, InterpError> {
        self.block_names.push(block.name.clone());
        let name = self.block_names.len() - 1;
        self.written = block.init.iter().chain(&block.body).map(|store| store.buffer).collect();
        self.loads_inside.clear();
        self.frames.push(Frame::default());
        let mut guard = None;
        if let Some(predicate) = &block.predicate {
            let value = self.expr(predicate)?;
            if value.lanes {
                self.mask = Some(value);
            } else {
                guard = Some(value.reg);
            }
        }
        let mut init = None;
        let mut first_step = None;
        if !block.init.is_empty() {
            let zero = |e: &Expr| e.clone().equals(Expr::int(0));
            let reductions = block.iters.iter().filter(|i| i.kind == IterKind::Reduce);
            let first = reductions.map(|i| zero(&i.value)).fold(Expr::bool(true), Expr::and);
            let due = self.expr(&first)?;
            // Of a fold only the first lane can be the reduction's first step: the machine looks at that one.
            if due.lanes && !self.folding {
                first_step = Some(due);
            } else {
                self.frames.push(Frame::default());
                self.stores(block, &block.init)?;
                init = Some((due.reg, self.pop()));
            }
        }
        self.frames.push(Frame::default());
        if let Some(due) = first_step {
            let outer = self.mask;
            self.mask = Some(self.both(outer, due));
            self.stores(block, &block.init)?;
            self.mask = outer;
        }
        if self.folding {
            self.folds(block)?;
        } else {
            self.stores(block, &block.body)?;
        }
        let body = self.pop();
        self.mask = None;
        let prologue = self.pop();
        Ok(Node::Block(Box::new(BlockCode { name, prologue, guard, init, body })))
    }

    fn stores(&mut self, block: &Block, stores: &[Store]) -> Result<(), InterpError> {
        for store in stores {
            let value = self.expr(&substitute_iters(block, &store.value))?;
            let indices: Vec<Expr> = store.indices.iter().map(|i| substitute_iters(block, i)).collect();
            let data = &self.func.buffers[store.buffer];
            if data.dtype != store.value.dtype() || data.shape.len() != indices.len() {
                return Err(self.malformed(format!("store to {} in block {}", data.name, block.name)));
            }
            if self.func.is_input(store.buffer) {
                return Err(self.malformed(format!("store to the input {}", data.name)));
            }
            let lanes = self.lane.is_some();
            let value = if lanes { self.splat(value) } else { value };
            let access = self.access(store.buffer, &indices)?;
            let op = InterpOp::Store(value.class, Box::new(access), value.reg);
            let level = self.level();
            self.frames[level].code.push(Inst { dst: 0, lanes, op });
            self.frames[level].changing.clear();
        }
        Ok(())
    }

    fn folds(&mut self, block: &Block) -> Result<(), InterpError> {
        for store in &block.body {
            let Some(FoldParts { step, values }) = fold_parts(store) else {
                return Err(self.malformed(format!("block {} is no fold", block.name)));
            };
            let [a, b] = values.map(|value| substitute_iters(block, &value));
            let (a, b) = (self.expr(&a)?, self.expr(&b)?);
            let values = [a, b].map(|value| self.splat(value).reg);
            let indices: Vec<Expr> = store.indices.iter().map(|i| substitute_iters(block, i)).collect();
            let access = self.access(store.buffer, &indices)?;
            let op = InterpOp::Fold(Box::new(Fold { class: a.class, access, step, values }));
            let level = self.level();
            self.frames[level].code.push(Inst { dst: 0, lanes: true, op });
        }
        Ok(())
    }

    // Values.

    /// The value in every lane.
    fn splat(&mut self, value: Val) -> Val {
        if value.lanes {
            return value;
        }
        if let Some(&known) = self.frames[value.level].splats.get(&(value.class, value.reg)) {
            return known;
        }
        let reg = self.register(value.class, true);
        let splat = Val { reg, lanes: true, ..value };
        let frame = &mut self.frames[value.level];
        frame.code.push(Inst { dst: reg, lanes: true, op: InterpOp::Splat(value.class, value.reg) });
        frame.splats.insert((value.class, value.reg), splat);
        splat
    }

    /// Emits an operation of operands made equal in lanes, in the outermost frame that has them all.
    fn emit<const N: usize>(
        &mut self,
        class: Class,
        operands: [Val; N],
        op: impl FnOnce([Reg; N]) -> InterpOp,
    ) -> Val {
        let lanes = operands.iter().any(|v| v.lanes);
        let operands = if lanes { operands.map(|v| self.splat(v)) } else { operands };
        let level = operands.iter().map(|v| v.level).max().unwrap_or(0);
        let reg = self.register(class, lanes);
        self.frames[level].code.push(Inst { dst: reg, lanes, op: op(operands.map(|v| v.reg)) });
        Val { class, reg, lanes, level }
    }

    fn both(&mut self, a: Option<Val>, b: Val) -> Val {
        match a {
            None => b,
            Some(a) => {
                self.emit(Class::Int, [a, b], |[a, b]| InterpOp::IntBinary(BinaryOp::And, false, a, b))
            }
        }
    }

    fn loads(&mut self, e: &Expr) -> Loads {
        if let Some(&known) = self.loads_inside.get(e) {
            return known;
        }
        let mut found = match e.kind() {
            ExprKind::Load(buffer, _) if self.written.contains(buffer) => Loads::Changing,
            ExprKind::Load(..) => Loads::Kept,
            _ => Loads::Nothing,
        };
        e.for_each_operand(|operand| found = self.loads(operand).max(found));
        self.loads_inside.insert(e.clone(), found);
        found
    }

    fn expr(&mut self, e: &Expr) -> Result<Val, InterpError> {
        let loads = self.loads(e);
        if loads == Loads::Nothing {
            if let Some(&v) = self.frames.iter().rev().find_map(|frame| frame.pure.get(e)) {
                return Ok(v);
            }
            let value = self.node(e)?;
            self.frames[value.level].pure.insert(e.clone(), value);
            return Ok(value);
        }
        let mask = self.mask.map(|m| m.reg);
        let level = self.level();
        let known = self.frames[level].known(loads);
        if let Some(&v) = known.get(&(e.clone(), None)).or_else(|| known.get(&(e.clone(), mask))) {
            return Ok(v);
        }
        let value = self.node(e)?;
        self.frames[level].known(loads).insert((e.clone(), mask), value);
        Ok(value)
    }

    fn node(&mut self, e: &Expr) -> Result<Val, InterpError> {
        let dtype = e.dtype();
        if dtype == DType::String {
            return Err(self.malformed("a string expression".to_string()));
        }
        let class = self.class(dtype);
        Ok(match e.kind() {
            ExprKind::Int(value) => self.emit(Class::Int, [], |[]| InterpOp::IntConst(*value)),
            ExprKind::Float(bits) => {
                self.emit(class, [], |[]| InterpOp::FloatConst(class, f64::from_bits(*bits)))
            }
            ExprKind::Var(var) => match self.vars.get(var) {
                Some(&value) => value,
                None => {
                    let name = self.func.vars.get(*var).map_or("?", |data| data.name.as_str());
                    return Err(self.malformed(format!("variable {name} is used outside of its loop")));
                }
            },
            ExprKind::Unary(op, a) => self.unary(*op, a, dtype)?,
            ExprKind::Binary(op, a, b) => self.binary(*op, a, b, dtype)?,
            ExprKind::Compare(op, a, b) => {
                let (x, y) = (self.expr(a)?, self.expr(b)?);
                let unsigned = a.dtype() == DType::U64;
                self.emit(Class::Int, [x, y], |[a, b]| match x.class {
                    Class::Int => InterpOp::IntCompare(*op, unsigned, a, b),
                    float => InterpOp::FloatCompare(float, *op, a, b),
                })
            }
            ExprKind::Select(c, a, b) => {
                let c = self.expr(c)?;
                let x = self.under(c, a)?;
                let y = if self.loads(b) != Loads::Nothing {
                    let not =
                        self.emit(Class::Int, [c], |[c]| InterpOp::IntUnary(UnaryOp::Not, DType::Bool, c));
                    self.under(not, b)?
                } else {
                    self.expr(b)?
                };
                self.emit(class, [c, x, y], |[c, x, y]| InterpOp::Select(class, c, x, y))
            }
            ExprKind::Cast(a) => self.cast(a, dtype)?,
            ExprKind::Bitcast(a) => {
                let from = a.dtype();
                let mut value = self.expr(a)?;
                if value.class != Class::Int {
                    let float = value.class;
                    value = self.emit(Class::Int, [value], |[x]| InterpOp::ToBits(float, from, x));
                }
                if class == Class::Int {
                    self.wrap(value, dtype)
                } else {
                    self.emit(class, [value], |[x]| InterpOp::FromBits(class, dtype, x))
                }
            }
            ExprKind::Fma(a, b, c) => {
                let operands = [self.expr(a)?, self.expr(b)?, self.expr(c)?];
                let value = self.emit(class, operands, |[a, b, c]| InterpOp::Fma(class, a, b, c));
                self.round(value, dtype)
            }
            ExprKind::Load(buffer, indices) => {
                let data = &self.func.buffers[*buffer];
                if data.dtype != dtype || data.shape.len() != indices.len() {
                    return Err(self.malformed(format!("load of {}", data.name)));
                }
                let access = self.access(*buffer, indices)?;
                let varies = |i: &Index| !matches!(i, Index::Affine { step: 0, .. });
                let lanes = access.indices.iter().any(varies) || access.mask.is_some_and(|(_, lanes)| lanes);
                let reg = self.register(class, lanes);
                let level = self.level();
                self.frames[level].code.push(Inst {
                    dst: reg,
                    lanes,
                    op: InterpOp::Load(class, Box::new(access)),
                });
                Val { class, reg, lanes, level }
            }
        })
    }

    /// `e` with loads restricted to the lanes in which `condition` holds.
    fn under(&mut self, condition: Val, e: &Expr) -> Result<Val, InterpError> {
        if self.loads(e) == Loads::Nothing {
            return self.expr(e);
        }
        let outer = self.mask;
        self.mask = Some(self.both(outer, condition));
        let value = self.expr(e);
        self.mask = outer;
        value
    }

    fn access(&mut self, buffer: Buffer, indices: &[Expr]) -> Result<Access, InterpError> {
        let mut out = Vec::with_capacity(indices.len());
        for index in indices {
            let affine = match self.lane {
                Some(lane) => affine_in(index, lane),
                None => Some((0, index.clone())),
            };
            let affine = match affine {
                Some((step, rest)) => Some((step, self.expr(&rest)?)).filter(|(_, rest)| !rest.lanes),
                None => None,
            };
            out.push(match affine {
                Some((step, rest)) => Index::Affine { rest: rest.reg, step },
                None => {
                    let value = self.expr(index)?;
                    Index::Lanes(self.splat(value).reg)
                }
            });
        }
        let mask = self.mask.map(|m| (m.reg, m.lanes));
        Ok(Access { buffer: buffer.as_u32() as usize, indices: out, mask })
    }

    /// Wraps an integer to its type.
    fn wrap(&mut self, value: Val, dtype: DType) -> Val {
        match dtype {
            DType::I64 | DType::U64 => value,
            _ => self.emit(Class::Int, [value], |[x]| InterpOp::Wrap(dtype, x)),
        }
    }

    /// Rounds the result of an operation to its type, where its register has more precision.
    fn round(&mut self, value: Val, dtype: DType) -> Val {
        let class = value.class;
        match dtype {
            DType::F32 | DType::F64 => value,
            _ if self.mode == Mode::Double && dtype.bytes() > 1 => value,
            _ => self.emit(class, [value], |[x]| InterpOp::Round(class, dtype, x)),
        }
    }

    fn unary(&mut self, op: UnaryOp, a: &Expr, dtype: DType) -> Result<Val, InterpError> {
        if op.is_intrinsic() && self.mode == Mode::Exact {
            return self.expr(&math::expand_unary(op, a.clone()));
        }
        let x = self.expr(a)?;
        if x.class == Class::Int {
            if !matches!(op, UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not) {
                return Err(self.malformed(format!("{} of {}", op.name(), a.dtype())));
            }
            let value = self.emit(Class::Int, [x], |[x]| InterpOp::IntUnary(op, dtype, x));
            return Ok(self.wrap(value, dtype));
        }
        let class = x.class;
        if op == UnaryOp::Not {
            return Err(self.malformed(format!("not of {}", a.dtype())));
        }
        if op == UnaryOp::IsNan {
            return Ok(self.emit(Class::Int, [x], |[x]| InterpOp::IsNan(class, x)));
        }
        let value = self.emit(class, [x], |[x]| InterpOp::FloatUnary(class, op, x));
        Ok(self.round(value, dtype))
    }

    fn binary(&mut self, op: BinaryOp, a: &Expr, b: &Expr, dtype: DType) -> Result<Val, InterpError> {
        if op.is_intrinsic() && self.mode == Mode::Exact {
            return self.expr(&math::expand_binary(op, a.clone(), b.clone()));
        }
        let (x, y) = (self.expr(a)?, self.expr(b)?);
        let class = x.class;
        use BinaryOp::*;
        let defined = match op {
            Add | Sub | Mul | Div | Min | Max => true,
            Rem | FloorDiv | FloorMod | And | Or | Xor | Shl | Shr => class == Class::Int,
            Pow | Atan2 | Fmod => class != Class::Int,
        };
        if !defined {
            return Err(self.malformed(format!("{} of {dtype}", op.name())));
        }
        if class != Class::Int {
            let value = self.emit(class, [x, y], |[x, y]| InterpOp::FloatBinary(class, op, x, y));
            return Ok(self.round(value, dtype));
        }
        let unsigned = dtype == DType::U64;
        let value = self.emit(Class::Int, [x, y], |[x, y]| InterpOp::IntBinary(op, unsigned, x, y));
        Ok(match op {
            Rem | Min | Max | And | Or | Xor | Shr => value,
            _ => self.wrap(value, dtype),
        })
    }

    fn cast(&mut self, a: &Expr, dtype: DType) -> Result<Val, InterpError> {
        let from = a.dtype();
        let x = self.expr(a)?;
        let class = self.class(dtype);
        Ok(match (x.class, class) {
            (Class::Int, Class::Int) => self.wrap(x, dtype),
            (Class::Int, _) => {
                let value = self.emit(class, [x], |[x]| InterpOp::IntToFloat(class, from == DType::U64, x));
                self.round(value, dtype)
            }
            (float, Class::Int) => self.emit(Class::Int, [x], |[x]| InterpOp::FloatToInt(float, dtype, x)),
            (Class::Single, Class::Double) => self.emit(class, [x], |[x]| InterpOp::SingleToDouble(x)),
            (Class::Double, Class::Single) => self.emit(class, [x], |[x]| InterpOp::DoubleToSingle(dtype, x)),
            (_, _) => self.round(x, dtype),
        })
    }
}
