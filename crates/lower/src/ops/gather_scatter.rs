//! Elements at places that are data: gathers, scatters, one-hot, embeddings by position.
//!
//! Negative indices count from the end; then indices are clamped into the axis, so that no data can make a kernel
//! touch memory outside a tensor. Scatters run their updates in row-major order.

use tilewright_dtype::DType;
use tilewright_graph::op::{
    AxisAttrs, CacheMode, GatherNdAttrs, OneHotAttrs, ScatterElementsAttrs, ScatterNdAttrs, ScatterReduction,
    TensorScatterAttrs,
};
use tilewright_te::{BinaryOp, Expr, UnaryOp};

use super::Results;
use super::builder::{Builder, Operand, in_range, with_index, wrap_index};
use super::elementwise::{apply, extreme};

/// numpy's take along an axis.
pub(super) fn gather(b: &mut Builder, attrs: &AxisAttrs) -> Results {
    let (x, indices) = (b.input(0)?, b.input(1)?);
    let axis = attrs.axis;
    let shape = [&x.shape[..axis], &indices.shape, &x.shape[axis + 1..]].concat();
    Ok(vec![b.compute("gather", x.dtype, &shape, |i| {
        let (before, rest) = i.split_at(axis);
        let (place, after) = rest.split_at(indices.rank());
        let index = wrap_index(indices.at(place.to_vec()), &x.shape[axis]);
        x.at([before, &[index], after].concat())
    })])
}

/// Element by element along an axis.
pub(super) fn gather_elements(b: &mut Builder, attrs: &AxisAttrs) -> Results {
    let (x, indices) = (b.input(0)?, b.input(1)?);
    let axis = attrs.axis;
    Ok(vec![b.compute("gather_elements", x.dtype, &indices.shape, |i| {
        let index = wrap_index(indices.at(i.to_vec()), &x.shape[axis]);
        x.at(with_index(i, axis, index, true))
    })])
}

/// The tuple of indices at `place` (all axes of `indices` but the last) into axes `from..` of `x`.
fn index_tuple(x: &Operand, indices: &Operand, place: &[Expr], from: usize, width: usize) -> Vec<Expr> {
    let component = |n: usize| {
        let at = [place, &[Expr::int(n as i64)]].concat();
        wrap_index(indices.at(at), &x.shape[from + n])
    };
    (0..width).map(component).collect()
}

/// The constant extent of the last axis: the length of index tuples.
fn tuple_width(b: &Builder, indices: &Operand) -> Result<usize, super::NoKernel> {
    let width = indices.shape.last().and_then(Expr::as_int);
    width
        .map(|width| width as usize)
        .ok_or_else(|| b.no_kernel("the length of its index tuples is not constant"))
}

/// Slices addressed by index tuples.
pub(super) fn gather_nd(b: &mut Builder, attrs: &GatherNdAttrs) -> Results {
    let (x, indices) = (b.input(0)?, b.input(1)?);
    let width = tuple_width(b, &indices)?;
    let shape = b.result_shape(0)?;
    let n_places = indices.rank() - 1;
    Ok(vec![b.compute("gather_nd", x.dtype, &shape, |i| {
        let (place, slice) = i.split_at(n_places);
        let tuple = index_tuple(&x, &indices, place, attrs.batch_dims, width);
        x.at([&place[..attrs.batch_dims], &tuple, slice].concat())
    })])
}

/// What an update makes of the element that is there.
fn combine(reduction: ScatterReduction, old: Expr, new: Expr) -> Expr {
    match reduction {
        ScatterReduction::None => new,
        ScatterReduction::Add => old + new,
        ScatterReduction::Mul => old * new,
        ScatterReduction::Max => extreme(BinaryOp::Max, old, new),
        ScatterReduction::Min => extreme(BinaryOp::Min, old, new),
    }
}

fn copied(b: &mut Builder, x: &Operand) -> Operand {
    b.compute("scatter", x.dtype, &x.shape, |i| x.at(i.to_vec()))
}

/// Element by element along an axis.
pub(super) fn scatter_elements(b: &mut Builder, attrs: &ScatterElementsAttrs) -> Results {
    let (x, indices, updates) = (b.input(0)?, b.input(1)?, b.input(2)?);
    let result = copied(b, &x);
    b.update(&result, &[], &indices.shape, |_, r| {
        let index = wrap_index(indices.at(r.to_vec()), &x.shape[attrs.axis]);
        let at = with_index(r, attrs.axis, index, true);
        let value = combine(attrs.reduction, result.at(at.clone()), updates.at(r.to_vec()));
        vec![result.store(at, value)]
    });
    Ok(vec![result])
}

/// Slices addressed by index tuples.
pub(super) fn scatter_nd(b: &mut Builder, attrs: &ScatterNdAttrs) -> Results {
    let (x, indices, updates) = (b.input(0)?, b.input(1)?, b.input(2)?);
    let width = tuple_width(b, &indices)?;
    let n_places = indices.rank() - 1;
    let result = copied(b, &x);
    // Elements of a slice are independent of each other; the updates are not.
    let (slice, places) = (x.shape[width..].to_vec(), indices.shape[..n_places].to_vec());
    b.update(&result, &slice, &places, |i, r| {
        let at = [index_tuple(&x, &indices, r, 0, width), i.to_vec()].concat();
        let value = combine(attrs.reduction, result.at(at.clone()), updates.at([r, i].concat()));
        vec![result.store(at, value)]
    });
    Ok(vec![result])
}

/// Writes a piece of a sequence at a position of each batch entry.
pub(super) fn tensor_scatter(b: &mut Builder, attrs: &TensorScatterAttrs) -> Results {
    let (past, update, positions) = (b.input(0)?, b.input(1)?, b.optional(2));
    let axis = attrs.axis;
    let extent = past.shape[axis].clone();
    Ok(vec![b.compute("tensor_scatter", past.dtype, &past.shape, |i| {
        let start = positions.map_or(Expr::int(0), |positions| positions.index_at(i[0].clone()));
        let distance = i[axis].clone() - start;
        let step = match attrs.mode {
            CacheMode::Linear => distance,
            CacheMode::Circular => distance.floor_mod(extent),
        };
        let written = in_range(&step, &update.shape[axis]);
        let new = update.at(with_index(i, axis, step, true));
        Expr::select(written, new, past.at(i.to_vec()))
    })])
}

/// `values[1]` at each index of the new axis, else `values[0]`.
pub(super) fn one_hot(b: &mut Builder, attrs: &OneHotAttrs) -> Results {
    let (indices, values) = (b.input(0)?, b.input(1)?);
    let shape = b.result_shape(0)?;
    let axis = attrs.axis;
    let depth = shape[axis].clone();
    Ok(vec![b.compute("one_hot", values.dtype, &shape, |i| {
        let mut place = i.to_vec();
        place.remove(axis);
        let index = indices.at(place).cast(DType::I64);
        let wrapped = Expr::select(index.clone().lt(Expr::int(0)), index.clone() + depth, index);
        let hit = wrapped.equals(i[axis].clone());
        Expr::select(hit, values.at(vec![Expr::int(1)]), values.at(vec![Expr::int(0)]))
    })])
}

/// The longest axis whose elements are ranked by counting: each compares with all others, but no step waits for another.
const MAX_COUNTED: i64 = 1024;

/// The largest or smallest elements along an axis; of equal elements the earlier ones come first. NaN counts as the largest.
pub(super) fn top_k(b: &mut Builder, axis: usize, largest: bool) -> Results {
    let x = b.input(0)?;
    let shape = b.result_shape(0)?;
    let is_short = x.shape[axis].as_int().is_some_and(|extent| extent <= MAX_COUNTED);
    let ranked = if is_short { by_counting } else { by_merging };
    let indices = ranked(b, &x, &shape, axis, largest);
    let values =
        b.compute("top_values", x.dtype, &shape, |i| x.at(with_index(i, axis, indices.at(i.to_vec()), true)));
    Ok(vec![values, indices])
}

/// Counts for each element those that come before it.
fn by_counting(b: &mut Builder, x: &Operand, shape: &[Expr], axis: usize, largest: bool) -> Operand {
    let extent = x.shape[axis].clone();
    let rank = b.reduce("rank", DType::I64, &x.shape, vec![extent], Expr::int(0), |i, r, acc| {
        let (own, other) = (x.at(i.to_vec()), x.at(with_index(i, axis, r[0].clone(), true)));
        let before = comes_before(&other, &own, largest);
        let after = comes_before(&own, &other, largest);
        let tie = before.clone().or(after);
        let earlier = r[0].clone().lt(i[axis].clone());
        acc + Expr::select(tie, before, earlier).cast(DType::I64)
    });
    // Ranks are a permutation, so exactly one element has each rank below k.
    let extent = x.shape[axis].clone();
    b.reduce("top_indices", DType::I64, shape, vec![extent], Expr::int(0), |i, r, acc| {
        let found = rank.at(with_index(i, axis, r[0].clone(), true)).equals(i[axis].clone());
        Expr::select(found, r[0].clone(), acc)
    })
}

/// Merge sort from runs of one element on: each pass merges pairs of runs into runs twice as long, and reads one half of `order`
/// to write the other. Rows are independent, the passes and places of a row one sequence.
fn by_merging(b: &mut Builder, x: &Operand, shape: &[Expr], axis: usize, largest: bool) -> Operand {
    let extent = x.shape[axis].clone();
    let passes = passes(b, &extent);
    let without = |indices: &[Expr]| [&indices[..axis], &indices[axis + 1..]].concat();
    let rows = without(&x.shape);
    let halves = [&rows[..], &[Expr::int(2), extent.clone()]].concat();
    let order = b.temporary("order", DType::I64, &halves);
    b.update(&order, &[&rows[..], std::slice::from_ref(&extent)].concat(), &[], |i, _| {
        let (place, row) = i.split_last().expect("a place");
        vec![order.store([row, &[Expr::int(0), place.clone()]].concat(), place.clone())]
    });
    // The next element of the left run.
    let left = b.compute("left", DType::I64, &rows, |_| Expr::int(0));
    b.update(&order, &rows, &[passes.clone(), extent.clone()], |row, r| {
        let (pass, place) = (&r[0], &r[1]);
        let width = Expr::binary(BinaryOp::Shl, Expr::int(1), pass.clone());
        let within = Expr::binary(BinaryOp::And, place.clone(), width.clone() * 2 - 1);
        let start = place.clone() - within.clone();
        let middle = (start.clone() + width.clone()).min(extent.clone());
        let end = (start.clone() + width * 2).min(extent.clone());
        let from = pass.clone().floor_mod(Expr::int(2));
        let a = Expr::select(within.equals(Expr::int(0)), start, left.at(row.to_vec()));
        let c = middle.clone() + place.clone() - a.clone();
        let last = extent.clone() - 1;
        let element = |run: &Expr| {
            let at = run.clone().min(last.clone());
            order.at([row, &[from.clone(), at]].concat())
        };
        let value = |element: Expr| x.at(with_index(row, axis, element, false));
        let (of_left, of_right) = (element(&a), element(&c));
        let precedes = comes_before(&value(of_right.clone()), &value(of_left.clone()), largest);
        let takes_right = c.lt(end).and(a.clone().ge(middle).or(precedes));
        let to = [row, &[Expr::int(1) - from, place.clone()]].concat();
        vec![
            order.store(to, Expr::select(takes_right.clone(), of_right, of_left)),
            left.store(row.to_vec(), Expr::select(takes_right, a.clone(), a + 1)),
        ]
    });
    let sorted = passes.floor_mod(Expr::int(2));
    b.compute("top_indices", DType::I64, shape, |i| {
        order.at([without(i), vec![sorted, i[axis].clone()]].concat())
    })
}

/// The passes of a merge sort of so many elements, their binary logarithm rounded up: one for each power of two that is less.
fn passes(b: &mut Builder, extent: &Expr) -> Expr {
    // No tensor has 2^46 elements.
    let pass = |power: u32| (extent.clone() - (1i64 << power)).min(Expr::int(1)).max(Expr::int(0));
    let count = (0..46).map(pass).fold(Expr::int(0), |count, pass| count + pass);
    b.named("passes", &count)
}

/// Whether `a` precedes `b` in the order of results.
fn comes_before(a: &Expr, b: &Expr, largest: bool) -> Expr {
    let (greater, lesser) = if largest { (a, b) } else { (b, a) };
    let ordered = greater.clone().gt(lesser.clone());
    if !a.dtype().is_float() {
        return ordered;
    }
    let is_nan = |e: &Expr| apply(UnaryOp::IsNan, e.clone());
    let not_nan = apply(UnaryOp::Not, is_nan(lesser));
    ordered.or(is_nan(greater).and(not_nan))
}
