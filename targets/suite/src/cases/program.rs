//! Control flow: loops, branches, tasks, extents.

use tilewright_dtype::DType;
use tilewright_te::expr::{BinaryOp, CompareOp};
use tilewright_te::kernel::{Access, KernelOp, Type, Value};

use super::{pack, serial};
use crate::Case;
use crate::build::KernelBuilder;

pub(super) fn cases() -> Vec<Case> {
    vec![sums(), swaps(), branches(), nested(), masks_across_loops(), extents_and_tasks(), empty()]
}

fn ramp(n: u64) -> Vec<u8> {
    pack(DType::F32, (0..n).map(|i| u64::from((i as f32 * 0.7 - 3.0).to_bits())))
}

/// Carried scalars and vectors; loops that run not at all, by constants and by values.
fn sums() -> Case {
    let mut b = KernelBuilder::new("sums");
    let from = b.buffer("from", DType::F32, Access::Read);
    let to = b.buffer("to", DType::F32, Access::Write);
    let ty = Type::vector(DType::F32, 5);
    let zero = b.index(0);
    let start = b.let_(ty, KernelOp::Float(1.5f64.to_bits()));
    for (i, (begin, end)) in [(0, 7), (2, 3), (3, 3), (5, 2)].into_iter().enumerate() {
        let (begin, end) = (b.index(begin), b.index(end));
        // The same bounds again, unknown to the compiler.
        let hidden = b.load(Type::scalar(DType::F32), from, zero, 0);
        let hidden = b.cast(hidden, DType::I64);
        let three = b.index(3);
        let nothing = b.add(hidden, three);
        let hidden_end = b.add(end, nothing);
        for (j, end) in [end, hidden_end].into_iter().enumerate() {
            let sums = b.loop_(begin, end, &[start, zero], |b, i, carried| {
                let at = b.scaled(i, 5);
                let value = b.load(ty, from, at, 0);
                let count = b.add(carried[1], i);
                vec![b.add(carried[0], value), count]
            });
            let at = 12 * i as i64 + 6 * j as i64;
            b.store(to, zero, at, sums[0]);
            let count = b.cast(sums[1], DType::F32);
            b.store(to, zero, at + 5, count);
        }
    }
    serial(b, vec![ramp(64), vec![0; 4 * 64]])
}

/// Carried values that change places, and a value from outside as the next one.
fn swaps() -> Case {
    let mut b = KernelBuilder::new("swaps");
    let to = b.buffer("to", DType::I64, Access::Write);
    let (zero, one, end) = (b.index(0), b.index(1), b.index(11));
    let results = b.loop_(zero, end, &[zero, one, zero], |b, i, carried| {
        let sum = b.add(carried[0], carried[1]);
        let _ = b.add(sum, i);
        vec![carried[1], sum, one]
    });
    for (i, result) in results.into_iter().enumerate() {
        b.store(to, zero, i as i64, result);
    }
    serial(b, vec![vec![0; 24]])
}

/// Branches with joins of scalars, vectors and masks, inside a loop.
fn branches() -> Case {
    let mut b = KernelBuilder::new("branches");
    let from = b.buffer("from", DType::F32, Access::Read);
    let to = b.buffer("to", DType::F32, Access::ReadWrite);
    let flags = b.buffer("flags", DType::Bool, Access::Write);
    let ty = Type::vector(DType::F32, 8);
    let (zero, end) = (b.index(0), b.index(8));
    b.loop_(zero, end, &[], |b, i, _| {
        let at = b.scaled(i, 8);
        let value = b.load(ty, from, at, 0);
        let three = b.index(3);
        let two = b.index(2);
        let rest = b.binary(BinaryOp::FloorMod, i, two);
        let odd = b.compare(CompareOp::Ne, rest, zero);
        let low = b.compare(CompareOp::Lt, i, three);
        let joined = b.if_(
            odd,
            |b| {
                let doubled = b.add(value, value);
                let less = b.compare(CompareOp::Lt, value, doubled);
                let inner = b.if_(low, |_| vec![doubled], |_| vec![value]);
                vec![inner[0], less, at]
            },
            |b| {
                let squared = b.binary(BinaryOp::Mul, value, value);
                let wide = b.cast(squared, DType::F64);
                let bound = b.let_(b.ty(wide), KernelOp::Float(2.0f64.to_bits()));
                let less = b.compare(CompareOp::Lt, wide, bound);
                b.store(to, at, 64, squared);
                vec![squared, less, zero]
            },
        );
        b.store(to, at, 0, joined[0]);
        b.store(flags, at, 0, joined[1]);
        let index = b.cast(joined[2], DType::F32);
        b.store(to, i, 128, index);
        Vec::new()
    });
    serial(b, vec![ramp(64), vec![0; 4 * 144], vec![0; 64]])
}

/// A small matrix product with accumulators carried through two loops.
fn nested() -> Case {
    const M: i64 = 6;
    const K: i64 = 9;
    let mut b = KernelBuilder::new("nested");
    let left = b.buffer("left", DType::F32, Access::Read);
    let right = b.buffer("right", DType::F32, Access::Read);
    let to = b.buffer("to", DType::F32, Access::Write);
    let ty = Type::vector(DType::F32, 16);
    let (zero, half, k_end, m_end) = (b.index(0), b.index(2), b.index(K), b.index(M / 2));
    b.loop_(zero, m_end, &[], |b, i, _| {
        let start = b.let_(ty, KernelOp::Float(0));
        let sums = b.loop_(zero, half, &[start, start], |b, part, sums| {
            let stop = b.index(K);
            let middle = b.index(K / 2);
            let first_part = b.compare(CompareOp::Eq, part, zero);
            let begin = b.let_(Type::scalar(DType::I64), KernelOp::Select(first_part, zero, middle));
            let end = b.let_(Type::scalar(DType::I64), KernelOp::Select(first_part, middle, stop));
            b.loop_(begin, end, sums, |b, k, sums| {
                let row = b.scaled(k, 16);
                let weights = b.load(ty, right, row, 0);
                let column = b.scaled(i, 2 * K);
                let at = b.add(column, k);
                let sum = |b: &mut KernelBuilder, offset: i64, sum: Value| {
                    let x = b.load(Type::scalar(DType::F32), left, at, offset);
                    let x = b.splat(x, 16);
                    b.let_(ty, KernelOp::Fma(x, weights, sum))
                };
                vec![sum(b, 0, sums[0]), sum(b, K, sums[1])]
            })
        });
        let at = b.scaled(i, 32);
        b.store(to, at, 0, sums[0]);
        b.store(to, at, 16, sums[1]);
        Vec::new()
    });
    let _ = k_end;
    serial(b, vec![ramp(64), ramp(256), vec![0; 4 * 16 * M as usize]])
}

/// A mask of wide elements carried through a loop and used on narrow ones.
fn masks_across_loops() -> Case {
    let mut b = KernelBuilder::new("masks_across_loops");
    let from = b.buffer("from", DType::F32, Access::Read);
    let to = b.buffer("to", DType::U8, Access::Write);
    let ty = Type::vector(DType::F32, 16);
    let (zero, end) = (b.index(0), b.index(4));
    let first = b.load(ty, from, zero, 0);
    let one = b.let_(ty, KernelOp::Float(1.0f64.to_bits()));
    let mask = b.compare(CompareOp::Lt, first, one);
    let masks = b.loop_(zero, end, &[mask], |b, i, masks| {
        let at = b.scaled(i, 3);
        let value = b.load(ty, from, at, 0);
        let wide = b.cast(value, DType::F64);
        let bound = b.let_(b.ty(wide), KernelOp::Float(4.0f64.to_bits()));
        let less = b.compare(CompareOp::Le, wide, bound);
        let bytes = b.let_(Type::vector(DType::U8, 16), KernelOp::Int(9));
        b.store_masked(to, at, 16, bytes, masks[0]);
        vec![b.binary(BinaryOp::Xor, masks[0], less)]
    });
    let bytes = b.cast(masks[0], DType::U8);
    b.store(to, zero, 0, bytes);
    serial(b, vec![ramp(64), vec![0; 64]])
}

/// Bounds that are arguments, and tasks that each do their part.
fn extents_and_tasks() -> Case {
    let mut b = KernelBuilder::new("extents_and_tasks");
    let from = b.buffer("from", DType::F32, Access::Read);
    let to = b.buffer("to", DType::F32, Access::Write);
    let rows = b.size("rows");
    let columns = b.size("columns");
    let task = b.task();
    let zero = b.index(0);
    let row = b.binary(BinaryOp::Mul, task, columns);
    let inside = b.compare(CompareOp::Lt, task, rows);
    b.if_(
        inside,
        |b| {
            b.loop_(zero, columns, &[], |b, i, _| {
                let at = b.add(row, i);
                let value = b.load(Type::scalar(DType::F32), from, at, 0);
                let value = b.add(value, value);
                b.store(to, at, 0, value);
                Vec::new()
            });
            Vec::new()
        },
        |_| Vec::new(),
    );
    let case = serial(b, vec![ramp(33), vec![0; 4 * 33]]);
    Case { sizes: vec![3, 11], tasks: 5, ..case }
}

/// Nothing to do.
fn empty() -> Case {
    serial(KernelBuilder::new("empty"), Vec::new())
}
