//! Functions that only move elements, recognised and run at the speed of memory.
//!
//! The functions that lay weights out anew are copies whose index arithmetic falls apart by variable. The
//! interpreter would do that arithmetic for every element of every weight; here it is done once for each value
//! of each variable. What is not such a copy is the interpreter's.

use tilewright_dtype::DType;

use crate::expr::{BinaryOp, Expr, ExprKind, Var};
use crate::func::{Block, BufferData, Func, Stmt};
use crate::interp::evaluate_index;

/// Entries up to which neighbouring axes are joined to one: a table that leaves room in the first-level cache.
const JOINED: usize = 1024;

/// Positions from which on an innermost axis of even steps is a loop of its own, without a table.
const EVEN_FROM: usize = 16;

/// A copy of one input to one output; output elements that nothing is copied to are zero.
#[derive(Clone, Debug)]
pub struct Relayout {
    dtype: DType,
    from_len: usize,
    to_len: usize,
    /// Where the element at 0 of every axis is read and written.
    base: Step,
    /// Outermost first. An element is at the base plus one step of each axis.
    axes: Vec<Vec<Step>>,
    /// The innermost axis, if its steps are even.
    even: Option<Even>,
}

/// An axis whose positions are `count` multiples of a step, from 0.
#[derive(Clone, Copy, Debug)]
struct Even {
    count: usize,
    from: usize,
    to: usize,
}

impl Even {
    /// The axis, if it is one; its steps go forward.
    fn of(steps: &[Step]) -> Option<Even> {
        let [first, second, ..] = steps else { return None };
        let (from, to) = (second.from, second.to);
        let at = |n: i64, step: &Step| step.from == n * from && step.to == n * to;
        let is_even = first.from == 0 && (0..).zip(steps).all(|(n, step)| at(n, step));
        let forward = from > 0 && to > 0 && steps.len() >= EVEN_FROM;
        (is_even && forward).then_some(Even { count: steps.len(), from: from as usize, to: to as usize })
    }
}

/// How far an axis moves in the source and in the destination, in elements.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    from: i64,
    to: i64,
}

impl Step {
    fn plus(self, step: &Step) -> Step {
        Step { from: self.from + step.from, to: self.to + step.to }
    }
}

impl Relayout {
    /// The copy that a function is, or nothing: it must have one block of one store in a plain loop nest of
    /// constant extents, whose value is an element of the input or, where a conjunction of conditions is false,
    /// zero; each index and each condition may use one variable.
    pub fn of(func: &Func) -> Option<Relayout> {
        let [input, output] = func.params[..] else { return None };
        if func.n_inputs != 1 || !func.sizes.is_empty() {
            return None;
        }
        let (loops, block) = nest(func)?;
        let [store] = &block.body[..] else { return None };
        if store.buffer != output || block.predicate.is_some() || !block.init.is_empty() {
            return None;
        }
        let mut axes = axes(&loops, block)?;
        let (value, conditions) = guarded(&store.value)?;
        let ExprKind::Load(source, indices) = value.kind() else { return None };
        if *source != input {
            return None;
        }
        let (source, target) = (&func.buffers[input], &func.buffers[output]);
        if source.dtype != target.dtype || target.dtype.bytes() == 0 {
            return None;
        }
        let base = Step {
            from: add_offsets(source, indices, &mut axes, |step| &mut step.from)?,
            to: add_offsets(target, &store.indices, &mut axes, |step| &mut step.to)?,
        };
        for condition in conditions {
            restrict(condition, &mut axes)?;
        }
        let steps = |axis: Axis| axis.steps.into_iter().map(|(_, step)| step).collect();
        let mut axes: Vec<Vec<Step>> = axes.into_iter().map(steps).collect();
        let (from_len, to_len) = (elements(source)?, elements(target)?);
        if !is_within_bounds(&axes, base, [from_len, to_len]) {
            return None;
        }
        let even = axes.last().and_then(|innermost| Even::of(innermost));
        if even.is_some() {
            axes.pop();
        }
        Some(Relayout { dtype: target.dtype, from_len, to_len, base, axes: joined(axes.into_iter()), even })
    }

    /// Copies to `target`, whose length becomes that of the output; false, with nothing done, if `source` is not as long as the input.
    pub fn run(&self, source: &[u8], target: &mut Vec<u8>) -> bool {
        let size = self.dtype.bytes();
        if source.len() != self.from_len * size {
            return false;
        }
        let copy = match size {
            1 => Relayout::copy::<1>,
            2 => Relayout::copy::<2>,
            4 => Relayout::copy::<4>,
            8 => Relayout::copy::<8>,
            _ => return false,
        };
        target.clear();
        target.resize(self.to_len * size, 0);
        copy(self, source, target);
        true
    }

    fn copy<const SIZE: usize>(&self, source: &[u8], target: &mut [u8]) {
        let (source, _) = source.as_chunks::<SIZE>();
        let (target, _) = target.as_chunks_mut::<SIZE>();
        match self.even {
            None => each(self.base, &self.axes, &mut |at| target[at.to as usize] = source[at.from as usize]),
            Some(Even { count, from: 1, to: 1 }) => each(self.base, &self.axes, &mut |at| {
                let (from, to) = (at.from as usize, at.to as usize);
                target[to..][..count].copy_from_slice(&source[from..][..count]);
            }),
            Some(Even { count, from, to }) => each(self.base, &self.axes, &mut |at| {
                let read = source[at.from as usize..].iter().step_by(from);
                let written = target[at.to as usize..].iter_mut().step_by(to);
                written.zip(read).take(count).for_each(|(to, from)| *to = *from);
            }),
        }
    }
}

/// Whether every element read and written exists.
fn is_within_bounds(axes: &[Vec<Step>], base: Step, [from_len, to_len]: [usize; 2]) -> bool {
    if axes.iter().any(Vec::is_empty) {
        return true;
    }
    let within = |len: usize, base: i64, part: &dyn Fn(&Step) -> i64| {
        let sum = |pick: &dyn Fn(&[Step]) -> Option<i64>| {
            axes.iter().try_fold(base, |sum, axis| sum.checked_add(pick(axis)?))
        };
        let least = sum(&|axis| axis.iter().map(part).min());
        let greatest = sum(&|axis| axis.iter().map(part).max());
        least.is_some_and(|n| n >= 0) && greatest.is_some_and(|n| n < len as i64)
    };
    within(from_len, base.from, &|step| step.from) && within(to_len, base.to, &|step| step.to)
}

/// Calls `visit` where each combination of the axes' steps leads.
fn each(at: Step, axes: &[Vec<Step>], visit: &mut impl FnMut(Step)) {
    match axes {
        [] => visit(at),
        [axis] => axis.iter().for_each(|step| visit(at.plus(step))),
        [axis, inner @ ..] => axis.iter().for_each(|step| each(at.plus(step), inner, visit)),
    }
}

/// Joins the innermost axes as long as the table stays small.
fn joined(axes: impl DoubleEndedIterator<Item = Vec<Step>>) -> Vec<Vec<Step>> {
    let mut out: Vec<Vec<Step>> = Vec::new();
    for axis in axes.rev() {
        match out.last_mut() {
            Some(inner) if axis.len() * inner.len() <= JOINED => {
                *inner = axis.iter().flat_map(|a| inner.iter().map(|b| a.plus(b))).collect();
            }
            Some(_) | None => out.push(axis),
        }
    }
    out.reverse();
    out
}

/// A variable of the block that a loop drives.
struct Axis {
    var: Var,
    /// The steps of the values that are copied.
    steps: Vec<(i64, Step)>,
}

/// The loops of a function whose only block is inside all of them.
fn nest(func: &Func) -> Option<(Vec<(Var, i64)>, &Block)> {
    let mut loops = Vec::new();
    let mut body = &func.body;
    loop {
        match &body[..] {
            [Stmt::Loop(l)] => {
                loops.push((l.var, l.extent.as_int()?));
                body = &l.body;
            }
            [Stmt::Block(block)] => return Some((loops, block)),
            _ => return None,
        }
    }
}

/// The block's variables in the order of the loops that drive them; those that are always 0 are left out.
fn axes(loops: &[(Var, i64)], block: &Block) -> Option<Vec<Axis>> {
    let is_zero = |value: &Expr| value.as_int() == Some(0);
    let plain = block.iters.iter().all(|iter| iter.value.as_var().is_some() || is_zero(&iter.value));
    let mut axes = Vec::new();
    for &(var, extent) in loops {
        let mut driven = block.iters.iter().filter(|iter| iter.value.as_var() == Some(var));
        match (driven.next(), driven.next()) {
            (Some(iter), None) => {
                axes.push(Axis { var: iter.var, steps: (0..extent).map(|i| (i, Step::default())).collect() });
            }
            // A loop that drives nothing runs the block again, to the same effect.
            (None, None) if extent > 0 => {}
            (None | Some(_), _) => return None,
        }
    }
    plain.then_some(axes)
}

/// The value stored, and the conditions without which it is zero.
fn guarded(value: &Expr) -> Option<(&Expr, Vec<&Expr>)> {
    let ExprKind::Select(condition, value, otherwise) = value.kind() else {
        return Some((value, Vec::new()));
    };
    // Of floats only the zero without a sign is all zero bits.
    if !matches!(otherwise.kind(), ExprKind::Int(0) | ExprKind::Float(0)) {
        return None;
    }
    let mut conditions = vec![condition];
    let mut next = 0;
    while let Some(condition) = conditions.get(next) {
        match condition.kind() {
            ExprKind::Binary(BinaryOp::And, a, b) => {
                conditions[next] = a;
                conditions.push(b);
            }
            _ => next += 1,
        }
    }
    Some((value, conditions))
}

/// The one variable of an expression; nothing if it uses several or loads.
fn only_var(e: &Expr) -> Option<Option<Var>> {
    let mut var = None;
    let mismatch = e.any(&mut |e| match e.kind() {
        ExprKind::Var(v) => *var.get_or_insert(*v) != *v,
        ExprKind::Load(..) => true,
        _ => false,
    });
    (!mismatch).then_some(var)
}

/// Adds what indices contribute to the flat offset to the axes' steps; gives what does not vary.
fn add_offsets(
    data: &BufferData,
    indices: &[Expr],
    axes: &mut [Axis],
    part: impl Fn(&mut Step) -> &mut i64,
) -> Option<i64> {
    let mut constant = 0i64;
    let mut stride = 1i64;
    for (index, extent) in indices.iter().zip(&data.shape).rev() {
        match only_var(index)?.and_then(|var| axes.iter_mut().find(|axis| axis.var == var)) {
            Some(axis) => {
                for (i, step) in &mut axis.steps {
                    let offset = evaluate_index(index, &|_| Some(*i)).ok()?.checked_mul(stride)?;
                    let sum = part(step);
                    *sum = sum.checked_add(offset)?;
                }
            }
            // Variables without an axis are 0.
            None => {
                let offset = evaluate_index(index, &|_| Some(0)).ok()?.checked_mul(stride)?;
                constant = constant.checked_add(offset)?;
            }
        }
        stride = stride.checked_mul(extent.as_int()?)?;
    }
    Some(constant)
}

/// Leaves out the values of a variable for which a condition is false.
fn restrict(condition: &Expr, axes: &mut [Axis]) -> Option<()> {
    let holds = |i: i64| Some(evaluate_index(condition, &|_| Some(i)).ok()? != 0);
    match only_var(condition)?.and_then(|var| axes.iter_mut().find(|axis| axis.var == var)) {
        Some(axis) => {
            let kept: Option<Vec<bool>> = axis.steps.iter().map(|(i, _)| holds(*i)).collect();
            let mut kept = kept?.into_iter();
            axis.steps.retain(|_| kept.next() == Some(true));
        }
        None if holds(0)? => {}
        None => axes.iter_mut().for_each(|axis| axis.steps.clear()),
    }
    Some(())
}

fn elements(data: &BufferData) -> Option<usize> {
    data.shape.iter().try_fold(1usize, |n, extent| n.checked_mul(usize::try_from(extent.as_int()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interp::{Mode, Program};
    use crate::schedule::{Padding, Piece, Schedule};

    fn copy_of(dtype: DType, shape: &[i64]) -> Func {
        let mut func = Func::new("pack");
        let shape: Vec<Expr> = shape.iter().map(|&n| n.into()).collect();
        let source = func.add_input("source", dtype, shape.clone());
        let packed = func.compute("packed", dtype, shape, |f, i| f.load(source, i.to_vec()));
        func.promote_to_output(packed);
        func
    }

    fn packing(dtype: DType, shape: &[i64], pieces: &[(usize, Option<i64>)]) -> Func {
        let mut schedule = Schedule::new(copy_of(dtype, shape));
        let pieces: Vec<Piece> = pieces.iter().map(|&(dim, factor)| Piece { dim, factor }).collect();
        schedule.transform_layout("packed", &pieces, Padding::Zero).unwrap();
        schedule.finish().unwrap()
    }

    #[track_caller]
    fn check(func: &Func) {
        let source = &func.buffers[func.params[0]];
        let len = elements(source).unwrap() * source.dtype.bytes();
        // No byte makes the element it is in a NaN, whose bits the interpreter need not keep.
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 113) as u8 + 1).collect();
        let expected = Program::compile(func).unwrap().run(&[], &[&bytes], Mode::Exact).unwrap();
        let relayout = Relayout::of(func).expect("a copy");
        // What the target held before does not matter.
        let mut target = vec![77; 3];
        assert!(relayout.run(&bytes, &mut target) && target == expected[0].bytes, "{func}");
        assert!(!relayout.run(&bytes[1..], &mut target));
    }

    #[test]
    fn copies_are_what_the_interpreter_makes_of_them() {
        check(&copy_of(DType::F32, &[3, 5]));
        check(&copy_of(DType::F64, &[]));
        check(&packing(
            DType::F32,
            &[64, 3, 7, 7],
            &[(0, None), (1, None), (2, None), (3, None), (0, 16.into())],
        ));
        // Two dimensions in blocks, both with padding.
        check(&packing(
            DType::I8,
            &[18, 5, 3],
            &[(0, None), (1, None), (2, None), (1, 4.into()), (0, 8.into())],
        ));
        check(&packing(DType::F16, &[100, 33], &[(1, None), (0, None), (1, 48.into())]));
        check(&packing(DType::I64, &[1, 40], &[(1, None), (0, None), (1, 16.into()), (1, 4.into())]));
        // Innermost axes of even steps: neighbours on both sides, and not.
        check(&copy_of(DType::F32, &[3, 40]));
        check(&packing(DType::F32, &[40, 24], &[(1, None), (0, None)]));
        check(&packing(DType::F64, &[3, 40, 17], &[(0, None), (1, None), (2, None), (1, 8.into())]));
        // An axis too long to be joined with its neighbours.
        check(&packing(DType::F32, &[5, 3000], &[(1, None), (0, None), (1, 8.into())]));
    }

    #[test]
    fn what_computes_is_no_copy() {
        let shape = vec![Expr::int(4), Expr::int(4)];
        let with = |value: &dyn Fn(&Func, crate::expr::Buffer, &[Expr]) -> Expr| {
            let mut func = Func::new("f");
            let source = func.add_input("source", DType::F32, shape.clone());
            let out = func.compute("out", DType::F32, shape.clone(), |f, i| value(f, source, i));
            func.promote_to_output(out);
            func
        };
        let transposed = with(&|f, b, i| f.load(b, vec![i[1].clone(), i[0].clone()]));
        check(&transposed);
        let doubled = with(&|f, b, i| f.load(b, i.to_vec()) + f.load(b, i.to_vec()));
        assert!(Relayout::of(&doubled).is_none());
        let skewed =
            with(&|f, b, i| f.load(b, vec![(i[0].clone() + i[1].clone()).floor_mod(4.into()), i[1].clone()]));
        assert!(Relayout::of(&skewed).is_none());
        let outside = with(&|f, b, i| f.load(b, vec![i[0].clone() + 1, i[1].clone()]));
        assert!(Relayout::of(&outside).is_none());
        let minus_zero = with(&|f, b, i| {
            let zero = Expr::float_of(DType::F32, -0.0);
            Expr::select(i[0].clone().lt(Expr::int(2)), f.load(b, i.to_vec()), zero)
        });
        assert!(Relayout::of(&minus_zero).is_none());
    }
}
