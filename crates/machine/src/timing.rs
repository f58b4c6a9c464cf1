//! Timing: how fast a machine does what the cost model counts.
//!
//! Every number of a machine that schedules are priced by stands in a [`Timing`]. It is a data file a machine, with what it comes
//! from: `crates/machine/data/NAME.toml` is part of the compiler, and a file of one's own serves where a target names it
//! (`cpu;timing=FILE`). Cycles are those of a core at [`Timing::clock_ghz`]; a line is [`Caches::line`] bytes.
//!
//! `cargo xtask calibrate` measures a machine and writes such a file.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::caches::Caches;
use crate::feature::{Arch, Feature, FeatureSet};
use crate::processor::{Processor, ProcessorId};

/// What the cost model knows of a machine's speed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The file's name without its extension.
    pub name: String,
    /// The numbers.
    pub numbers: Numbers,
}

/// The numbers of a [`Timing`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// Cores that schedules provide parallel tasks for. Neither the number of cores of the compiling machine nor that of the threads
    /// that will run may change the code, so this is a constant of the file.
    pub cores: u32,
    /// Clock of a core, in GHz: what cycles are in seconds.
    pub clock_ghz: f64,
    /// Sizes of the data caches: those of [`Machine::caches`](crate::Machine::caches) where neither the system nor a target's text
    /// says otherwise.
    pub caches: Caches,
    /// A core's execution units.
    pub core: Core,
    /// First level of cache.
    pub l1: Level,
    /// Second level of cache.
    pub l2: Level,
    /// Third level of cache, which cores share; nothing where there is none.
    pub l3: Option<Level>,
    /// Main memory.
    pub memory: Level,
    /// What cores do together.
    pub threads: Threads,
}

/// A core's execution units. A vector is one of the widest registers that the target uses.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Core {
    /// Cycles from a multiply-add's accumulator to its result.
    pub fma_latency: u32,
    /// Multiply-adds of vectors started a cycle: their ports. Other operations on floats share these.
    pub fma_per_cycle: u32,
    /// Instructions in flight at most: the entries of the reorder buffer. What follows a chain of products starts within them.
    pub window: u32,
    /// Vectors loaded a cycle: the load ports.
    pub loads_per_cycle: f64,
    /// Vectors stored a cycle: the store ports.
    pub stores_per_cycle: f64,
    /// Cycles that a load adds to a step which the multiply-adds bound: it takes issue slots from them.
    pub load_cycles: f64,
    /// Accumulators that keep the multiply-adds' ports busy where each step waits for loads, over those that hide the latency of
    /// multiply-adds alone.
    pub accumulator_slack: f64,
    /// Cycles that a step of a register tile takes longer for each vector that no register is left for.
    pub spill_cycles: f64,
    /// Cycles of an access to a line that no access before it was near to.
    pub scattered_cycles: f64,
    /// Part of the shorter of two things that go on at the same time (arithmetic and a stream) that the longer does not hide.
    pub overlap_loss: f64,
    /// Cycles ahead of which software prefetches ask for a line of memory, so that it is there while memory is busy.
    pub prefetch_ahead_cycles: f64,
}

/// A level of memory, as one core sees it. What lines cost is beside the arithmetic that is done with them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// Cycles from a load to its use, where nothing has asked for the line before.
    pub latency_cycles: f64,
    /// Cycles a line costs in a stream that hardware or hints ask for in advance.
    pub stream_cycles: f64,
    /// Cycles that the begin of a run of lines costs which nothing announces.
    pub start_cycles: f64,
    /// The same of a run that goes on where one before it has ended: hardware has seen its lines come.
    pub resume_cycles: f64,
    /// Cycles in which one core gets a line at best, whatever is done meanwhile: [`Caches::line`] over the bandwidth of one core.
    pub line_cycles: f64,
    /// Lines that a set holds; 0 where the level has no sets (memory).
    #[serde(default)]
    pub ways: u32,
    /// Part of the level that what is meant to stay there may fill, so that it does while other data streams past.
    #[serde(default = "whole")]
    pub usable: f64,
    /// Whether a network of many cores lies before the level: prefetches hide little of what its lines cost.
    #[serde(default)]
    pub behind_network: bool,
}

/// What cores do together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Threads {
    /// Cycles in which a core gets a line that another core has just written.
    pub remote_line_cycles: f64,
    /// Cycles from the begin of a parallel loop until the other threads work, and from their end until all is done.
    pub dispatch_cycles: f64,
}

fn whole() -> f64 {
    1.0
}

/// Where the numbers of a file come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The machine they are of.
    pub machine: String,
    /// How they were found.
    pub method: Method,
    /// By whom or what: a program, or the author of a guide.
    pub by: String,
    /// When, as `YYYY-MM-DD`.
    pub date: String,
    /// What is not so: numbers taken from elsewhere, conditions of the measurement.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// How the numbers of a file were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// On the machine itself.
    Measured,
    /// In the maker's guide.
    Documented,
    /// Typical of several machines.
    Typical,
}

/// A file: a timing, what it comes from, and the processors that it is of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimingFile {
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// The processors that take this timing unless told otherwise.
    #[serde(default, rename = "processor", skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<Processor>,
    /// The numbers.
    pub timing: Numbers,
}

/// Why a text or file gives no timing: every problem, a line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("timing {of}: {}", problems.join("\n  "))]
pub struct TimingError {
    /// The file or name.
    pub of: String,
    /// What is wrong.
    pub problems: Vec<String>,
}

/// Declares the files that are part of the compiler.
macro_rules! committed {
    ($($name:literal),* $(,)?) => {
        /// Names of the timings that are part of the compiler, those of processors before those of instruction set levels.
        pub const TIMINGS: &[&str] = &[$($name),*];
        const TEXTS: &[&str] = &[$(include_str!(concat!("../data/", $name, ".toml"))),*];
    };
}

committed![
    "sapphire-rapids",
    "zen3",
    "zen4",
    "zen5",
    "cortex-a53",
    "cortex-a72",
    "cortex-a76",
    "neoverse-n1",
    "cortex-a7",
    "cortex-a15",
    "cortex-m4",
    "cortex-m7",
    "cortex-m55",
    "x86-64",
    "x86-64-v2",
    "x86-64-v3",
    "x86-64-v4",
    "aarch64",
    "riscv64",
];

/// The files of [`TIMINGS`], each read once.
static COMMITTED: LazyLock<Vec<TimingFile>> = LazyLock::new(|| {
    let read = |(name, text): (&&str, &&str)| TimingFile::parse(name, text);
    let files: Result<_, TimingError> = TIMINGS.iter().zip(TEXTS).map(read).collect();
    files.expect("a test reads every file that is part of the compiler")
});

impl Timing {
    /// The timing of that name among [`TIMINGS`].
    pub fn committed(name: &str) -> Option<Timing> {
        let file = TimingFile::committed(name)?;
        Some(Timing { name: name.to_owned(), numbers: file.timing.clone() })
    }

    /// The timing of the best instruction set level that these features make.
    pub(crate) fn of_level(arch: Arch, features: FeatureSet) -> Timing {
        let name = match arch {
            Arch::X86_64 if features.has(Feature::Avx512vl) => "x86-64-v4",
            Arch::X86_64 if features.has(Feature::Avx2) => "x86-64-v3",
            Arch::X86_64 if features.has(Feature::Sse42) => "x86-64-v2",
            Arch::X86_64 => "x86-64",
            Arch::Aarch64 => "aarch64",
            Arch::Armv7 => "cortex-a7",
            Arch::ThumbM => "cortex-m4",
            Arch::Riscv64 => "riscv64",
        };
        Timing::committed(name).expect("every level has a file")
    }

    /// The timing that a target's text names: one of [`TIMINGS`], a file, or the [`Timing::inline`] form.
    ///
    /// # Errors
    /// With every problem of what it names.
    pub fn named(text: &str) -> Result<Timing, TimingError> {
        if let Some((name, numbers)) = text.strip_suffix('}').and_then(|text| text.split_once('{')) {
            // The inline form is the table of the file, with spaces for ends of lines.
            let numbers = numbers.replace(' ', "\n");
            return Ok(Timing { name: name.to_owned(), numbers: Numbers::parse(name, &numbers)? });
        }
        match Timing::committed(text) {
            Some(timing) => Ok(timing),
            None => Timing::read(Path::new(text)),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// With every problem of the file.
    pub fn read(path: &Path) -> Result<Timing, TimingError> {
        let of = path.display().to_string();
        let fail = |problem: String| TimingError { of: of.clone(), problems: vec![problem] };
        let text = std::fs::read_to_string(path).map_err(|error| {
            fail(format!("{error}; timings that come with the compiler are {}", TIMINGS.join(", ")))
        })?;
        let file = TimingFile::parse(&of, &text)?;
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return Err(fail("the file's name may have letters, digits, `-`, `_` and `.` only".to_owned()));
        }
        Ok(Timing { name: name.to_owned(), numbers: file.timing })
    }

    /// Whether it is, number by number, that of the same name among [`TIMINGS`].
    pub fn is_committed(&self) -> bool {
        TimingFile::committed(&self.name).is_some_and(|file| file.timing == self.numbers)
    }

    /// The timing of a processor among [`TIMINGS`]: of a file that lists its model, else of one that lists its kind;
    /// nothing where there is none.
    pub fn of_processor(id: &ProcessorId) -> Option<Timing> {
        let is_listed = |lists_model: bool| {
            let is_of = move |file: &TimingFile| {
                let mut listed =
                    file.processors.iter().filter(|listed| listed.models.is_some() == lists_model);
                listed.any(|listed| listed.covers(id))
            };
            TIMINGS.iter().zip(&*COMMITTED).find(|(_, file)| is_of(file))
        };
        let (name, _) = is_listed(true).or_else(|| is_listed(false))?;
        Timing::committed(name)
    }

    /// The whole of it in one line that [`Timing::named`] reads: `NAME{KEY=VALUE ...}`.
    pub fn inline(&self) -> String {
        let numbers: Vec<String> =
            self.numbers.rows().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("{}{{{}}}", self.name, numbers.join(" "))
    }
}

/// The name of one that is part of the compiler, else the [inline](Timing::inline) form.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_committed() { f.write_str(&self.name) } else { f.write_str(&self.inline()) }
    }
}

/// All numbers are finite.
impl Eq for Timing {}

impl Hash for Timing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inline().hash(state);
    }
}

impl TimingFile {
    /// The file of that name that is part of the compiler.
    pub fn committed(name: &str) -> Option<&'static TimingFile> {
        let at = TIMINGS.iter().position(|other| *other == name)?;
        COMMITTED.get(at)
    }

    /// Reads the text of a file; `of` names it in errors.
    ///
    /// # Errors
    /// With every problem of the file.
    pub fn parse(of: &str, text: &str) -> Result<TimingFile, TimingError> {
        let fail = |problems: Vec<String>| TimingError { of: of.to_owned(), problems };
        let file: TimingFile =
            toml::from_str(text).map_err(|error| fail(vec![error.to_string().trim().to_owned()]))?;
        let problems = file.timing.problems();
        if problems.is_empty() { Ok(file) } else { Err(fail(problems)) }
    }

    /// The text of the file.
    ///
    /// # Errors
    /// Where it has no text: a defect.
    pub fn text(&self) -> Result<String, TimingError> {
        toml::to_string(self).map_err(|error| TimingError {
            of: self.provenance.machine.clone(),
            problems: vec![error.to_string()],
        })
    }
}

impl Numbers {
    /// Reads lines `KEY=VALUE`.
    pub(crate) fn parse(of: &str, text: &str) -> Result<Numbers, TimingError> {
        let fail = |problems: Vec<String>| TimingError { of: of.to_owned(), problems };
        let numbers: Numbers =
            toml::from_str(text).map_err(|error| fail(vec![error.to_string().trim().to_owned()]))?;
        let problems = numbers.problems();
        if problems.is_empty() { Ok(numbers) } else { Err(fail(problems)) }
    }

    /// The levels of memory with their names, the nearest first.
    pub fn levels(&self) -> impl Iterator<Item = (&'static str, &Level)> {
        let named = [
            ("l1", Some(&self.l1)),
            ("l2", Some(&self.l2)),
            ("l3", self.l3.as_ref()),
            ("memory", Some(&self.memory)),
        ];
        named.into_iter().filter_map(|(name, level)| Some((name, level?)))
    }

    /// Every number by its key in a file, in the file's order.
    pub fn rows(&self) -> Vec<(String, String)> {
        let Numbers { cores, clock_ghz, caches, core, l1: _, l2: _, l3: _, memory: _, threads } = self;
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |key: &str, value: &dyn fmt::Debug| rows.push((key.to_owned(), format!("{value:?}")));
        row("cores", cores);
        row("clock_ghz", clock_ghz);
        row("caches.l1d", &caches.l1d);
        row("caches.l2", &caches.l2);
        row("caches.l3", &caches.l3);
        row("caches.line", &caches.line);
        row("core.fma_latency", &core.fma_latency);
        row("core.fma_per_cycle", &core.fma_per_cycle);
        row("core.window", &core.window);
        row("core.loads_per_cycle", &core.loads_per_cycle);
        row("core.stores_per_cycle", &core.stores_per_cycle);
        row("core.load_cycles", &core.load_cycles);
        row("core.accumulator_slack", &core.accumulator_slack);
        row("core.spill_cycles", &core.spill_cycles);
        row("core.scattered_cycles", &core.scattered_cycles);
        row("core.overlap_loss", &core.overlap_loss);
        row("core.prefetch_ahead_cycles", &core.prefetch_ahead_cycles);
        for (name, level) in self.levels() {
            let mut row = |key: &str, value: &dyn fmt::Debug| row(&format!("{name}.{key}"), value);
            row("latency_cycles", &level.latency_cycles);
            row("stream_cycles", &level.stream_cycles);
            row("start_cycles", &level.start_cycles);
            row("resume_cycles", &level.resume_cycles);
            row("line_cycles", &level.line_cycles);
            row("ways", &level.ways);
            row("usable", &level.usable);
            row("behind_network", &level.behind_network);
        }
        row("threads.remote_line_cycles", &threads.remote_line_cycles);
        row("threads.dispatch_cycles", &threads.dispatch_cycles);
        rows
    }

    /// A number by its key in a file.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.rows().into_iter().find(|(other, _)| other == key)?.1.parse().ok()
    }

    /// The same with one number changed, whole numbers rounded; nothing where there is no such number, or it would be out of range.
    pub fn with(&self, key: &str, value: f64) -> Option<Numbers> {
        self.get(key)?;
        let line = |(other, text): (String, String)| match other == key {
            true if text.contains('.') => format!("{key}={value:?}\n"),
            true => format!("{key}={}\n", value.round()),
            false => format!("{other}={text}\n"),
        };
        Numbers::parse(key, &self.rows().into_iter().map(line).collect::<String>()).ok()
    }

    /// What is out of range.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value) in self.rows() {
            let (least, most) = range(&key);
            // What is no number has no range.
            let Ok(number) = value.parse::<f64>() else { continue };
            if !(least..=most).contains(&number) {
                problems.push(format!("{key} is {value}, and must be from {least} to {most}"));
            }
        }
        if (self.caches.l3 > 0) != self.l3.is_some() {
            problems
                .push("a third level has both its size, caches.l3, and its table, l3, or neither".to_owned());
        }
        problems
    }
}

/// The least and most that a number may be, by its key in a file.
fn range(key: &str) -> (f64, f64) {
    match key.rsplit_once('.').map_or(key, |(_, last)| last) {
        "cores" => (1.0, 65536.0),
        "clock_ghz" => (0.01, 10.0),
        "l1d" | "l2" => (1024.0, 1e12),
        "l3" => (0.0, 1e12),
        "line" => (16.0, 4096.0),
        "fma_latency" | "fma_per_cycle" => (1.0, 100.0),
        "window" => (1.0, 1e5),
        "loads_per_cycle" | "stores_per_cycle" => (0.01, 100.0),
        "accumulator_slack" => (1.0, 10.0),
        "overlap_loss" => (0.0, 1.0),
        "usable" => (0.01, 1.0),
        "ways" => (0.0, 1024.0),
        // Cycles.
        _ => (0.0, 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_compiler_is_sound() {
        for name in TIMINGS {
            let file = TimingFile::committed(name).unwrap();
            assert_eq!(TimingFile::parse(name, &file.text().unwrap()).as_ref(), Ok(file), "{name}");
            let date: Vec<&str> = file.provenance.date.split('-').collect();
            assert_eq!(date.iter().map(|part| part.len()).collect::<Vec<_>>(), [4, 2, 2], "{name}");
            let levels: Vec<&Level> = file.timing.levels().map(|(_, level)| level).collect();
            // What is farther is slower.
            assert!(levels.is_sorted_by(|a, b| a.latency_cycles < b.latency_cycles), "{name}");
            assert!(levels.is_sorted_by(|a, b| a.line_cycles <= b.line_cycles), "{name}");
            assert!(levels.is_sorted_by(|a, b| a.stream_cycles <= b.stream_cycles), "{name}");
        }
    }

    #[test]
    fn every_processor_has_one_file() {
        let files = TIMINGS.iter().map(|name| (name, TimingFile::committed(name).unwrap()));
        for (name, processor) in files.flat_map(|(name, file)| file.processors.iter().map(move |p| (name, p)))
        {
            let Processor { vendor, family, models, flags } = processor.clone();
            let id = ProcessorId { vendor, family, model: models.map(|[first, _]| first), flags };
            assert_eq!(Timing::of_processor(&id).unwrap().name, *name);
        }
        let unknown =
            ProcessorId { vendor: "Nobody".to_owned(), family: 1, model: Some(1), flags: Vec::new() };
        assert_eq!(Timing::of_processor(&unknown), None);
        // A virtual machine that says a model of its cloud's, but has the tiles of the family.
        let virtual_machine = ProcessorId {
            vendor: "GenuineIntel".to_owned(),
            family: 6,
            model: Some(167),
            flags: vec!["avx512f".to_owned(), "amx_tile".to_owned()],
        };
        assert_eq!(Timing::of_processor(&virtual_machine).unwrap().name, "sapphire-rapids");
    }

    /// Every field is among the rows: a file that lacks the row's key is no file, and the rows alone make one.
    #[test]
    fn rows_are_the_whole_of_it() {
        for name in TIMINGS {
            let timing = Timing::committed(name).unwrap();
            assert_eq!(timing.to_string(), *name);
            let mut changed = timing.clone();
            changed.name = "own".to_owned();
            assert_eq!(Timing::named(&changed.to_string()), Ok(changed.clone()), "{name}");
            assert!(!changed.to_string().contains([';', ',', '@', '\n']), "{changed}");
        }
    }

    #[test]
    fn a_number_that_differs_shows() {
        let mut timing = Timing::committed("zen3").unwrap();
        timing.numbers.l2.stream_cycles = 0.25;
        assert!(timing.to_string().contains("l2.stream_cycles=0.25"), "{timing}");
        assert_eq!(Timing::named(&timing.to_string()), Ok(timing));
    }

    #[test]
    fn numbers_go_by_their_keys() {
        let numbers = Timing::committed("zen3").unwrap().numbers;
        assert_eq!(numbers.get("l2.usable"), Some(0.6));
        assert_eq!(numbers.with("l2.usable", 0.5).map(|n| n.l2.usable), Some(0.5));
        assert_eq!(numbers.with("core.fma_latency", 4.6).map(|n| n.core.fma_latency), Some(5));
        assert_eq!((numbers.with("l2.usable", 1.5), numbers.with("l4.ways", 1.0)), (None, None));
    }

    #[test]
    fn all_problems_are_named() {
        let mut timing = Timing::committed("zen3").unwrap();
        timing.numbers.cores = 0;
        timing.numbers.memory.line_cycles = 1e9;
        timing.numbers.l3 = None;
        let error = Timing::named(&timing.inline()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "timing zen3: cores is 0, and must be from 1 to 65536\n  memory.line_cycles is 1000000000.0, and must be from 0 to 1000000\n  \
             a third level has both its size, caches.l3, and its table, l3, or neither"
        );
    }
}
