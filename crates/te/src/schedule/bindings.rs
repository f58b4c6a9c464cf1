//! Facts about how blocks use the loops around them.

use std::cell::OnceCell;
use std::fmt;

use rustc_hash::FxHashSet;

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, UnaryOp, Var};
use crate::func::{Block, Func, IterKind, LoopKind, Scope};
use crate::schedule::region::{Accesses, region_of};
use crate::schedule::tree;
use crate::simplify::linear::gcd;
use crate::simplify::{Linear, Simplifier};

/// Whether the steps of a reduction may run in any order, up to rounding: each store combines the element
/// it writes with a value by an associative and commutative operation.
pub(crate) fn is_commutative(block: &Block) -> bool {
    block.body.iter().all(|store| {
        let is_accumulator = |e: &Expr| match e.kind() {
            ExprKind::Load(buffer, indices) => *buffer == store.buffer && *indices == store.indices,
            _ => false,
        };
        let free =
            |e: &Expr| !e.any(&mut |x| matches!(x.kind(), ExprKind::Load(b, _) if tree::writes(block, *b)));
        match store.value.kind() {
            ExprKind::Binary(
                BinaryOp::Add
                | BinaryOp::Mul
                | BinaryOp::Min
                | BinaryOp::Max
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor,
                a,
                b,
            ) => (is_accumulator(a) && free(b)) || (is_accumulator(b) && free(a)),
            ExprKind::Fma(a, b, c) => is_accumulator(c) && free(a) && free(b),
            // An extremum that stays no number once it is none.
            ExprKind::Select(condition, a, b)
                if is_accumulator(a)
                    && matches!(condition.kind(), ExprKind::Unary(UnaryOp::IsNan, x) if is_accumulator(x)) =>
            {
                match b.kind() {
                    ExprKind::Binary(BinaryOp::Min | BinaryOp::Max, x, y) => {
                        (is_accumulator(x) && free(y)) || (is_accumulator(y) && free(x))
                    }
                    _ => false,
                }
            }
            ExprKind::Select(condition, a, b) => {
                // Guarded steps: the accumulator itself where the guard fails.
                let step = crate::func::Store { value: a.clone(), ..store.clone() };
                let guarded = Block { body: vec![step], init: Vec::new(), ..block.clone() };
                free(condition) && is_accumulator(b) && is_commutative(&guarded)
            }
            _ => false,
        }
    })
}

/// Why iterations of a loop cannot run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// A block accumulates over the loop.
    Accumulates { block: String },
    /// Nothing proves that a block writes different elements in different iterations.
    Writes { block: String },
    /// A task's own buffer may carry values to a task of the next round.
    Carries { buffer: String },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Conflict::Accumulates { block } => write!(f, "block `{block}` accumulates over it"),
            Conflict::Writes { block } => write!(f, "iterations write the same elements in block `{block}`"),
            Conflict::Carries { buffer } => {
                write!(f, "local buffer `{buffer}` may carry values from one round of tasks to the next")
            }
        }
    }
}

/// Why iterations of the loop cannot run at the same time as `kind` says, if they cannot. The loops around have iterations: where
/// they have none, no two iterations meet.
pub(crate) fn conflict(func: &Func, path: &[usize], kind: LoopKind) -> Option<Conflict> {
    let l = tree::loop_at(func, path)?;
    let carried = carried(func, path).filter(|_| kind == LoopKind::Parallel);
    let mut reason = carried.map(|buffer| Conflict::Carries { buffer: buffer.to_string() });
    let mut simplifier = tree::simplifier_within(func, &[path, &[0]].concat(), &l.body);
    let outer = tree::loops_above(func, path);
    let extents: Vec<&Expr> = outer.iter().copied().chain([l]).map(|l| &l.extent).collect();
    let n_facts = simplifier.n_facts();
    let around: Vec<Var> = outer.iter().map(|outer| outer.var).collect();
    let outside = OnceCell::new();
    let is_used_outside = |buffer| outside.get_or_init(|| buffers_outside(func, path)).contains(&buffer);
    tree::for_each_block(&l.body, &mut |block| {
        let uses = |kind: IterKind| block.iters.iter().any(|i| i.kind == kind && i.value.uses(l.var));
        let name = &block.name;
        if uses(IterKind::Reduce) {
            reason.get_or_insert(Conflict::Accumulates { block: name.clone() });
        }
        // Every task has its own local buffers, but for those that are used elsewhere too; lanes have not, and threads
        // have none of the shared ones.
        let is_shared = block.body.iter().any(|s| match func.buffers[s.buffer].scope {
            Scope::Global => true,
            Scope::Shared => kind != LoopKind::Parallel || is_used_outside(s.buffer),
            Scope::Stack | Scope::Register => kind == LoopKind::Vectorized || is_used_outside(s.buffer),
        });
        if !is_shared {
            return;
        }
        block.predicate.iter().for_each(|p| simplifier.assume(p));
        extents.iter().for_each(|extent| simplifier.assume_positive(extent));
        let is_told = |block: &Block| distinguishes(&simplifier, block, l.var);
        if !is_told(block)
            && !is_told(&without_fixed(&simplifier, block, &around))
            && !is_told_by_residue(&simplifier, block, l.var, &around)
        {
            reason.get_or_insert(Conflict::Writes { block: name.clone() });
        }
        simplifier.forget_facts(n_facts);
    });
    reason
}

/// The local buffer, if any, that may carry a value from one iteration of the serial loop around the loop of tasks at a path to
/// the next, although every task has its own: not one that each task writes before it reads it, and all that it reads.
fn carried<'a>(func: &'a Func, path: &[usize]) -> Option<&'a str> {
    let [outer, _] = path else { return None };
    let rounds = tree::loop_at(func, &[*outer]).filter(|l| l.kind == LoopKind::Serial)?;
    let tasks = tree::loop_at(func, path)?;
    let simplifier = tree::simplifier_within(func, &[path, &[0]].concat(), &tasks.body);
    let region = |buffer, accesses| region_of(func, &simplifier, &tasks.body, buffer, accesses);
    let writes_what_it_reads = |buffer| {
        let (written, read) = (region(buffer, Accesses::Writes), region(buffer, Accesses::Reads));
        let (Some(written), Some(read)) = (written, read) else { return true };
        written.iter().zip(&read).all(|(written, read)| {
            simplifier.prove_le(&written.min, &read.min) && simplifier.prove_le(&read.end(), &written.end())
        })
    };
    // What is used outside of the rounds is no task's own yet.
    let mut seen = buffers_outside(func, &[*outer]);
    let mut found = None;
    tree::for_each_block(&tasks.body, &mut |block| {
        let is_left_out = block.predicate.as_ref().is_some_and(|p| p.uses(rounds.var));
        for buffer in tree::written(block).into_iter().chain(tree::read_buffers(block)) {
            if func.buffers[buffer].scope == Scope::Global || !seen.insert(buffer) {
                continue;
            }
            let starts = tree::writes(block, buffer) && !tree::reads(block, buffer) && !is_left_out;
            if !starts || !writes_what_it_reads(buffer) {
                found.get_or_insert(buffer);
            }
        }
    });
    found.map(|buffer| func.buffers[buffer].name.as_str())
}

/// Whether one of the block's variables alone tells iterations of a loop apart: it is the residue of a sum of the loop's variable, which runs
/// through less than the modulus, and of loops around, which are the same in all iterations that are compared. So it is where a fused loop is
/// split by what divides some of its extents and not others.
fn is_told_by_residue(simplifier: &Simplifier, block: &Block, var: Var, around: &[Var]) -> bool {
    let itself = Expr::var(var);
    block.iters.iter().filter(|i| i.kind == IterKind::Spatial).any(|iter| {
        let value = simplifier.simplify(&iter.value);
        let ExprKind::Binary(BinaryOp::FloorMod, sum, modulus) = value.kind() else { return false };
        let is_fixed = |e: &Expr| !e.any(&mut |e| e.as_var().is_some_and(|v| !around.contains(&v)));
        let sum = simplifier.linear(sum);
        let (own, others): (Vec<_>, Vec<_>) =
            sum.terms.iter().partition(|(monomial, _)| matches!(&monomial[..], [only] if *only == itself));
        let [(_, coefficient)] = own[..] else { return false };
        let walked = itself.clone() * Expr::int(coefficient.wrapping_abs());
        *coefficient != 0
            && is_fixed(modulus)
            && others.iter().all(|(monomial, _)| monomial.iter().all(is_fixed))
            && simplifier.prove_le(&Expr::int(0), &itself)
            && simplifier.prove_lt(&walked, modulus)
    })
}

/// The block as it is where loops around are at 0: what they add to its variables is the same in all iterations that are compared.
fn without_fixed(simplifier: &Simplifier, block: &Block, around: &[Var]) -> Block {
    let is_fixed = |(monomial, _): &(Vec<Expr>, i64)| {
        let is_other = |e: &Expr| e.as_var().is_some_and(|var| !around.contains(&var));
        !monomial.iter().any(|atom| atom.any(&mut |e| is_other(e)))
    };
    let mut block = block.clone();
    for iter in &mut block.iters {
        let mut linear = simplifier.linear(&iter.value);
        linear.terms.retain(|term| !is_fixed(term));
        iter.value = linear.to_expr();
    }
    block
}

/// Whether parallel and vectorized loops from the outermost to the given one still have independent
/// iterations.
pub(crate) fn check_kinds(func: &Func, loop_path: &[usize]) -> Result<(), String> {
    (1..=loop_path.len()).try_for_each(|depth| check_kind(func, &loop_path[..depth]))
}

/// Whether the loop at `path`, if its iterations run at the same time, still has independent ones.
pub(crate) fn check_kind(func: &Func, path: &[usize]) -> Result<(), String> {
    let Some(l) = tree::loop_at(func, path) else { return Ok(()) };
    let found = match l.kind {
        LoopKind::Serial | LoopKind::Unrolled => None,
        LoopKind::Parallel | LoopKind::Vectorized | LoopKind::Thread(_) => conflict(func, path, l.kind),
    };
    match found {
        Some(reason) => Err(format!("`{}` could no longer be {:?}: {reason}", func.vars[l.var].name, l.kind)),
        None => Ok(()),
    }
}

/// What the blocks that are not inside the loop at `path` access.
fn buffers_outside(func: &Func, path: &[usize]) -> FxHashSet<Buffer> {
    let blocks = tree::blocks_with_paths(func);
    let outside = blocks.iter().filter(|(p, _)| !p.starts_with(path));
    outside.flat_map(|(_, b)| tree::written(b).into_iter().chain(tree::read_buffers(b))).collect()
}

/// What is known in a block inside the loop at `path`, or in the block at `path`.
fn simplifier_of(func: &Func, path: &[usize], block: &Block) -> Simplifier {
    let inner = tree::loop_at(func, path).map_or(&[][..], |l| &l.body);
    let mut simplifier = tree::simplifier_within(func, &[path, &[0]].concat(), inner);
    block.predicate.iter().for_each(|p| simplifier.assume(p));
    simplifier
}

/// Whether the loop variable counts repetitions of the same iterations of the block at `path`: it drives
/// neither the reduction nor distinct data-parallel iterations.
pub(crate) fn repeats(func: &Func, path: &[usize], var: Var) -> bool {
    let Some(block) = tree::block_at(func, path) else { return false };
    let reduces = block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(var));
    !reduces && !distinguishes(&simplifier_of(func, path, block), block, var)
}

/// Whether different values of the loop variable mean different data-parallel iterations of the block: the
/// variable, or a sum in which it can be told apart, can be recovered from the iteration variables, digit by
/// digit.
pub(crate) fn distinguishes(simplifier: &Simplifier, block: &Block, var: Var) -> bool {
    let itself = Expr::var(var);
    if simplifier.prove_le(&itself, &Expr::int(0)) || recovers(simplifier, block, &itself) {
        return true;
    }
    let is_term = |sum: &Linear| {
        let own = sum.terms.iter().position(|(m, _)| matches!(&m[..], [only] if *only == itself));
        own.is_some_and(|index| is_separable(simplifier, sum, index, sum.terms[index].1, &[]))
    };
    counted_sums(block, var)
        .iter()
        .any(|sum| is_term(&simplifier.linear(sum)) && recovers(simplifier, block, sum))
}

/// The sums with the variable whose digits are taken by the block's data-parallel variables: what a loop is
/// that was fused and split again.
fn counted_sums(block: &Block, var: Var) -> Vec<Expr> {
    let mut sums: Vec<Expr> = Vec::new();
    for iter in block.iters.iter().filter(|i| i.kind == IterKind::Spatial) {
        iter.value.walk(&mut |e| {
            if let ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, x, _) = e.kind()
                && matches!(x.kind(), ExprKind::Binary(BinaryOp::Add, ..))
                && x.uses(var)
                && !sums.contains(x)
            {
                sums.push(x.clone());
            }
        });
    }
    sums
}

/// Whether the value of `counted` follows from the block's data-parallel variables.
fn recovers(simplifier: &Simplifier, block: &Block, counted: &Expr) -> bool {
    let mut digits: Vec<Digit> = Vec::new();
    for iter in block.iters.iter().filter(|i| i.kind == IterKind::Spatial) {
        let linear = simplifier.linear(&iter.value);
        for (index, (monomial, coefficient)) in linear.terms.iter().enumerate() {
            let Some((factors, digit)) = digit_of(simplifier, monomial, counted) else { continue };
            if is_separable(simplifier, &linear, index, *coefficient, &factors) {
                digits.push(digit);
            }
        }
    }
    let mut covered = Expr::int(1);
    while let Some(at) = digits.iter().position(|d| simplifier.prove_equal(&d.0, &covered)) {
        match digits.swap_remove(at).1 {
            None => return true,
            Some(modulus) => covered = simplifier.simplify(&(covered * modulus)),
        }
    }
    let from_zero = counted.as_var().is_some() || simplifier.prove_le(&Expr::int(0), counted);
    from_zero && simplifier.prove_lt(counted, &covered)
}

/// `(counted floordiv divisor) floormod modulus`: the divisor, and the modulus unless it is the last digit.
type Digit = (Expr, Option<Expr>);

/// A product that is a digit of `counted` times other factors, which come first.
fn digit_of(simplifier: &Simplifier, monomial: &[Expr], counted: &Expr) -> Option<(Vec<Expr>, Digit)> {
    let mut digits =
        monomial.iter().enumerate().filter_map(|(n, e)| Some((n, atom_digit(simplifier, e, counted)?)));
    let (at, digit) = digits.next()?;
    let mut factors = monomial.to_vec();
    factors.remove(at);
    factors.iter().all(|f| independent(f, counted)).then_some((factors, digit))
}

/// Whether an expression has no variable in common with `counted`.
fn independent(e: &Expr, counted: &Expr) -> bool {
    !e.any(&mut |x| x.as_var().is_some_and(|v| counted.uses(v)))
}

/// What digit of `counted` an expression is, if it is one.
fn atom_digit(simplifier: &Simplifier, atom: &Expr, counted: &Expr) -> Option<Digit> {
    let quotient = |e: &Expr| match e.kind() {
        _ if e == counted => Some(Expr::int(1)),
        ExprKind::Binary(BinaryOp::FloorDiv, x, d) if x == counted && independent(d, counted) => {
            Some(d.clone())
        }
        _ => None,
    };
    if let ExprKind::Binary(BinaryOp::FloorMod, x, d) = atom.kind()
        && independent(d, counted)
    {
        // Simplification drops multiples of the modulus from what is under it.
        let is_congruent = || {
            let difference = (counted.clone() - x.clone()).floor_mod(d.clone());
            simplifier.prove_equal(&difference, &Expr::int(0)).then(|| Expr::int(1))
        };
        return Some((quotient(x).or_else(is_congruent)?, Some(d.clone())));
    }
    Some((quotient(atom)?, None))
}

/// Whether a term of a sum can be recovered from the sum: the smaller terms together stay below its unit,
/// and every other term is a multiple of what it spans.
fn is_separable(
    simplifier: &Simplifier,
    sum: &Linear,
    index: usize,
    coefficient: i64,
    factors: &[Expr],
) -> bool {
    let unit = factors.iter().fold(Expr::int(coefficient.wrapping_abs()), |p, f| p * f.clone());
    if sum.terms.len() == 1 {
        return coefficient != 0 && simplifier.prove_lt(&Expr::int(0), &unit);
    }
    digits_separate(simplifier, sum, index) || spans_separate(simplifier, sum, index, &unit)
}

/// [`is_separable`] for terms with constant factors, guards taken into account: terms with smaller factors
/// stay within one unit together, and those up to this one within the unit of all larger ones.
fn digits_separate(simplifier: &Simplifier, sum: &Linear, index: usize) -> bool {
    let is_constant =
        |(m, c): &(Vec<Expr>, i64)| *c > 0 && m.len() == 1 && simplifier.prove_le(&Expr::int(0), &m[0]);
    let vanishes = |(m, _): &&(Vec<Expr>, i64)| m.len() == 1 && simplifier.prove_le(&m[0], &Expr::int(0));
    let varying: Vec<_> = sum.terms.iter().filter(|t| varies(simplifier, t) && !vanishes(t)).collect();
    let unit = sum.terms[index].1;
    if !varying.iter().all(|t| is_constant(t)) || varying.iter().filter(|t| t.1 == unit).count() != 1 {
        return false;
    }
    let total = |keep: &dyn Fn(i64) -> bool| {
        let terms = varying.iter().filter(|t| keep(t.1)).map(|t| (*t).clone()).collect();
        Linear { terms, constant: 0 }.to_expr()
    };
    let larger = varying.iter().filter(|t| t.1 > unit).fold(0, |g, t| gcd(g, t.1));
    let below = |sum: Expr, limit: i64| simplifier.prove_lt(&sum, &Expr::int(limit));
    below(total(&|c| c < unit), unit) && (larger == 0 || below(total(&|c| c <= unit), larger))
}

/// Whether a term depends on a loop.
fn varies(simplifier: &Simplifier, term: &(Vec<Expr>, i64)) -> bool {
    term.0.iter().any(|atom| atom.any(&mut |e| e.as_var().is_some_and(|v| simplifier.is_loop(v))))
}

/// [`is_separable`] by the ranges of the loops: every other term is smaller than the unit, all of them in
/// sum, or a multiple of what this term spans.
fn spans_separate(simplifier: &Simplifier, sum: &Linear, index: usize, unit: &Expr) -> bool {
    let magnitude = |(m, c): &(Vec<Expr>, i64)| {
        let term = Linear { terms: vec![(m.clone(), c.wrapping_abs())], constant: 0 };
        simplifier.extreme(&term.to_expr(), true, &|v| simplifier.is_loop(v))
    };
    let Some(own) = magnitude(&sum.terms[index]) else { return false };
    let above = simplifier.simplify(&(own + unit.clone()));
    let mut below = Expr::int(0);
    for (n, term) in sum.terms.iter().enumerate() {
        if n == index || !varies(simplifier, term) {
            continue;
        }
        let scaled = Linear { terms: vec![term.clone()], constant: 0 }.to_expr();
        if simplifier.prove_equal(&scaled.floor_mod(above.clone()), &Expr::int(0)) {
            continue;
        }
        let size = Linear { terms: vec![(term.0.clone(), term.1.wrapping_abs())], constant: 0 }.to_expr();
        if simplifier.prove_le(&size, &Expr::int(0)) {
            continue;
        }
        let Some(most) = magnitude(term) else { return false };
        below = below + most;
    }
    simplifier.prove_lt(&below, unit)
}
