//! Random numbers: the operators that draw them, and their generator.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011).
//! It is a function of a key and a counter, so an element depends on nothing but the key, the number of the call and
//! its place in the tensor. The key is the node's seed; for a node without one, the session's seed and the node's
//! stream. The counter holds the call in its upper and the block of four words in its lower 64 bits. Arithmetic is
//! in F64 by `libm`, so all machines get the same bits.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use half::{bf16, f16};
use tilewright_dtype::DType;
use tilewright_runtime::{Draw, Value};

use crate::Result;
use crate::args::{Args, Data};
use crate::attrs::{Distribution, MultinomialAttrs, RandomAttrs};

/// Rounds of the generator.
const ROUNDS: usize = 10;

/// The key of a node: its own seed, or else that of the session and of its stream.
fn key(seed: Option<u32>, stream: u64, draw: Draw) -> [u32; 2] {
    let key = match seed {
        Some(seed) => u64::from(seed),
        None => stream ^ mixed(draw.seed),
    };
    [key as u32, (key >> 32) as u32]
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): neighbouring seeds give unrelated keys.
fn mixed(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One block of four random words.
fn philox(mut key: [u32; 2], call: u64, block: u64) -> [u32; 4] {
    let mut x = [block as u32, (block >> 32) as u32, call as u32, (call >> 32) as u32];
    for _ in 0..ROUNDS {
        let a = u64::from(x[0]) * 0xd251_1f53;
        let b = u64::from(x[2]) * 0xcd9e_8d57;
        x = [(b >> 32) as u32 ^ x[1] ^ key[0], b as u32, (a >> 32) as u32 ^ x[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    x
}

/// The words of one call of an operator.
#[derive(Clone, Copy)]
struct Words {
    key: [u32; 2],
    call: u64,
}

impl Words {
    /// A number of the grid of 2^-32 in [0, 1): four to a block.
    fn single(self, index: u64) -> f64 {
        let word = philox(self.key, self.call, index / 4)[(index % 4) as usize];
        f64::from(word) / 4_294_967_296.0
    }

    /// A number of the grid of 2^-53 in [0, 1): two to a block.
    fn double(self, index: u64) -> f64 {
        let x = philox(self.key, self.call, index / 2);
        let at = 2 * (index % 2) as usize;
        let bits = u64::from(x[at]) << 32 | u64::from(x[at + 1]);
        (bits >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// A number of the standard normal distribution: two to a block, by Box and Muller's transform.
    fn normal(self, index: u64) -> f64 {
        // 1 - u is in (0, 1], where the logarithm is finite.
        let (u, v) = (self.double(index & !1), self.double(index | 1));
        let radius = libm::sqrt(-2.0 * libm::log(1.0 - u));
        let angle = core::f64::consts::TAU * v;
        radius * if index % 2 == 0 { libm::cos(angle) } else { libm::sin(angle) }
    }
}

/// What cannot be told before the operator runs.
pub(crate) fn check(attrs: &RandomAttrs) -> Result<()> {
    match attrs.dtype {
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Ok(()),
        other => Err(format!("random numbers of {other} are not drawn")),
    }
}

/// [`run`](crate::HostOp::run) of the operators of this file, which want a [`Draw`].
pub(crate) fn needs_draw<T>(_: Args<'_>, _: &T) -> Result<Vec<Value>> {
    Err("random numbers are drawn into memory".to_string())
}

/// Fills a tensor with numbers of a distribution.
pub(crate) fn numbers(attrs: &RandomAttrs, draw: Draw, bytes: &mut [u8]) -> Result<()> {
    let words = Words { key: key(attrs.seed, attrs.stream, draw), call: draw.count };
    let (a, b) = (f64::from(attrs.a), f64::from(attrs.b));
    let uniform = |u: f64| a + u * (b - a);
    let limit = if a < b { b } else { f64::INFINITY };
    match (attrs.distribution, attrs.dtype) {
        (Distribution::Normal, dtype) => fill(dtype, bytes, |i| a + b * words.normal(i), f64::INFINITY),
        // The grid is as fine as the element type has digits.
        (Distribution::Uniform, DType::F64) => fill(DType::F64, bytes, |i| uniform(words.double(i)), limit),
        (Distribution::Uniform, dtype) => fill(dtype, bytes, |i| uniform(words.single(i)), limit),
    }
}

/// Writes elements, rounded to the element type, and where that gives `limit` or more, to the greatest number below.
fn fill(dtype: DType, bytes: &mut [u8], element: impl Fn(u64) -> f64, limit: f64) -> Result<()> {
    /// One element of N bytes at a time.
    fn each<const N: usize>(bytes: &mut [u8], element: impl Fn(u64) -> [u8; N]) {
        for (index, chunk) in bytes.chunks_exact_mut(N).enumerate() {
            chunk.copy_from_slice(&element(index as u64));
        }
    }
    match dtype {
        DType::F64 => {
            each(bytes, |i| below(element(i), limit, |x| x, f64::to_bits, f64::from_bits).to_le_bytes())
        }
        DType::F32 => each(bytes, |i| {
            let x = below(
                element(i) as f32,
                limit,
                f64::from,
                |x| u64::from(x.to_bits()),
                |x| f32::from_bits(x as u32),
            );
            x.to_le_bytes()
        }),
        DType::F16 => each(bytes, |i| {
            let x = f16::from_f64(element(i));
            let x = below(x, limit, f16::to_f64, |x| u64::from(x.to_bits()), |x| f16::from_bits(x as u16));
            x.to_le_bytes()
        }),
        DType::BF16 => each(bytes, |i| {
            let x = bf16::from_f64(element(i));
            let x = below(x, limit, bf16::to_f64, |x| u64::from(x.to_bits()), |x| bf16::from_bits(x as u16));
            x.to_le_bytes()
        }),
        other => return Err(format!("random numbers of {other} are not drawn")),
    }
    Ok(())
}

/// The number, or the next one towards minus infinity where rounding took it to the limit.
fn below<T: Copy>(
    x: T,
    limit: f64,
    value: impl Fn(T) -> f64,
    bits: impl Fn(T) -> u64,
    from: impl Fn(u64) -> T,
) -> T {
    let number = value(x);
    if !number.is_finite() || number < limit {
        return x;
    }
    // Positive numbers grow with their bits, negative ones shrink. Below zero are no numbers of interest: an
    // interval that ends at zero begins below it, and then the least step is one down from minus zero.
    let step = if number > 0.0 { bits(x).wrapping_sub(1) } else { bits(x).wrapping_add(1) };
    if number == 0.0 { from(step | sign_of::<T>()) } else { from(step) }
}

/// The bit of the sign.
fn sign_of<T>() -> u64 {
    1 << (8 * size_of::<T>() - 1)
}

/// Samples of categories, `[rows, samples]`, from unnormalised log probabilities `[rows, categories]`.
pub(crate) fn categories(
    args: Args<'_>,
    attrs: &MultinomialAttrs,
    draw: Draw,
    bytes: &mut [u8],
) -> Result<()> {
    let x = args.tensor(0)?;
    let &[rows, count] = x.dims else { return Err("log probabilities must be a matrix".to_string()) };
    let logits = reals(x.dtype, x.data)?;
    let words = Words { key: key(attrs.seed, attrs.stream, draw), call: draw.count };
    let size = attrs.dtype.bytes();
    let samples = (bytes.len() / size).checked_div(rows).unwrap_or(0);
    for row in 0..rows {
        let sums = cumulative(&logits[row * count..(row + 1) * count]);
        let total = sums.last().copied().unwrap_or(0.0);
        if !(total.is_finite() && total > 0.0) {
            return Err(format!("row {row} of the log probabilities gives no distribution"));
        }
        for sample in 0..samples {
            let index = row * samples + sample;
            let mark = words.double(index as u64) * total;
            // The first category whose sum is above the mark: one of no weight is never taken.
            let category = sums.partition_point(|&sum| sum <= mark).min(count - 1);
            let out = &mut bytes[index * size..(index + 1) * size];
            match attrs.dtype {
                DType::I32 => out.copy_from_slice(&(category as i32).to_le_bytes()),
                DType::I64 => out.copy_from_slice(&(category as i64).to_le_bytes()),
                other => return Err(format!("categories are i32 or i64, not {other}")),
            }
        }
    }
    Ok(())
}

/// Running sums of exponentials, scaled so that the largest is 1.
fn cumulative(logits: &[f64]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    logits
        .iter()
        .map(|&logit| {
            sum += libm::exp(logit - most);
            sum
        })
        .collect()
}

fn reals(dtype: DType, data: Data<'_>) -> Result<Vec<f64>> {
    let Data::Bytes(bytes) = data else { return Err("numbers are expected, not strings".to_string()) };
    let halves = || bytes.chunks_exact(2).map(|x| [x[0], x[1]]);
    match dtype {
        DType::F16 => Ok(halves().map(|x| f16::from_le_bytes(x).to_f64()).collect()),
        DType::BF16 => Ok(halves().map(|x| bf16::from_le_bytes(x).to_f64()).collect()),
        DType::F32 => {
            let words = bytes.chunks_exact(4).map(|x| [x[0], x[1], x[2], x[3]]);
            Ok(words.map(|x| f64::from(f32::from_le_bytes(x))).collect())
        }
        DType::F64 => {
            let words = bytes.chunks_exact(8).filter_map(|x| x.try_into().ok());
            Ok(words.map(f64::from_le_bytes).collect())
        }
        other => Err(format!("log probabilities are floats, not {other}")),
    }
}

#[cfg(test)]
mod tests {
    use tilewright_runtime::{HostArg, Tensor};

    use super::*;

    fn attrs(distribution: Distribution, a: f32, b: f32, dtype: DType) -> RandomAttrs {
        RandomAttrs { distribution, a, b, seed: Some(7), stream: 1, dtype }
    }

    fn drawn(attrs: &RandomAttrs, draw: Draw, count: usize) -> Vec<f64> {
        let mut bytes = vec![0; count * attrs.dtype.bytes()];
        numbers(attrs, draw, &mut bytes).unwrap();
        reals(attrs.dtype, Data::Bytes(&bytes)).unwrap()
    }

    /// Pearson's statistic of counts against probabilities.
    fn chi_square(counts: &[usize], probabilities: &[f64]) -> f64 {
        let total: usize = counts.iter().sum();
        let expected = probabilities.iter().map(|p| p * total as f64);
        counts.iter().zip(expected).map(|(&n, e)| (n as f64 - e) * (n as f64 - e) / e).sum()
    }

    /// Kolmogorov and Smirnov's statistic, times the root of the number of samples.
    fn kolmogorov(mut samples: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
        samples.sort_by(f64::total_cmp);
        let n = samples.len() as f64;
        let distance = |(i, &x): (usize, &f64)| {
            let p = distribution(x);
            (p - i as f64 / n).abs().max(((i + 1) as f64 / n - p).abs())
        };
        samples.iter().enumerate().map(distance).fold(0.0, f64::max) * n.sqrt()
    }

    /// Correlation of neighbours at a distance.
    fn correlation(a: &[f64], b: &[f64]) -> f64 {
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let (ma, mb) = (mean(a), mean(b));
        let sum = |f: &dyn Fn((&f64, &f64)) -> f64| a.iter().zip(b).map(f).sum::<f64>();
        let (va, vb) = (sum(&|(x, _)| (x - ma) * (x - ma)), sum(&|(_, y)| (y - mb) * (y - mb)));
        sum(&|(x, y)| (x - ma) * (y - mb)) / (va * vb).sqrt()
    }

    /// Known answers of the authors' library, Random123.
    #[test]
    fn the_generator_is_philox() {
        let check = |key: [u32; 2], x: [u32; 4], expect: [u32; 4]| {
            let wide = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
            assert_eq!(philox(key, wide(x[2], x[3]), wide(x[0], x[1])), expect);
        };
        check([0; 2], [0; 4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        check([u32::MAX; 2], [u32::MAX; 4], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        check(
            [0xa409_3822, 0x299f_31d0],
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
    }

    /// Exceeded with a probability of 1e-3: by the statistic of 100 classes, and by Kolmogorov's.
    const CHI_SQUARE_99: f64 = 148.2;
    const KOLMOGOROV: f64 = 1.95;

    #[test]
    fn uniform_numbers_are_uniform() {
        for dtype in [DType::F32, DType::F64] {
            let samples = drawn(&attrs(Distribution::Uniform, 0.0, 1.0, dtype), Draw::default(), 100_000);
            let mut counts = [0; 100];
            samples.iter().for_each(|x| counts[(x * 100.0) as usize] += 1);
            assert!(chi_square(&counts, &[0.01; 100]) < CHI_SQUARE_99, "{dtype}");
            assert!(kolmogorov(samples.clone(), |x| x) < KOLMOGOROV, "{dtype}");
            for distance in 1..8 {
                let r = correlation(&samples[distance..], &samples[..samples.len() - distance]);
                assert!(r.abs() < 0.0104, "{dtype}: {r} at distance {distance}");
            }
        }
    }

    #[test]
    fn the_tests_of_uniformity_can_fail() {
        let samples = drawn(&attrs(Distribution::Uniform, 0.0, 1.0, DType::F32), Draw::default(), 100_000);
        let bent: Vec<f64> = samples.iter().map(|x| x.powf(1.05)).collect();
        assert!(kolmogorov(bent.clone(), |x| x) > KOLMOGOROV);
        let mut counts = [0; 100];
        bent.iter().for_each(|x| counts[(x * 100.0) as usize] += 1);
        assert!(chi_square(&counts, &[0.01; 100]) > CHI_SQUARE_99);
    }

    #[test]
    fn normal_numbers_are_normal() {
        let distribution = |x: f64| 0.5 * libm::erfc(-(x - 3.0) / 2.0 / core::f64::consts::SQRT_2);
        for dtype in [DType::F32, DType::F64] {
            let samples = drawn(&attrs(Distribution::Normal, 3.0, 2.0, dtype), Draw::default(), 100_000);
            assert!(kolmogorov(samples.clone(), distribution) < KOLMOGOROV, "{dtype}");
            // Both halves of a pair, and squares, for a radius shared by neighbours.
            let (even, odd): (Vec<_>, Vec<_>) =
                samples.chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
            assert!(correlation(&even, &odd).abs() < 0.0147, "{dtype}");
            let square = |x: &[f64]| x.iter().map(|x| (x - 3.0) * (x - 3.0)).collect::<Vec<_>>();
            assert!(correlation(&square(&even), &square(&odd)).abs() < 0.0147, "{dtype}");
            let far = samples.iter().filter(|x| (**x - 3.0).abs() > 6.0).count();
            // 270 expected beyond three deviations; 54 is 3.3 deviations of that number.
            assert!(far.abs_diff(270) < 54, "{dtype}: {far}");
        }
    }

    #[test]
    fn narrow_numbers_stay_below_their_limit() {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            for (low, high) in [(0.0, 1.0), (-2.0, -1.0), (-1.0, 0.0), (1000.0, 1000.5)] {
                let samples = drawn(&attrs(Distribution::Uniform, low, high, dtype), Draw::default(), 50_000);
                let (low, high) = (f64::from(low), f64::from(high));
                assert!(samples.iter().all(|&x| low <= x && x < high), "{dtype} [{low}, {high})");
            }
        }
    }

    #[test]
    fn streams_calls_and_seeds_are_independent() {
        let of = |seed: Option<u32>, stream: u64, draw: Draw| {
            let attrs = RandomAttrs { seed, stream, ..attrs(Distribution::Uniform, 0.0, 1.0, DType::F32) };
            drawn(&attrs, draw, 20_000)
        };
        let draw = |seed: u64, count: u64| Draw { seed, count };
        let base = of(None, 1, draw(0, 0));
        let others = [
            of(None, 1, draw(0, 1)),
            of(None, 1, draw(1, 0)),
            of(None, 2, draw(0, 0)),
            of(Some(0), 1, draw(0, 0)),
            of(Some(1), 1, draw(0, 0)),
        ];
        for (i, other) in others.iter().enumerate() {
            assert!(correlation(&base, other).abs() < 0.0233, "{i}");
        }
        assert_eq!(base, of(None, 1, draw(0, 0)));
        // A node's own seed holds whatever the session's and its name are.
        assert_eq!(of(Some(9), 1, draw(0, 3)), of(Some(9), 2, draw(5, 3)));
    }

    #[test]
    fn categories_come_as_often_as_they_should() {
        let probabilities = [0.1, 0.2, 0.0, 0.4, 0.3];
        let logits: Vec<f32> = probabilities.iter().map(|p| 50.0 + f64::ln(*p) as f32).collect();
        let input = Tensor::new(&[2, 5], [&logits[..], &logits].concat()).unwrap();
        let inputs = [HostArg::Value(input.into())];
        let attrs = MultinomialAttrs { seed: None, stream: 3, dtype: DType::I32 };
        let mut out = vec![0; 2 * 50_000 * 4];
        categories(Args(&inputs), &attrs, Draw::default(), &mut out).unwrap();
        let (first, second) = out.split_at(200_000);
        for row in [first, second] {
            let mut counts = [0; 5];
            row.chunks_exact(4).for_each(|x| counts[x[0] as usize] += 1);
            assert_eq!(counts[2], 0);
            let counts = [counts[0], counts[1], counts[3], counts[4]];
            // 16.3 is exceeded with a probability of 1e-3 by the statistic of 4 classes.
            assert!(chi_square(&counts, &[0.1, 0.2, 0.4, 0.3]) < 16.3, "{counts:?}");
        }
        assert_ne!(first, second);
        let none = Tensor::new(&[1, 2], [f32::NEG_INFINITY; 2]).unwrap();
        let inputs = [HostArg::Value(none.into())];
        let error = categories(Args(&inputs), &attrs, Draw::default(), &mut out[..4]).unwrap_err();
        assert_eq!(error, "row 0 of the log probabilities gives no distribution");
    }
}
