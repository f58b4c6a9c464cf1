//! Loops over the widest vectors of this machine, as generated kernels have them.
#![allow(unsafe_code, reason = "calls functions for instructions that were found to be there")]

use std::array;
use std::hint::black_box;
use std::ops::{Deref, DerefMut, Range};

/// Floats of a line of memory that loops go over.
pub(super) const LINE: usize = 16;

/// Floats that begin where a line begins: of two vectors that do not, one would lie across two lines, as none of a kernel's does.
pub(super) struct Aligned {
    storage: Vec<f32>,
    range: Range<usize>,
}

impl Aligned {
    /// So many lines.
    pub(super) fn new(lines: usize) -> Aligned {
        let storage = vec![0.25f32; (lines + 1) * LINE];
        let start = storage.as_ptr().align_offset(4 * LINE).min(LINE);
        Aligned { storage, range: start..start + lines * LINE }
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.storage[self.range.clone()]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.storage[self.range.clone()]
    }
}

/// A loop.
pub(super) enum Loop<'a> {
    /// One chain of multiply-adds, each of which waits for the one before.
    Chain,
    /// As many chains as keep the ports busy.
    Chains,
    /// Steps of a register tile of 6 x 2: two vectors and six scalars loaded, twelve multiply-adds.
    Tile(&'a [f32]),
    /// Reads lines in runs, and multiplies and adds each 12 times.
    Lines(Runs<'a>),
}

/// Runs of lines.
pub(super) struct Runs<'a> {
    /// The lines.
    pub(super) lines: &'a [[f32; LINE]],
    /// The first line of each run there is.
    pub(super) starts: &'a [u32],
    /// Which of them are read.
    pub(super) read: Range<usize>,
    /// Lines of a run.
    pub(super) len: usize,
    /// How many runs ahead lines are asked for, if they are.
    pub(super) ahead: Option<usize>,
}

/// More chains than multiply-adds in flight on any processor, few enough for the registers of all.
const CHAINS: usize = 12;

/// Steps of a call of one of the loops that have no length of their own.
const STEPS: usize = 1 << 12;

/// Number of floats in a vector.
pub(super) fn lanes() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            return 16;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return 8;
        }
    }
    4
}

/// Runs a loop; the number of its steps: multiply-adds of a vector (chains), steps of a tile, or runs of lines.
pub(super) fn run(what: &Loop<'_>) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the instructions are there.
            return unsafe { x86::run_512(what) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the instructions are there.
            return unsafe { x86::run_256(what) };
        }
    }
    // Where it is one instruction; elsewhere a fused operation would be a call of a library.
    let step = |sum: f32, x: f32, y: f32| {
        if cfg!(target_arch = "aarch64") { sum.mul_add(x, y) } else { sum * x + y }
    };
    perform(
        what,
        |x| [x; 4],
        |x: &[f32; 4]| *x,
        |sum: [f32; 4], x: [f32; 4], y: [f32; 4]| array::from_fn(|i| step(x[i], y[i], sum[i])),
        |_| {},
    )
}

/// Stores to all of some floats.
pub(super) fn fill(floats: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the instructions are there.
            return unsafe { x86::fill_512(floats) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the instructions are there.
            return unsafe { x86::fill_256(floats) };
        }
    }
    black_box(floats).fill(black_box(0.25));
}

/// [`run`] on vectors `V` of so many lanes.
#[inline(always)]
fn perform<V: Copy, const LANES: usize>(
    what: &Loop<'_>,
    splat: impl Fn(f32) -> V,
    load: impl Fn(&[f32; LANES]) -> V,
    // The sum of the first and the product of the others.
    step: impl Fn(V, V, V) -> V,
    hint: impl Fn(&[f32; LINE]),
) -> f64 {
    let factor = black_box(splat(0.5));
    match what {
        Loop::Chain => {
            let mut sum = splat(1.0);
            for _ in 0..STEPS {
                sum = step(sum, factor, factor);
            }
            black_box(sum);
            STEPS as f64
        }
        Loop::Chains => {
            let mut sums = [splat(1.0); CHAINS];
            for _ in 0..STEPS {
                for sum in &mut sums {
                    *sum = step(*sum, factor, factor);
                }
            }
            black_box(sums);
            (STEPS * CHAINS) as f64
        }
        Loop::Tile(data) => {
            let (scalars, vectors) = data.split_at(data.len() / 4);
            let mut sums = [splat(0.0); 12];
            let mut n = 0.0;
            for (x, v) in
                scalars.as_chunks::<6>().0.iter().zip(vectors.as_chunks::<LANES>().0.as_chunks::<2>().0)
            {
                let v = [load(&v[0]), load(&v[1])];
                for (row, x) in x.iter().enumerate() {
                    let x = splat(*x);
                    sums[2 * row] = step(sums[2 * row], x, v[0]);
                    sums[2 * row + 1] = step(sums[2 * row + 1], x, v[1]);
                }
                n += 1.0;
            }
            black_box(sums);
            n
        }
        Loop::Lines(Runs { lines, starts, read, len, ahead }) => {
            let mut sums = [splat(0.0); CHAINS];
            for n in read.clone() {
                let run = &lines[starts[n] as usize..][..*len];
                let later = ahead.map(|ahead| starts[(n + ahead) % starts.len()] as usize);
                let later = later.map(|start| &lines[start..][..*len]);
                for (place, line) in run.iter().enumerate() {
                    if let Some(later) = later {
                        hint(&later[place]);
                    }
                    let vectors = line.as_chunks::<LANES>().0;
                    // As many multiply-adds a line on vectors of any width.
                    for vector in vectors {
                        let vector = load(vector);
                        for sum in &mut sums[..CHAINS * LANES / LINE] {
                            *sum = step(*sum, vector, factor);
                        }
                        sums.rotate_left(CHAINS * LANES / LINE);
                    }
                }
            }
            black_box(sums);
            read.len() as f64
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _MM_HINT_T0, _mm_prefetch, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm512_fmadd_ps,
        _mm512_loadu_ps, _mm512_set1_ps,
    };

    use std::hint::black_box;

    use super::{LINE, Loop, perform};

    #[target_feature(enable = "avx512f")]
    pub(super) fn run_512(what: &Loop<'_>) -> f64 {
        perform(
            what,
            |x| _mm512_set1_ps(x),
            // SAFETY: the sixteen floats are there.
            |x: &[f32; 16]| unsafe { _mm512_loadu_ps(x.as_ptr()) },
            |sum, x, y| _mm512_fmadd_ps(x, y, sum),
            hint,
        )
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn run_256(what: &Loop<'_>) -> f64 {
        perform(
            what,
            |x| _mm256_set1_ps(x),
            // SAFETY: the eight floats are there.
            |x: &[f32; 8]| unsafe { _mm256_loadu_ps(x.as_ptr()) },
            |sum, x, y| _mm256_fmadd_ps(x, y, sum),
            hint,
        )
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn fill_512(floats: &mut [f32]) {
        black_box(floats).fill(black_box(0.25));
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fill_256(floats: &mut [f32]) {
        black_box(floats).fill(black_box(0.25));
    }

    #[inline(always)]
    fn hint(line: &[f32; LINE]) {
        // SAFETY: a prefetch reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
    }
}
