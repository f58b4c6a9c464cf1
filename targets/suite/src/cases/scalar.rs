//! Operations of values: each on every pair of samples.

use tilewright_dtype::{DType, Kind};
use tilewright_te::expr::{BinaryOp, CompareOp, UnaryOp};
use tilewright_te::kernel::{Access, KernelOp, MemRef, Type, Value};

use super::{DTYPES, pack, samples};
use crate::build::KernelBuilder;
use crate::{Case, Region};

/// Divisors and shift amounts that are known at compile time.
const CONSTANTS: [i64; 12] = [1, 2, 3, 7, 8, 10, 64, 100, 0, -1, -3, -8];

pub(super) fn cases(dtype: DType, lanes: u32, has_fma: bool) -> Vec<Case> {
    let mut cases = vec![
        case("unary", dtype, lanes, one_operand(dtype)),
        case("binary", dtype, lanes, two_operands(dtype, has_fma)),
        case("cast", dtype, lanes, conversions(dtype)),
    ];
    if dtype.is_integer() {
        cases.push(case("constant", dtype, lanes, by_constants()));
    }
    cases
}

/// What a case computes of the operands.
type Compute = Box<dyn Fn(&mut KernelBuilder, Value, Value) -> Value>;

fn computed(
    what: impl Into<String>,
    compute: impl Fn(&mut KernelBuilder, Value, Value) -> Value + 'static,
) -> (String, Compute) {
    (what.into(), Box::new(compute))
}

fn one_operand(dtype: DType) -> Vec<(String, Compute)> {
    use UnaryOp::*;
    let ops: &[UnaryOp] = match dtype.kind() {
        Kind::Bool => &[Not],
        Kind::Int | Kind::UInt => &[Neg, Abs, Not],
        Kind::Float => &[Neg, Abs, Sqrt, Floor, Ceil, Trunc, Round, IsNan],
        Kind::String => &[],
    };
    ops.iter().map(|op| computed(op.name(), |b, x, _| b.unary(*op, x))).collect()
}

fn two_operands(dtype: DType, has_fma: bool) -> Vec<(String, Compute)> {
    use BinaryOp::*;
    let ops: &[BinaryOp] = match dtype.kind() {
        Kind::Bool => &[And, Or, Xor, Min, Max],
        Kind::Int | Kind::UInt => {
            &[Add, Sub, Mul, Div, Rem, FloorDiv, FloorMod, Min, Max, And, Or, Xor, Shl, Shr]
        }
        Kind::Float => &[Add, Sub, Mul, Div, Min, Max],
        Kind::String => &[],
    };
    let mut all: Vec<_> = ops.iter().map(|op| computed(op.name(), |b, x, y| b.binary(*op, x, y))).collect();
    all.extend(
        CompareOp::ALL.into_iter().map(|op| computed(op.symbol(), move |b, x, y| b.compare(op, x, y))),
    );
    all.push(computed("select", |b, x, y| {
        let less = b.compare(CompareOp::Lt, x, y);
        b.let_(b.ty(x), KernelOp::Select(less, y, x))
    }));
    all.push(computed("select by one", |b, x, y| {
        let less = b.compare(CompareOp::Lt, x, y);
        let first = b.let_(Type::scalar(DType::Bool), KernelOp::Extract(less, 0));
        b.let_(b.ty(x), KernelOp::Select(first, y, x))
    }));
    all.push(computed("select a truth value", |b, x, y| {
        let less = b.compare(CompareOp::Lt, x, y);
        let equal = b.compare(CompareOp::Eq, x, y);
        let wide = b.cast(x, DType::F64);
        let nan = b.unary(UnaryOp::IsNan, wide);
        let either = b.binary(BinaryOp::Or, nan, equal);
        b.let_(b.ty(less), KernelOp::Select(less, either, less))
    }));
    if dtype == DType::F32 || (dtype == DType::F64 && has_fma) {
        all.push(computed("fma", |b, x, y| b.let_(b.ty(x), KernelOp::Fma(x, y, x))));
        all.push(computed("fma that cancels", |b, x, y| {
            let product = b.binary(BinaryOp::Mul, x, y);
            let negated = b.unary(UnaryOp::Neg, product);
            b.let_(b.ty(x), KernelOp::Fma(x, y, negated))
        }));
    }
    all
}

fn conversions(dtype: DType) -> Vec<(String, Compute)> {
    let casts = DTYPES.into_iter().map(|to| computed(format!("cast to {to}"), move |b, x, _| b.cast(x, to)));
    let same_size = DTYPES.into_iter().filter(|to| to.bytes() == dtype.bytes() && *to != DType::Bool);
    let bitcasts = same_size.map(|to| {
        computed(format!("bitcast to {to}"), move |b, x, _| {
            let lanes = b.ty(x).lanes;
            b.let_(Type::vector(to, lanes), KernelOp::Bitcast(x))
        })
    });
    casts.chain(bitcasts).collect()
}

fn by_constants() -> Vec<(String, Compute)> {
    use BinaryOp::*;
    let mut all = Vec::new();
    for op in [Div, Rem, FloorDiv, FloorMod, Shl, Shr, Mul] {
        for constant in CONSTANTS {
            all.push(computed(format!("{} by {constant}", op.name()), move |b, x, _| {
                let ty = b.ty(x);
                let constant = b.let_(ty, KernelOp::Int(constant));
                b.binary(op, x, constant)
            }));
        }
    }
    all
}

/// A loop over vectors of samples that stores each computation's results to a region of its own.
fn case(group: &str, dtype: DType, lanes: u32, computations: Vec<(String, Compute)>) -> Case {
    let samples = samples(dtype);
    let needs_pairs = group == "binary";
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    for (i, x) in samples.iter().enumerate() {
        for (j, y) in samples.iter().enumerate() {
            if needs_pairs || i == j {
                xs.push(*x);
                ys.push(*y);
            }
        }
    }
    while !xs.len().is_multiple_of(lanes as usize) {
        xs.push(samples[0]);
        ys.push(samples[0]);
    }
    let n = xs.len();

    let mut b = KernelBuilder::new(format!("{group}_{dtype}x{lanes}"));
    let x_buffer = b.buffer("x", dtype, Access::Read);
    let y_buffer = b.buffer("y", dtype, Access::Read);
    let outputs: Vec<MemRef> = DTYPES.map(|dtype| b.buffer(dtype.name(), dtype, Access::Write)).to_vec();
    let mut used = vec![0; DTYPES.len()];
    let mut regions = Vec::new();
    let (zero, end) = (b.index(0), b.index((n / lanes as usize) as i64));
    b.loop_(zero, end, &[], |b, i, _| {
        let at = b.scaled(i, i64::from(lanes));
        let ty = Type::vector(dtype, lanes);
        let (x, y) = (b.load(ty, x_buffer, at, 0), b.load(ty, y_buffer, at, 0));
        for (what, compute) in &computations {
            let result = compute(b, x, y);
            let to = DTYPES.iter().position(|dtype| *dtype == b.ty(result).dtype).expect("a listed type");
            regions.push(Region { buffer: 2 + to, first: used[to], what: what.clone() });
            b.store(outputs[to], at, used[to] as i64, result);
            used[to] += n;
        }
        Vec::new()
    });
    let mut buffers = vec![pack(dtype, xs), pack(dtype, ys)];
    buffers.extend(DTYPES.iter().zip(&used).map(|(dtype, used)| vec![0; used * dtype.bytes()]));
    regions.sort_by_key(|region| (region.buffer, region.first));
    Case { regions, ..super::serial(b, buffers) }
}
