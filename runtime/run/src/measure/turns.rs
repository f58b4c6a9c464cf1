//! Runs of two schedules by turns, and whether both compute the same: what measurements have in common, on processors and on devices.

use std::time::Duration;

use tilewright_dtype::DType;

use super::times::{Effort, MeasureError, Times};

/// Shortest run that the clock and the start of a run do not disturb.
const SHORTEST: Duration = Duration::from_micros(100);

/// Most repetitions of a function in a run.
const MAX_REPEAT: usize = 64;

/// Nanoseconds of a run, which fit: divisions of 128 bits are code of their own.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How often a function runs in a run that is timed, by the time of one.
pub fn repeats(once: Duration) -> usize {
    ((nanoseconds(SHORTEST) / nanoseconds(once).max(1)) as usize).saturating_add(1).min(MAX_REPEAT)
}

/// Runs of both by turns, after one of each that is not counted; which of them goes first changes from pair to
/// pair. A run has the function `repeat` times.
///
/// # Errors
/// The first run's that fails.
pub fn alternate<S>(
    [baseline, candidate]: [&mut S; 2],
    mut run: impl FnMut(&mut S) -> Result<Duration, MeasureError>,
    repeat: usize,
    effort: Effort,
) -> Result<Times, MeasureError> {
    let (least, most, time) = match effort {
        Effort::Trial => (6, 16, Duration::from_millis(25)),
        Effort::Confirm => (15, 60, Duration::from_millis(200)),
    };
    let both = run(baseline)? + run(candidate)?;
    let pairs = (nanoseconds(time) / nanoseconds(both).max(1)).clamp(least, most);
    let mut times = Times::default();
    let each = |time: Duration| nanoseconds(time) as f64 / repeat as f64;
    for pair in 0..pairs {
        if pair % 2 == 0 {
            times.baseline.push(each(run(baseline)?));
            times.candidate.push(each(run(candidate)?));
        } else {
            times.candidate.push(each(run(candidate)?));
            times.baseline.push(each(run(baseline)?));
        }
    }
    Ok(times)
}

/// How far results of two schedules may be apart, by the largest of them: each of both reassociates within half of it
/// (the numerics contract).
const TOLERANCE: f32 = 2e-5;

/// Whether two outputs are equal up to the order of sums, wherever they are not padding.
pub fn agree(dtype: DType, a: &[u8], b: &[u8], is_padding: impl Fn(usize) -> bool) -> bool {
    if dtype != DType::F32 {
        let width = dtype.bytes().max(1);
        let mut pairs = a.chunks(width).zip(b.chunks(width)).enumerate();
        return a.len() == b.len() && pairs.all(|(n, (a, b))| a == b || is_padding(n));
    }
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
    };
    let (a, b) = (floats(a), floats(b));
    let largest = b.iter().filter(|x| x.is_finite()).fold(0.0f32, |m, x| m.max(x.abs()));
    let near = |x: f32, y: f32| {
        x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()) || (x - y).abs() <= TOLERANCE * largest
    };
    a.len() == b.len() && a.iter().zip(&b).enumerate().all(|(n, (&x, &y))| near(x, y) || is_padding(n))
}
