//! Fewer rows: copies of a tile's body for where no more than three quarters of its rows are there, or three quarters of those, down to one.
//!
//! Rows past the end of a padded tile repeat the last row (`pad_einsum`), and nothing is stored of them. So a single row would cost what a whole
//! tile does. How many rows there are is asked once a tile, outside of the loop over its steps, and the steps are done for as few as have them all.
//! [`partial_tiles`](super::partial_tiles) does the same for rows that must not be computed beyond the end.

use rustc_hash::{FxHashMap, FxHashSet};

use super::known::{Known, negated};
use super::nest::{self, Block, Body, If, Loop, LoopKind, Nest, Stmt};
use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Func, Scope};
use crate::schedule::tree;

/// By register buffer, the names of the blocks that load from it.
pub(super) struct Readers<'a> {
    func: &'a Func,
    names: FxHashMap<Buffer, FxHashSet<&'a str>>,
}

/// Rows of a tile: an unrolled loop in the loop over steps.
#[derive(Clone)]
struct Rows {
    var: Var,
    /// How many there are at most.
    n: i64,
    /// Whether there is a row, over `var` and what is known before the tile.
    is_there: Expr,
    sums: Sums,
}

/// What keeps the sums of rows, and which of its dimensions the row is.
type Sums = Vec<(Buffer, usize)>;

impl<'a> Readers<'a> {
    pub(super) fn of(nest: &Nest<'a>) -> Readers<'a> {
        let mut names: FxHashMap<Buffer, FxHashSet<&'a str>> = FxHashMap::default();
        nest::for_each_block(&nest.body, &mut |block| {
            let source = block.source;
            for_each_load(block, &mut |buffer, _| {
                names.entry(buffer).or_default().insert(&source.name);
            });
        });
        Readers { func: nest.func, names }
    }

    fn is_register(&self, buffer: Buffer) -> bool {
        self.func.buffers[buffer].scope == Scope::Register
    }

    /// Statements with tiles some of whose rows may not be there, which are done for as few rows as there are.
    pub(super) fn in_fewer_rows<'n>(&self, known: &mut Known, stmts: Vec<Stmt<'n>>) -> Vec<Stmt<'n>> {
        match self.rows_of(&stmts) {
            Some(rows) => self.less(known, &rows, stmts),
            None => stmts.into_iter().map(|stmt| self.inside(known, stmt)).collect(),
        }
    }

    fn inside<'n>(&self, known: &mut Known, mut stmt: Stmt<'n>) -> Stmt<'n> {
        match &mut stmt {
            // A tile is not inside of a part of one; threads decide together.
            Stmt::Loop(l) if l.kind == LoopKind::Serial => {
                let before = known.enter_loop(l);
                l.body.stmts = self.in_fewer_rows(known, std::mem::take(&mut l.body.stmts));
                known.leave(before);
            }
            Stmt::If(branch) => {
                for body in [&mut branch.then, &mut branch.otherwise] {
                    let before = known.enter(body.fact.as_ref());
                    body.stmts = self.in_fewer_rows(known, std::mem::take(&mut body.stmts));
                    known.leave(before);
                }
            }
            _ => {}
        }
        stmt
    }

    /// The statements of a tile, in branches for fewer and fewer rows.
    fn less<'n>(&self, known: &mut Known, rows: &Rows, stmts: Vec<Stmt<'n>>) -> Vec<Stmt<'n>> {
        let n = rows.n * 3 / 4;
        let is_there = rows.is_there.substitute_var(rows.var, &Expr::int(n));
        if n == 0 || known.simplifier.prove(&is_there) {
            return stmts;
        }
        let condition = known.simplify(&negated(&is_there));
        let always = known.simplifier.prove(&condition);
        let before = known.enter(Some(&condition));
        let mut fewer = None;
        if self.keep_to(known, rows, n, &stmts, &mut Vec::new()) {
            let mut own = stmts.clone();
            shorten(&mut own, rows, n);
            fewer = Some(self.less(known, &Rows { n, ..rows.clone() }, own));
        }
        known.leave(before);
        match fewer {
            None => stmts,
            Some(fewer) if always => fewer,
            Some(fewer) => {
                let then = Body::under(condition.clone(), fewer);
                vec![Stmt::If(If { condition, then, otherwise: Body::new(stmts) })]
            }
        }
    }

    /// The rows of a tile: in a loop over steps, with sums in registers that the tile itself starts and of which those of rows that are not
    /// there are not read.
    fn rows_of(&self, stmts: &[Stmt<'_>]) -> Option<Rows> {
        let mut inside: Vec<Var> = Vec::new();
        nest::for_each_loop(stmts, &mut |l| inside.push(l.var));
        let mut found = None;
        for stmt in opened(stmts) {
            let Stmt::Loop(steps) = stmt else { continue };
            if steps.kind != LoopKind::Serial {
                continue;
            }
            nest::for_each_loop(&steps.body.stmts, &mut |l| {
                found = found.take().or_else(|| Some((l.var, l.end.as_int()?, self.sums_in(l)?)));
            });
        }
        let (var, n, sums) = found?;
        let own = sums.iter().all(|&(sum, _)| starts(stmts, sum) && self.reads_all(stmts, sum));
        let is_there = self.is_read(stmts, &sums, &mut Vec::new(), &|condition: &Expr, row: Var| {
            condition.uses(row) && !inside.iter().any(|&var| var != row && condition.uses(var))
        });
        let (row, is_there) = is_there.filter(|_| own)?;
        Some(Rows { var, n, is_there: is_there.substitute_var(row, &Expr::var(var)), sums })
    }

    /// The sums of a loop over rows, if that is what it goes over.
    fn sums_in(&self, row: &Loop<'_>) -> Option<Sums> {
        row.end.as_int().filter(|&n| n > 1 && row.kind == LoopKind::Unrolled)?;
        let (mut sums, mut fits) = (Sums::new(), true);
        nest::for_each_block(&row.body.stmts, &mut |block| {
            let at = |indices: &[Expr]| {
                indices.iter().position(|index| value(block, index).as_var() == Some(row.var))
            };
            for store in &block.source.body {
                match at(&store.indices).filter(|_| self.is_register(store.buffer)) {
                    Some(dim) => sums.push((store.buffer, dim)),
                    None => fits = false,
                }
            }
            for_each_load(block, &mut |buffer, indices| {
                fits &= !self.is_register(buffer) || at(indices).is_some();
            });
        });
        Some(sums).filter(|sums| fits && !sums.is_empty())
    }

    /// The condition under which a row's sums are read outside of its own steps, of those that `fits` takes, and the variable that the row is
    /// there.
    fn is_read(
        &self,
        stmts: &[Stmt<'_>],
        sums: &Sums,
        conditions: &mut Vec<Expr>,
        fits: &dyn Fn(&Expr, Var) -> bool,
    ) -> Option<(Var, Expr)> {
        stmts.iter().find_map(|stmt| match stmt {
            Stmt::Loop(l) => self.is_read(&l.body.stmts, sums, conditions, fits),
            Stmt::If(branch) => {
                conditions.push(branch.condition.clone());
                let then = self.is_read(&branch.then.stmts, sums, conditions, fits);
                conditions.pop();
                then.or_else(|| self.is_read(&branch.otherwise.stmts, sums, conditions, fits))
            }
            Stmt::Block(block) => {
                let mut row = None;
                for_each_load(block, &mut |buffer, indices| {
                    let dim = sums.iter().find(|(sum, _)| *sum == buffer).map(|(_, dim)| *dim);
                    row = row.or(dim.and_then(|dim| value(block, &indices[dim]).as_var()));
                });
                let row = row?;
                let asked = conditions.iter().chain(&block.predicate).flat_map(tree::conjuncts);
                asked.filter(|c| matches!(c.kind(), ExprKind::Compare(..))).find_map(|condition| {
                    let condition = value(block, &condition);
                    fits(&condition, row).then_some((row, condition))
                })
            }
            _ => None,
        })
    }

    /// Whether all blocks that read some sums are among the statements.
    fn reads_all(&self, stmts: &[Stmt<'_>], sum: Buffer) -> bool {
        let mut here: FxHashSet<&str> = FxHashSet::default();
        nest::for_each_block(stmts, &mut |block| {
            here.insert(&block.source.name);
        });
        self.names.get(&sum).is_none_or(|names| names.iter().all(|name| here.contains(name)))
    }

    /// Whether nothing but a row's own steps reads the sums of rows from the `n`th on, by what is known and the `conditions` around.
    fn keep_to(
        &self,
        known: &Known,
        rows: &Rows,
        n: i64,
        stmts: &[Stmt<'_>],
        conditions: &mut Vec<Expr>,
    ) -> bool {
        stmts.iter().all(|stmt| match stmt {
            Stmt::Loop(l) => l.var == rows.var || self.keep_to(known, rows, n, &l.body.stmts, conditions),
            Stmt::If(branch) => {
                conditions.push(branch.condition.clone());
                let then = self.keep_to(known, rows, n, &branch.then.stmts, conditions);
                conditions.pop();
                then && self.keep_to(known, rows, n, &branch.otherwise.stmts, conditions)
            }
            Stmt::Block(block) => {
                let asked: Vec<&Expr> = conditions.iter().chain(&block.predicate).collect();
                let never = |row: Var, at: i64| {
                    let at = Expr::int(at);
                    let fails = |c: Expr| {
                        let c = c.substitute_var(row, &at);
                        matches!(c.kind(), ExprKind::Compare(..)) && known.simplifier.prove(&negated(&c))
                    };
                    asked.iter().flat_map(|c| tree::conjuncts(c)).any(fails)
                };
                let mut keeps = true;
                for_each_load(block, &mut |buffer, indices| {
                    let Some(&(_, dim)) = rows.sums.iter().find(|(sum, _)| *sum == buffer) else { return };
                    let row = value(block, &indices[dim]).as_var();
                    keeps &= row.is_some_and(|row| (n..rows.n).all(|at| never(row, at)));
                });
                keeps
            }
            Stmt::Masked(_) | Stmt::Stores(_) => false,
            Stmt::Prefetch(_) => true,
            Stmt::Barrier | Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => false,
        })
    }
}

/// Statements, where those of loops of one iteration take the place of these.
fn opened<'s, 'n>(stmts: &'s [Stmt<'n>]) -> Vec<&'s Stmt<'n>> {
    let mut all = Vec::with_capacity(stmts.len());
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) if l.kind == LoopKind::Serial && l.extent().as_int() == Some(1) => {
                all.extend(opened(&l.body.stmts));
            }
            stmt => all.push(stmt),
        }
    }
    all
}

/// Whether a tile starts some sums before its steps.
fn starts(stmts: &[Stmt<'_>], sum: Buffer) -> bool {
    let stmts = opened(stmts);
    let is_before = |stmt: &&&Stmt<'_>| !matches!(stmt, Stmt::Loop(l) if l.kind == LoopKind::Serial);
    let before: Vec<Stmt<'_>> = stmts.iter().take_while(is_before).map(|stmt| (*stmt).clone()).collect();
    let mut found = false;
    nest::for_each_block(&before, &mut |block| {
        found |= block.predicate.is_none() && block.source.body.iter().any(|store| store.buffer == sum);
    });
    found
}

/// An expression of a block over the variables of loops.
fn value(block: &Block<'_>, e: &Expr) -> Expr {
    e.substitute(&|var| block.value_of(var))
}

/// Calls `visit` on the buffer and the indices of every load of a block.
fn for_each_load(block: &Block<'_>, visit: &mut impl FnMut(Buffer, &[Expr])) {
    block.source.for_each_expr(|e| {
        e.walk(&mut |e| {
            if let ExprKind::Load(buffer, indices) = e.kind() {
                visit(*buffer, indices);
            }
        });
    });
}

/// Ends loops over the rows of a tile after the `n`th: those that start sums, make steps, and read sums.
fn shorten(stmts: &mut [Stmt<'_>], rows: &Rows, n: i64) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) if is_over(l, rows) => l.end = Expr::int(n),
            Stmt::Loop(l) => shorten(&mut l.body.stmts, rows, n),
            Stmt::If(branch) => {
                shorten(&mut branch.then.stmts, rows, n);
                shorten(&mut branch.otherwise.stmts, rows, n);
            }
            _ => {}
        }
    }
}

/// Whether each iteration of a loop is about the sums of one row, and about nothing else.
fn is_over(l: &Loop<'_>, rows: &Rows) -> bool {
    let dim_of = |buffer: Buffer| rows.sums.iter().find(|(sum, _)| *sum == buffer).map(|(_, dim)| *dim);
    let mut is_over = l.kind == LoopKind::Unrolled && l.end.as_int() == Some(rows.n);
    let mut has_blocks = false;
    nest::for_each_block(&l.body.stmts, &mut |block| {
        has_blocks = true;
        let is_row = |index: &Expr| value(block, index).as_var() == Some(l.var);
        let mut reads = false;
        for_each_load(block, &mut |buffer, indices| {
            if let Some(dim) = dim_of(buffer) {
                reads = true;
                is_over &= is_row(&indices[dim]);
            }
        });
        for store in &block.source.body {
            is_over &= dim_of(store.buffer).map_or(reads, |dim| is_row(&store.indices[dim]));
        }
    });
    is_over && has_blocks
}
