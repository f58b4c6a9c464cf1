//! Loads, stores, masks, gathers, scatters, local arrays, and lanes as they move.

use tilewright_dtype::DType;
use tilewright_te::expr::CompareOp;
use tilewright_te::kernel::{Access, Inst, KernelOp, Type, Value};

use super::{pack, samples, serial};
use crate::Case;
use crate::build::KernelBuilder;

/// Elements in each buffer.
const N: i64 = 64;

pub(super) fn cases(dtype: DType, lanes: u32) -> Vec<Case> {
    vec![
        offsets(dtype, lanes),
        hints(dtype, lanes),
        masks(dtype, lanes),
        gathers(dtype, lanes),
        locals(dtype, lanes),
        moves(dtype, lanes),
        columns(dtype, lanes),
    ]
}

fn input(dtype: DType) -> Vec<u8> {
    pack(dtype, samples(dtype).into_iter().cycle().take(N as usize))
}

fn output(dtype: DType, elements: i64) -> Vec<u8> {
    // Not zero, so that elements which must stay are seen to stay.
    pack(dtype, std::iter::repeat_n(1, elements as usize))
}

/// Prefetches inside and far outside of a buffer, which change nothing and do not fault.
fn hints(dtype: DType, lanes: u32) -> Case {
    let mut b = KernelBuilder::new(format!("hints_{dtype}x{lanes}"));
    let from = b.buffer("from", dtype, Access::Read);
    let to = b.buffer("to", dtype, Access::ReadWrite);
    let ty = Type::vector(dtype, lanes);
    let (zero, end) = (b.index(0), b.index(4));
    b.loop_(zero, end, &[], |b, i, _| {
        for offset in [0, 1 << 40, -(1 << 40)] {
            b.push(Inst::Prefetch { place: from, index: i, offset });
        }
        let value = b.load(ty, from, i, 0);
        b.store(to, i, 0, value);
        Vec::new()
    });
    serial(b, vec![input(dtype), output(dtype, N)])
}

/// Constant and variable indices, with and without offsets, misaligned, negative before the offset.
fn offsets(dtype: DType, lanes: u32) -> Case {
    let mut b = KernelBuilder::new(format!("offsets_{dtype}x{lanes}"));
    let from = b.buffer("from", dtype, Access::Read);
    let to = b.buffer("to", dtype, Access::ReadWrite);
    let ty = Type::vector(dtype, lanes);
    let zero = b.index(0);
    for (i, offset) in [0, 1, 16, 47].into_iter().enumerate() {
        let value = b.load(ty, from, zero, offset);
        b.store(to, zero, N * i as i64 + offset, value);
    }
    let below = b.index(-40);
    let end = b.index(4);
    b.loop_(zero, end, &[], |b, i, _| {
        let index = b.add(i, below);
        let value = b.load(ty, from, index, 43);
        b.store(to, index, 40 + 4 * N, value);
        // What was stored is seen.
        let again = b.load(ty, to, index, 40 + 4 * N);
        b.store(to, index, 40 + 5 * N + 7, again);
        Vec::new()
    });
    serial(b, vec![input(dtype), output(dtype, 6 * N + 32)])
}

/// Masks that are all set, all clear and in between; the accesses they guard end past the buffer.
fn masks(dtype: DType, lanes: u32) -> Case {
    let mut b = KernelBuilder::new(format!("masks_{dtype}x{lanes}"));
    let from = b.buffer("from", dtype, Access::Read);
    let to = b.buffer("to", dtype, Access::Write);
    let copy = b.buffer("copy", dtype, Access::Write);
    let ty = Type::vector(dtype, lanes);
    let (zero, step) = (b.index(0), i64::from(lanes));
    // One step more than there are elements for, so that the last mask is clear.
    let (end, bound) = (b.index(N / step + 2), b.index(N));
    let n = N / step + 2;
    b.loop_(zero, end, &[], |b, i, _| {
        let first = b.scaled(i, step);
        let mask = below(b, first, bound, lanes);
        let value = b.let_(ty, KernelOp::Load { place: from, index: first, offset: 0, mask: Some(mask) });
        b.store(copy, first, 0, value);
        b.store_masked(to, first, 0, value, mask);
        Vec::new()
    });
    serial(b, vec![input(dtype), output(dtype, N), output(dtype, n * step)])
}

/// `first + i < bound` a lane.
fn below(b: &mut KernelBuilder, first: Value, bound: Value, lanes: u32) -> Value {
    let ty = Type::vector(DType::I64, lanes);
    let (first, bound, iota) = (b.splat(first, lanes), b.splat(bound, lanes), b.let_(ty, KernelOp::Iota));
    let index = b.add(first, iota);
    b.compare(CompareOp::Lt, index, bound)
}

/// Indices out of order and repeated, with and without masks; overlapping lanes of a scatter.
fn gathers(dtype: DType, lanes: u32) -> Case {
    let mut b = KernelBuilder::new(format!("gathers_{dtype}x{lanes}"));
    let from = b.buffer("from", dtype, Access::Read);
    let to = b.buffer("to", dtype, Access::ReadWrite);
    let table = b.buffer("table", DType::I64, Access::Read);
    let ty = Type::vector(dtype, lanes);
    let index_ty = Type::vector(DType::I64, lanes);
    let zero = b.index(0);
    let end = b.index(3);
    b.loop_(zero, end, &[], |b, i, _| {
        let at = b.scaled(i, i64::from(lanes));
        let indices = b.load(index_ty, table, at, 0);
        let value = b.let_(ty, KernelOp::Gather { place: from, indices, offset: 2, mask: None });
        b.store(to, at, 0, value);
        b.push(Inst::Scatter { place: to, indices, offset: N + 3, value, mask: None });
        let small = b.let_(index_ty, KernelOp::Int(20));
        let mask = b.compare(CompareOp::Lt, indices, small);
        // A masked-off lane may point anywhere.
        let far = b.let_(index_ty, KernelOp::Int(1 << 40));
        let wild = b.let_(index_ty, KernelOp::Select(mask, indices, far));
        let value = b.let_(ty, KernelOp::Gather { place: from, indices: wild, offset: 1, mask: Some(mask) });
        b.store(to, at, 3 * N, value);
        b.push(Inst::Scatter { place: to, indices: wild, offset: 4 * N, value, mask: Some(mask) });
        Vec::new()
    });
    let table = (0..64u64).map(|i| (i * 37 + i * i) % 50);
    serial(b, vec![input(dtype), output(dtype, 6 * N), pack(DType::I64, table)])
}

/// Arrays on the stack, at constant and at variable indices.
fn locals(dtype: DType, lanes: u32) -> Case {
    let mut b = KernelBuilder::new(format!("locals_{dtype}x{lanes}"));
    let from = b.buffer("from", dtype, Access::Read);
    let to = b.buffer("to", dtype, Access::Write);
    let small = b.local("small", dtype, u64::from(lanes) * 2);
    let large = b.local("large", dtype, N as u64);
    let ty = Type::vector(dtype, lanes);
    let step = i64::from(lanes);
    let zero = b.index(0);
    let value = b.load(ty, from, zero, 0);
    b.store(small, zero, 0, value);
    let value = b.load(ty, from, zero, step);
    b.store(small, zero, step, value);
    let middle = b.load(ty, small, zero, step / 2);
    b.store(to, zero, 0, middle);
    let end = b.index(N);
    b.loop_(zero, end, &[], |b, i, _| {
        let element = b.load(Type::scalar(dtype), from, i, 0);
        let last = b.index(N - 1);
        let mirrored = b.binary(tilewright_te::BinaryOp::Sub, last, i);
        b.store(large, mirrored, 0, element);
        Vec::new()
    });
    let end = b.index(N / step);
    b.loop_(zero, end, &[], |b, i, _| {
        let at = b.scaled(i, step);
        let value = b.load(ty, large, at, 0);
        b.store(to, at, N, value);
        Vec::new()
    });
    serial(b, vec![input(dtype), output(dtype, 2 * N)])
}

/// Lanes taken out and put together.
fn moves(dtype: DType, lanes: u32) -> Case {
    let mut b = KernelBuilder::new(format!("moves_{dtype}x{lanes}"));
    let from = b.buffer("from", dtype, Access::Read);
    let to = b.buffer("to", dtype, Access::Write);
    let zero = b.index(0);
    let ty = Type::vector(dtype, lanes);
    let mut used = 0;
    let mut keep = |b: &mut KernelBuilder, value: Value| {
        b.store(to, zero, used, value);
        used += i64::from(b.ty(value).lanes);
    };
    let value = b.load(ty, from, zero, 5);
    let last = b.let_(Type::scalar(dtype), KernelOp::Extract(value, lanes - 1));
    keep(&mut b, last);
    let spread = b.splat(last, lanes);
    keep(&mut b, spread);
    let tail = b.let_(Type::vector(dtype, lanes - lanes / 2), KernelOp::Slice(value, lanes / 2));
    keep(&mut b, tail);
    let head = b.let_(Type::vector(dtype, lanes.div_ceil(2)), KernelOp::Slice(value, 0));
    keep(&mut b, head);
    let parts = vec![tail, last, value, head];
    let total = parts.iter().map(|part| b.ty(*part).lanes).sum();
    let joined = b.let_(Type::vector(dtype, total), KernelOp::Concat(parts));
    keep(&mut b, joined);
    let twice = b.let_(Type::vector(dtype, 2 * lanes), KernelOp::Concat(vec![value, spread]));
    keep(&mut b, twice);
    if dtype.is_integer() {
        let iota = b.let_(ty, KernelOp::Iota);
        keep(&mut b, iota);
    }
    serial(b, vec![input(dtype), output(dtype, 8 * i64::from(lanes) + 32)])
}

/// Columns of a square, put together of lanes of its rows: the first before a loop, all in the loop, the last behind it.
fn columns(dtype: DType, lanes: u32) -> Case {
    let mut b = KernelBuilder::new(format!("columns_{dtype}x{lanes}"));
    let from = b.buffer("from", dtype, Access::Read);
    let to = b.buffer("to", dtype, Access::ReadWrite);
    let ty = Type::vector(dtype, lanes);
    let zero = b.index(0);
    let rows: Vec<Value> = (0..i64::from(lanes)).map(|row| b.load(ty, from, zero, 2 * row)).collect();
    let column = |b: &mut KernelBuilder, lane: u32| {
        let elements = rows.iter().map(|&row| b.let_(Type::scalar(dtype), KernelOp::Extract(row, lane)));
        let elements = elements.collect();
        b.let_(ty, KernelOp::Concat(elements))
    };
    let first = column(&mut b, 0);
    b.store(to, zero, 0, first);
    let end = b.index(2);
    b.loop_(zero, end, &[], |b, i, _| {
        for lane in 0..lanes {
            let value = column(b, lane);
            b.store(to, i, i64::from(lanes) * i64::from(lane + 1), value);
        }
        Vec::new()
    });
    let last = column(&mut b, lanes - 1);
    b.store(to, zero, i64::from(lanes) * i64::from(lanes + 2), last);
    serial(b, vec![input(dtype), output(dtype, i64::from(lanes) * i64::from(lanes + 3) + 1)])
}
