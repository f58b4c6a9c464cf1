//! Regions of buffers: which elements the blocks of a subtree access in one iteration of the loops around.

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func, Iter, IterKind, Stmt, VarKind};
use crate::schedule::tree;
use crate::simplify::Simplifier;

/// A range of one dimension: first index and number of indices, over sizes and loops outside the subtree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    /// First index.
    pub(crate) min: Expr,
    /// Number of indices.
    pub(crate) extent: Expr,
}

impl Span {
    /// The index after the last.
    pub(crate) fn end(&self) -> Expr {
        self.min.clone() + self.extent.clone()
    }
}

/// Which accesses count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accesses {
    /// Loads.
    Reads,
    /// Stores.
    Writes,
    /// Loads and stores.
    All,
}

/// The least box that holds all elements of `buffer` accessed in `stmts`; `None` where there are no accesses.
///
/// `simplifier` knows the loops around `stmts` and inside. Where an index is not understood, or depends on data, the whole
/// dimension is taken. Extents are over sizes alone: one that varies with a loop is replaced by its maximum.
pub(crate) fn region_of(
    func: &Func,
    simplifier: &Simplifier,
    stmts: &[Stmt],
    buffer: Buffer,
    accesses: Accesses,
) -> Option<Vec<Span>> {
    let mut inner: Vec<Var> = Vec::new();
    tree::for_each_loop(stmts, &mut |l| inner.push(l.var));
    let mut ends: Option<Vec<Option<(Expr, Expr)>>> = None;
    tree::for_each_block(stmts, &mut |block| {
        for indices in accessed(block, buffer, accesses) {
            let here = indices.iter().map(|index| {
                let value = bind(block, index);
                if depends_on_data(&value) {
                    return None;
                }
                let inside = |v| inner.contains(&v);
                Some((
                    simplifier.extreme(&value, false, &inside)?,
                    simplifier.extreme(&value, true, &inside)?,
                ))
            });
            ends = Some(match ends.take() {
                None => here.collect(),
                Some(known) => known.into_iter().zip(here).map(|(a, b)| hull(simplifier, a?, b?)).collect(),
            });
        }
    });
    let shape = &func.buffers[buffer].shape;
    Some(ends?.into_iter().zip(shape).map(|(ends, whole)| span(simplifier, ends, whole)).collect())
}

/// Whether an expression loads.
pub(crate) fn depends_on_data(e: &Expr) -> bool {
    e.any(&mut |x| matches!(x.kind(), ExprKind::Load(..)))
}

/// One of the loops that a variable of a block counts in, outermost first: `i = (i0 * E1 + i1) * E2 + i2`.
#[derive(Clone, Debug)]
pub struct Digit {
    /// Iterations.
    pub extent: Expr,
    /// Whether all of them are together, rather than one at a time.
    pub inside: bool,
}

/// Extents of the least box of `buffer` that a block reads at a time, when each of its variables is taken apart into digits, which
/// [`compute_at`](crate::schedule::ComputeAt) would find in a schedule with such loops. Nothing where it does not read the buffer.
pub fn footprint(func: &Func, block: &Block, buffer: Buffer, digits: &[Vec<Digit>]) -> Option<Vec<Expr>> {
    let mut simplifier = Simplifier::for_sizes(func);
    let mut inside: Vec<Var> = Vec::new();
    let mut next = func.vars.len() as u32;
    let mut values: Vec<(Var, Expr)> = Vec::new();
    for (iter, digits) in block.iters.iter().zip(digits) {
        let mut value = Expr::int(0);
        for digit in digits {
            let var = Var::from_u32(next);
            next += 1;
            simplifier.bind_range(var, 0, digit.extent.clone());
            inside.extend(digit.inside.then_some(var));
            value = value * digit.extent.clone() + Expr::var(var);
        }
        values.push((iter.var, simplifier.simplify(&value)));
    }
    let of = |var: Var| values.iter().find(|(iter, _)| *iter == var).map(|(_, value)| value.clone());
    let mut ends: Option<Vec<Option<(Expr, Expr)>>> = None;
    for indices in accessed(block, buffer, Accesses::Reads) {
        let here = indices.iter().map(|index| {
            let value = index.substitute(&of);
            let is_inside = |v| inside.contains(&v);
            Some((
                simplifier.extreme(&value, false, &is_inside)?,
                simplifier.extreme(&value, true, &is_inside)?,
            ))
        });
        ends = Some(match ends.take() {
            None => here.collect(),
            Some(known) => known.into_iter().zip(here).map(|(a, b)| hull(&simplifier, a?, b?)).collect(),
        });
    }
    let shape = &func.buffers[buffer].shape;
    Some(ends?.into_iter().zip(shape).map(|(ends, whole)| span(&simplifier, ends, whole).extent).collect())
}

fn hull(simplifier: &Simplifier, a: (Expr, Expr), b: (Expr, Expr)) -> Option<(Expr, Expr)> {
    Some((simplifier.simplify(&a.0.min(b.0)), simplifier.simplify(&a.1.max(b.1))))
}

fn span(simplifier: &Simplifier, ends: Option<(Expr, Expr)>, whole: &Expr) -> Span {
    let all = || Span { min: Expr::int(0), extent: whole.clone() };
    let Some((min, max)) = ends else { return all() };
    let mut extent = simplifier.simplify(&(max - min.clone() + 1));
    if extent.any(&mut |e| e.as_var().is_some_and(|v| simplifier.is_loop(v))) {
        match simplifier.upper_bound(&extent) {
            Some(most) => extent = Expr::int(most),
            None => return all(),
        }
    }
    // A tile of constant size stays one, even where it covers a small symbolic dimension.
    let prefers_whole = whole.as_int().is_some() || extent.as_int().is_none();
    let min_varies = min.any(&mut |e| e.as_var().is_some_and(|v| simplifier.is_loop(v)));
    if prefers_whole
        && simplifier.prove_le(whole, &extent)
        && (min_varies || min.as_int().is_none_or(|m| m >= 0))
    {
        return all();
    }
    Span { min, extent }
}

/// The index lists with which a block accesses a buffer, each once.
pub(crate) fn accessed(block: &Block, buffer: Buffer, accesses: Accesses) -> Vec<Vec<Expr>> {
    let mut out: Vec<Vec<Expr>> = Vec::new();
    let mut add = |indices: &Vec<Expr>| {
        if !out.contains(indices) {
            out.push(indices.clone());
        }
    };
    if accesses != Accesses::Reads {
        block.init.iter().chain(&block.body).filter(|s| s.buffer == buffer).for_each(|s| add(&s.indices));
    }
    if accesses != Accesses::Writes {
        block.for_each_expr(|e| {
            e.walk(&mut |x| {
                if let ExprKind::Load(b, indices) = x.kind()
                    && *b == buffer
                {
                    add(indices);
                }
            });
        });
    }
    out
}

/// An expression over a block's iteration variables as one over the loops around it.
pub(crate) fn bind(block: &Block, e: &Expr) -> Expr {
    e.substitute(&|v| block.iters.iter().find(|i| i.var == v).map(|i| i.value.clone()))
}

/// Binds an iteration variable to `min + loop variable`, with what must hold for it to be in its domain.
pub(crate) fn guarded(
    simplifier: &Simplifier,
    min: &Expr,
    extent: &Expr,
    domain: &Expr,
    var: Var,
) -> (Expr, Vec<Expr>) {
    let value = simplifier.simplify(&(min.clone() + Expr::var(var)));
    let mut conditions = Vec::new();
    if !simplifier.prove_le(&Expr::int(0), min) {
        conditions.push(value.clone().ge(Expr::int(0)));
    }
    if !simplifier.prove_le(&(min.clone() + extent.clone()), domain) {
        conditions.push(value.clone().lt(domain.clone()));
    }
    (value, conditions)
}

/// Whether a block stores every element of the buffer, rather than all but the padding of a layout.
pub(crate) fn covers(func: &Func, block: &Block, buffer: Buffer) -> bool {
    let simplifier = Simplifier::for_sizes(func);
    let is_digit = |index: &Expr| match index.kind() {
        ExprKind::Int(0) | ExprKind::Var(_) => true,
        ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, x, d) => {
            let quotient =
                matches!(x.kind(), ExprKind::Binary(BinaryOp::FloorDiv, y, _) if y.as_var().is_some());
            d.as_int().is_some() && (x.as_var().is_some() || quotient)
        }
        _ => false,
    };
    // Digits of distinct variables are distinct elements: there are as many of them as iterations.
    let product = |extents: &mut dyn Iterator<Item = &Expr>| extents.fold(Expr::int(1), |p, e| p * e.clone());
    let elements = product(&mut func.buffers[buffer].shape.iter());
    block.body.iter().filter(|s| s.buffer == buffer).any(|store| {
        let mut indexed = block.iters.iter().filter(|i| store.indices.iter().any(|x| x.uses(i.var)));
        let spatial = indexed.clone().all(|i| i.kind == IterKind::Spatial);
        let iterations = product(&mut indexed.by_ref().map(|i| &i.extent));
        spatial && store.indices.iter().all(is_digit) && simplifier.prove_equal(&iterations, &elements)
    }) && reaches_ends(func, block)
}

/// Whether the loops around a block take its data-parallel variables to the ends of their domains: under a consumer's loops
/// only what the consumer needs is computed. Which steps of a reduction there are makes no element more or less.
fn reaches_ends(func: &Func, block: &Block) -> bool {
    let is_it = |s: &crate::func::Stmt| matches!(s, crate::func::Stmt::Block(b) if b.name == block.name);
    let Some(path) = tree::find(&func.body, &is_it) else { return false };
    let mut simplifier = Simplifier::for_sizes(func);
    // Of an empty domain there is nothing to reach.
    for var in block.iters.iter().flat_map(|i| factors(&i.extent)) {
        if let VarKind::Size { min, max, .. } = func.vars[var].kind {
            simplifier.bind_size(var, min.max(1), max);
        }
    }
    for l in tree::loops_above(func, &path) {
        simplifier.bind_range(l.var, 0, l.extent.clone());
    }
    // Nor may a predicate leave out what is in the domain, but for steps of a reduction.
    let n_facts = simplifier.n_facts();
    domain_conditions(&simplifier, block).iter().for_each(|condition| simplifier.assume(condition));
    let spatial: Vec<&Iter> = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).collect();
    let is_spatial = |condition: &Expr| {
        condition.any(&mut |e| e.as_var().is_some_and(|v| spatial.iter().any(|i| i.value.uses(v))))
    };
    let leaves_out = |condition: Expr| is_spatial(&condition) && !simplifier.prove(&condition);
    if block.predicate.iter().flat_map(tree::conjuncts).any(leaves_out) {
        return false;
    }
    simplifier.forget_facts(n_facts);
    spatial.iter().all(|iter| {
        let last = simplifier.extreme(&iter.value, true, &|v| simplifier.is_loop(v));
        last.is_some_and(|last| simplifier.prove_lt(&(iter.extent.clone() - 2), &last))
    })
}

/// The variables of which an extent is a multiple.
fn factors(extent: &Expr) -> Vec<Var> {
    match extent.kind() {
        ExprKind::Var(var) => vec![*var],
        ExprKind::Binary(BinaryOp::Mul, a, b) => [factors(a), factors(b)].concat(),
        _ => Vec::new(),
    }
}

/// The conditions, simplified, that the block's iteration variables are in their domains.
pub(crate) fn domain_conditions(simplifier: &Simplifier, block: &Block) -> Vec<Expr> {
    block.iters.iter().flat_map(|iter| domain_of(simplifier, iter)).collect()
}

/// [`domain_conditions`] of one variable.
fn domain_of(simplifier: &Simplifier, iter: &Iter) -> [Expr; 2] {
    let value = || iter.value.clone();
    [value().lt(iter.extent.clone()), value().ge(Expr::int(0))].map(|c| simplifier.simplify(&c))
}

/// Whether the loops of a subtree, for fixed loops around, store exactly the elements of a box that are inside
/// the iteration domain; then the conditions over loops around alone under which they do. Otherwise why not.
pub(crate) fn exact_writes(
    simplifier: &Simplifier,
    stmts: &[Stmt],
    buffer: Buffer,
) -> Result<Vec<Expr>, String> {
    let mut inner: Vec<Var> = Vec::new();
    tree::for_each_loop(stmts, &mut |l| inner.push(l.var));
    let is_inner = |e: &Expr| e.any(&mut |x| x.as_var().is_some_and(|v| inner.contains(&v)));
    let mut result = Ok(Vec::new());
    tree::for_each_block(stmts, &mut |block| {
        if !tree::writes(block, buffer) {
            return;
        }
        let name = &block.name;
        let stores = accessed(block, buffer, Accesses::Writes);
        // Outside of the domain of a variable that is an index there are no elements; where it is a part of one, there are others'.
        let ends_the_buffer = |iter: &Iter| {
            let is_index = |indices: &Vec<Expr>| indices.iter().any(|index| index.as_var() == Some(iter.var));
            iter.kind == IterKind::Reduce || stores.iter().all(is_index)
        };
        let domain: Vec<Expr> = block
            .iters
            .iter()
            .filter(|iter| ends_the_buffer(iter))
            .flat_map(|iter| domain_of(simplifier, iter))
            .collect();
        let of_reduction = |v: Var| {
            let drives = |kind| block.iters.iter().any(|i| i.kind == kind && i.value.uses(v));
            (drives(IterKind::Reduce) && !drives(IterKind::Spatial)).then(|| Expr::int(0))
        };
        for condition in block.predicate.iter().flat_map(tree::conjuncts) {
            let condition = simplifier.simplify(&condition);
            // A reduction whose first step runs stores its element, whatever later steps it skips.
            let is_in_domain = domain.contains(&condition) && is_inner(&condition);
            if is_in_domain || simplifier.prove(&condition.substitute(&of_reduction)) {
                continue;
            }
            match &mut result {
                Ok(_) if is_inner(&condition) => {
                    result = Err(format!("`{name}` skips some of its iterations inside the loop"));
                }
                Ok(conditions) if !conditions.contains(&condition) => conditions.push(condition),
                Ok(_) | Err(_) => {}
            }
        }
        for indices in stores {
            let mut used: Vec<Var> = Vec::new();
            for index in &indices {
                if !is_contiguous(simplifier, &bind(block, index), &inner, &mut used) {
                    result = Err(format!("what `{name}` computes inside the loop is not contiguous"));
                }
            }
        }
    });
    result
}

/// Whether an index takes every value between its extremes as the inner variables vary, each of which is
/// `used` by no other index.
fn is_contiguous(simplifier: &Simplifier, value: &Expr, inner: &[Var], used: &mut Vec<Var>) -> bool {
    let linear = simplifier.linear(value);
    let mut steps: Vec<(i64, Var)> = Vec::new();
    for (monomial, coefficient) in &linear.terms {
        match &monomial[..] {
            [atom] if atom.as_var().is_some_and(|v| inner.contains(&v)) => {
                steps.extend(atom.as_var().map(|v| (*coefficient, v)));
            }
            factors if factors.iter().any(|f| inner.iter().any(|v| f.uses(*v))) => return false,
            _ => {}
        }
    }
    steps.sort_unstable();
    let mut reach = Expr::int(1);
    for (step, var) in steps {
        if used.contains(&var) || step < 1 || !simplifier.prove_le(&Expr::int(step), &reach) {
            return false;
        }
        used.push(var);
        let Some(last) = simplifier.extreme(&Expr::var(var), true, &|v| inner.contains(&v)) else {
            return false;
        };
        reach = reach + last * step;
    }
    true
}
