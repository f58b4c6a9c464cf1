//! How long runs take, and how much memory the process has held.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Runs of each caller that are not measured: memory is laid out and touched, threads start.
const WARM_UP: usize = 2;

/// Fewest runs measured of each caller.
const MIN_RUNS: usize = 5;

/// Most runs that are measured of each caller: more say nothing new.
const MAX_RUNS: usize = 1_000_000;

/// Times of runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Of each run of each caller, at least one.
    each: Vec<Duration>,
    /// Of all callers together.
    runs_per_s: f64,
}

/// What times come to.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "remote", derive(serde::Serialize, serde::Deserialize))]
pub struct Summary {
    /// The median.
    pub median: Duration,
    /// The least.
    pub least: Duration,
    /// Nine of ten runs take no longer.
    pub p90: Duration,
    /// How many runs there were.
    pub runs: usize,
    /// Runs a second of all callers together.
    pub runs_per_s: f64,
}

/// Lets callers run for some seconds, all at once, each on a thread of its own but the first; at least five times each.
///
/// # Errors
/// The first caller's that fails, in their order.
///
/// # Panics
/// Where a caller panics, with what it said.
pub fn measure<R, E>(seconds: f64, callers: Vec<R>) -> Result<Times, E>
where
    R: FnMut() -> Result<(), E> + Send,
    E: Send,
{
    let barrier = Barrier::new(callers.len());
    let mut callers = callers.into_iter();
    let (first, barrier) = (callers.next(), &barrier);
    let results: Vec<Result<Times, E>> = thread::scope(|scope| {
        let call = move |run| measure_one(seconds, run, barrier);
        let others: Vec<_> = callers.map(|run| scope.spawn(move || call(run))).collect();
        let first = first.map(call);
        let others =
            others.into_iter().map(|caller| caller.join().unwrap_or_else(|panic| resume_unwind(panic)));
        first.into_iter().chain(others).collect()
    });
    let mut all = Times { each: Vec::new(), runs_per_s: 0.0 };
    for times in results {
        let Times { each, runs_per_s } = times?;
        all.each.extend(each);
        all.runs_per_s += runs_per_s;
    }
    Ok(all)
}

fn measure_one<E>(
    seconds: f64,
    mut run: impl FnMut() -> Result<(), E>,
    barrier: &Barrier,
) -> Result<Times, E> {
    let warm = catch_unwind(AssertUnwindSafe(|| (0..WARM_UP).try_for_each(|_| run())));
    // Also after a failure: the others wait.
    barrier.wait();
    warm.unwrap_or_else(|panic| resume_unwind(panic))?;
    let mut each = Vec::with_capacity(1 << 12);
    let start = Instant::now();
    while each.len() < MIN_RUNS || (start.elapsed().as_secs_f64() < seconds && each.len() < MAX_RUNS) {
        let begin = Instant::now();
        run()?;
        each.push(begin.elapsed());
    }
    let runs_per_s = each.len() as f64 / start.elapsed().as_secs_f64();
    Ok(Times { each, runs_per_s })
}

impl Times {
    /// Of each run of each caller.
    pub fn each(&self) -> &[Duration] {
        &self.each
    }

    /// Order statistics of the times; zeros where there was no caller.
    pub fn summary(&self) -> Summary {
        let mut times = self.each.clone();
        times.sort_unstable();
        let n = times.len();
        let at = |i: usize| times.get(i).copied().unwrap_or_default();
        Summary {
            median: (at(n.saturating_sub(1) / 2) + at(n / 2)) / 2,
            least: at(0),
            p90: at((n * 9).div_ceil(10).saturating_sub(1)),
            runs: n,
            runs_per_s: self.runs_per_s,
        }
    }
}

/// Times of two callers that ran by turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    /// Of each turn, at least one: the first caller's run and the second one's.
    pairs: Vec<[Duration; 2]>,
}

/// Lets two callers run by turns for some seconds, at least five times each, so that what else the machine does disturbs both alike.
/// Which of them goes first changes from turn to turn.
///
/// # Errors
/// That of the caller that fails first.
pub fn by_turns<E>(
    seconds: f64,
    mut first: impl FnMut() -> Result<(), E>,
    mut second: impl FnMut() -> Result<(), E>,
) -> Result<Turns, E> {
    for _ in 0..WARM_UP {
        first()?;
        second()?;
    }
    let mut pairs = Vec::new();
    let start = Instant::now();
    while pairs.len() < MIN_RUNS || (start.elapsed().as_secs_f64() < seconds && pairs.len() < MAX_RUNS) {
        pairs.push(match pairs.len() % 2 {
            0 => {
                let first = timed(&mut first)?;
                [first, timed(&mut second)?]
            }
            _ => {
                let second = timed(&mut second)?;
                [timed(&mut first)?, second]
            }
        });
    }
    Ok(Turns { pairs })
}

fn timed<E>(run: &mut impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    run()?;
    Ok(begin.elapsed())
}

impl Turns {
    /// The median time of each caller.
    pub fn medians(&self) -> [Duration; 2] {
        [0, 1].map(|caller| {
            let each = self.pairs.iter().map(|pair| pair[caller]).collect();
            Times { each, runs_per_s: 0.0 }.summary().median
        })
    }

    /// The second caller's time as a part of the first one's: the median over the turns.
    pub fn ratio(&self) -> f64 {
        let mut ratios: Vec<f64> =
            self.pairs.iter().map(|[first, second]| second.as_secs_f64() / first.as_secs_f64()).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |i: usize| ratios.get(i).copied().unwrap_or(1.0);
        (at(ratios.len().saturating_sub(1) / 2) + at(ratios.len() / 2)) / 2.0
    }
}

/// The most memory that this process has held, in bytes, where the system tells.
pub fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// A time as people read it: in microseconds below a millisecond.
pub fn for_people(time: Duration) -> String {
    match time.as_secs_f64() * 1e3 {
        ms if ms < 1.0 => format!("{:.2} us", ms * 1e3),
        ms => format!("{ms:.3} ms"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn people_read_small_times_in_microseconds() {
        let told = [6_019, 999_400, 1_540_000, 90_000_000].map(|ns| for_people(Duration::from_nanos(ns)));
        assert_eq!(told, ["6.02 us", "999.40 us", "1.540 ms", "90.000 ms"]);
    }

    #[test]
    fn summaries_are_order_statistics_of_the_times() {
        let each = [5, 1, 4, 2, 3, 6, 10, 8, 9, 7].map(Duration::from_millis).to_vec();
        let summary = Times { each, runs_per_s: 181.8 }.summary();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        assert_eq!((ms(summary.median), ms(summary.least), ms(summary.p90)), (5.5, 1.0, 9.0));
        assert_eq!((summary.runs, summary.runs_per_s), (10, 181.8));
        assert_eq!(Times { each: vec![], runs_per_s: 0.0 }.summary().median, Duration::ZERO);
    }

    #[test]
    fn few_slow_runs_are_still_enough() {
        let n = AtomicUsize::new(0);
        let caller = || {
            n.fetch_add(1, Ordering::Relaxed);
            Ok::<_, ()>(())
        };
        let times = measure(0.0, vec![caller; 3]).unwrap();
        assert_eq!((times.each().len(), n.into_inner()), (3 * MIN_RUNS, 3 * (MIN_RUNS + WARM_UP)));
        assert!(times.summary().runs_per_s > 0.0);
    }

    #[test]
    fn a_caller_that_fails_ends_the_measurement() {
        let caller = |fails: bool| move || if fails { Err("no") } else { Ok(()) };
        assert_eq!(measure(0.0, vec![caller(false), caller(true)]), Err("no"));
    }

    #[test]
    fn turns_have_as_many_runs_of_both() {
        let [first, second] = [(); 2].map(|()| AtomicUsize::new(0));
        let run = |n: &AtomicUsize| {
            n.fetch_add(1, Ordering::Relaxed);
            Ok::<_, ()>(())
        };
        let turns = by_turns(0.0, || run(&first), || run(&second)).unwrap();
        assert_eq!(turns.pairs.len(), MIN_RUNS);
        assert_eq!((first.into_inner(), second.into_inner()), (MIN_RUNS + WARM_UP, MIN_RUNS + WARM_UP));
        assert_eq!(by_turns(0.0, || Ok(()), || Err("no")), Err("no"));
    }

    #[test]
    fn one_slow_turn_changes_no_median() {
        let pairs = [[10, 5], [10, 6], [1000, 1], [10, 7], [10, 900]];
        let turns = Turns { pairs: pairs.map(|pair| pair.map(Duration::from_millis)).to_vec() };
        assert_eq!(turns.medians(), [10, 6].map(Duration::from_millis));
        assert_eq!(turns.ratio(), 0.6);
    }

    /// The others would wait for it.
    #[test]
    fn a_caller_that_panics_ends_the_measurement() {
        let caller = |panics: bool| move || if panics { panic!("no") } else { Ok::<_, ()>(()) };
        let measured = catch_unwind(|| measure(0.0, vec![caller(false), caller(true)]));
        assert_eq!(measured.unwrap_err().downcast_ref(), Some(&"no"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_holds_memory() {
        assert!(peak_bytes() > Some(1 << 16));
    }
}
