//! When functions are the same: the digest of a [`Func`] and of a [`Computation`].
//!
//! The identity of a function is its structure. Its name, the names of its variables, buffers and blocks, and the order of
//! its arenas are incidental: variables and buffers are numbered as a walk meets them (sizes, parameters, body), and what
//! it never meets is left out, but for workspaces, which a caller has to provide. Equal expressions are equal however
//! much of them is shared: each different one is written once, and after that by its number, so a digest takes time linear
//! in nodes.
//!
//! Schedules and records of tuning speak of blocks by name, so a [`Computation`] is known by those names too.

use rustc_hash::FxHashMap;
use serde::Serialize;
use tilewright_digest::{Canonical, Writer};

use crate::computation::{Computation, Variant};
use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Block, BufferData, Func, Iter, Loop, Prefetch, Stmt, Store, VarData, VarKind};

/// A [`VarKind`] without what most sizes have none of.
#[derive(Serialize)]
enum Bound {
    Size { min: i64, max: i64 },
    Loop,
    Iter,
}

impl Bound {
    fn of(kind: VarKind) -> Bound {
        match kind {
            VarKind::Size { min, max, typical: _ } => Bound::Size { min, max },
            VarKind::Loop => Bound::Loop,
            VarKind::Iter => Bound::Iter,
        }
    }
}

impl Canonical for Func {
    const KIND: &'static str = "function";

    fn write(&self, writer: &mut Writer) {
        Walk::of(self, writer);
    }
}

impl Canonical for Computation {
    const KIND: &'static str = "computation";

    fn write(&self, writer: &mut Writer) {
        let Computation { func: _, variants, constant_inputs: _, layouts: _ } = self;
        self.write_definition(writer);
        writer.list(variants, |writer, Variant { algorithm, func, prepare }| {
            writer.text(algorithm);
            func.write(writer);
            func.write_blocks(writer);
            writer.list(prepare, |writer, prepare| {
                writer.option(prepare.as_ref(), |writer, func| func.write(writer));
            });
        });
    }
}

impl Computation {
    /// Writes what is computed: all but the variants.
    pub fn write_definition(&self, writer: &mut Writer) {
        let Computation { func, variants: _, constant_inputs, layouts } = self;
        func.write(writer);
        func.write_blocks(writer);
        writer.data(constant_inputs);
        writer.data(layouts);
    }

    /// Writes what the digest leaves out of the functions, but for their names.
    pub fn write_representation(&self, writer: &mut Writer) {
        let Computation { func, variants, constant_inputs: _, layouts: _ } = self;
        func.write_representation(writer);
        for Variant { algorithm: _, func, prepare } in variants {
            func.write_representation(writer);
            prepare.iter().flatten().for_each(|func| func.write_representation(writer));
        }
    }
}

impl Func {
    /// Writes the names of the blocks, in order.
    pub fn write_blocks(&self, writer: &mut Writer) {
        writer.list(self.blocks(), |writer, block| writer.text(&block.name));
    }

    /// Writes the function with its names and the order of its arenas, for those who keep what shows them. The function's own
    /// name is left out.
    pub fn write_representation(&self, writer: &mut Writer) {
        let Walk { vars, buffers, .. } = Walk::of(self, writer);
        self.write_blocks(writer);
        writer.list(&vars.order, |writer, var| writer.int(var.as_u32()));
        writer.list(&self.vars, |writer, (_, VarData { name, kind })| {
            writer.text(name);
            writer.data(kind);
        });
        writer.list(&buffers.order, |writer, buffer| writer.int(buffer.as_u32()));
        writer.list(&self.buffers, |writer, (_, BufferData { name, dtype, shape, scope, row_align })| {
            writer.text(name);
            writer.data(&(dtype, shape, scope));
            if let Some(align) = row_align {
                writer.data(align);
            }
        });
    }
}

/// Numbers in the order of first use.
struct Numbers<T> {
    known: FxHashMap<T, u32>,
    order: Vec<T>,
}

impl<T: Clone + Eq + std::hash::Hash> Numbers<T> {
    fn new() -> Numbers<T> {
        Numbers { known: FxHashMap::default(), order: Vec::new() }
    }

    /// The number, and whether it is new.
    fn of(&mut self, item: &T) -> (u32, bool) {
        if let Some(&number) = self.known.get(item) {
            return (number, false);
        }
        let number = self.order.len() as u32;
        self.known.insert(item.clone(), number);
        self.order.push(item.clone());
        (number, true)
    }
}

/// A function being written.
struct Walk<'a, 'w> {
    func: &'a Func,
    writer: &'w mut Writer,
    vars: Numbers<Var>,
    buffers: Numbers<Buffer>,
    exprs: Numbers<Expr>,
}

impl<'a, 'w> Walk<'a, 'w> {
    /// Writes all of a function.
    fn of(func: &'a Func, writer: &'w mut Writer) -> Walk<'a, 'w> {
        let mut walk =
            Walk { func, writer, vars: Numbers::new(), buffers: Numbers::new(), exprs: Numbers::new() };
        let Func { name: _, vars: _, buffers: _, params, n_inputs, sizes, body } = func;
        walk.group(|walk| sizes.iter().for_each(|&size| walk.var(size)));
        walk.writer.size(*n_inputs);
        walk.group(|walk| params.iter().for_each(|&param| walk.buffer(param)));
        walk.stmts(body);
        // A workspace is provided to those who never use it too.
        let idle = func.workspaces().filter(|buffer| !walk.buffers.known.contains_key(buffer));
        let idle: Vec<Buffer> = idle.collect();
        walk.group(|walk| idle.iter().for_each(|&buffer| walk.buffer(buffer)));
        walk
    }

    fn group(&mut self, write: impl FnOnce(&mut Self)) {
        self.writer.open();
        write(self);
        self.writer.close();
    }

    fn variant(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.group(|walk| {
            walk.writer.text(name);
            write(walk);
        });
    }

    /// A variable: its number, and what binds it where it is met first.
    fn var(&mut self, var: Var) {
        let (number, is_new) = self.vars.of(&var);
        self.writer.int(number);
        if is_new {
            let kind = self.func.vars.get(var).map(|VarData { name: _, kind }| kind);
            self.writer.option(kind, |writer, kind| writer.data(&Bound::of(*kind)));
            if let Some(typical) = self.func.typical(var) {
                self.writer.int(typical);
            }
        }
    }

    /// A buffer: its number, and what it is where it is met first.
    fn buffer(&mut self, buffer: Buffer) {
        let (number, is_new) = self.buffers.of(&buffer);
        self.writer.int(number);
        if is_new && let Some(data) = self.func.buffers.get(buffer) {
            let BufferData { name: _, dtype, shape, scope, row_align } = data;
            self.writer.data(&(dtype, scope));
            if let Some(align) = row_align {
                self.writer.data(align);
            }
            self.exprs(shape);
        }
    }

    fn stmts(&mut self, stmts: &[Stmt]) {
        self.group(|walk| {
            for stmt in stmts {
                match stmt {
                    Stmt::Loop(l) => walk.variant("loop", |walk| walk.loop_(l)),
                    Stmt::Block(block) => walk.variant("block", |walk| walk.block(block)),
                }
            }
        });
    }

    fn loop_(&mut self, l: &Loop) {
        let Loop { var, extent, kind, prefetches, stages, body } = l;
        self.var(*var);
        self.expr(extent);
        self.writer.data(kind);
        self.group(|walk| {
            for Prefetch { buffer, element, condition } in prefetches {
                walk.buffer(*buffer);
                walk.expr(element);
                if let Some(condition) = condition {
                    walk.variant("where", |walk| walk.expr(condition));
                }
            }
        });
        if *stages != 1 {
            self.variant("pipeline", |walk| walk.writer.data(stages));
        }
        self.stmts(body);
    }

    fn block(&mut self, block: &Block) {
        let Block { name: _, iters, predicate, init, body } = block;
        self.group(|walk| {
            for Iter { var, extent, kind, value } in iters {
                walk.var(*var);
                walk.expr(extent);
                walk.writer.data(kind);
                walk.expr(value);
            }
        });
        match predicate {
            Some(predicate) => self.expr(predicate),
            None => self.writer.nothing(),
        }
        self.stores(init);
        self.stores(body);
    }

    fn stores(&mut self, stores: &[Store]) {
        self.group(|walk| {
            for Store { buffer, indices, value } in stores {
                walk.buffer(*buffer);
                walk.exprs(indices);
                walk.expr(value);
            }
        });
    }

    fn exprs(&mut self, exprs: &[Expr]) {
        self.group(|walk| exprs.iter().for_each(|e| walk.expr(e)));
    }

    /// An expression: its number where an equal one has been written.
    fn expr(&mut self, e: &Expr) {
        let (number, is_new) = self.exprs.of(e);
        if !is_new {
            self.writer.int(number);
            return;
        }
        self.writer.open();
        self.writer.data(&e.dtype());
        match e.kind() {
            ExprKind::Int(value) => {
                self.writer.text("int");
                self.writer.int(*value);
            }
            ExprKind::Float(bits) => {
                self.writer.text("float");
                self.writer.int(*bits);
            }
            ExprKind::Var(var) => {
                self.writer.text("var");
                self.var(*var);
            }
            ExprKind::Unary(op, a) => self.operation(op.name(), [a]),
            ExprKind::Binary(op, a, b) => self.operation(op.name(), [a, b]),
            ExprKind::Compare(op, a, b) => self.operation(op.symbol(), [a, b]),
            ExprKind::Select(a, b, c) => self.operation("select", [a, b, c]),
            ExprKind::Cast(a) => self.operation("cast", [a]),
            ExprKind::Bitcast(a) => self.operation("bitcast", [a]),
            ExprKind::Fma(a, b, c) => self.operation("fma", [a, b, c]),
            ExprKind::Load(buffer, indices) => {
                self.writer.text("load");
                self.buffer(*buffer);
                self.exprs(indices);
            }
        }
        self.writer.close();
    }

    fn operation<const N: usize>(&mut self, name: &str, operands: [&Expr; N]) {
        self.writer.text(name);
        operands.into_iter().for_each(|operand| self.expr(operand));
    }
}
