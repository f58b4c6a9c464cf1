//! What to compile for, and how.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tilewright_graph::pass::UserPass;
use tilewright_machine::{CodegenKind, Target};
use tilewright_runtime::Cancel;
use tilewright_te::flatten;
use tilewright_tune::Lookup;

use crate::cache::Cache;
use crate::parallel::Jobs;

/// Options of a compilation. The artifact's bytes are a function of these, the model and the compiler.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine and code generator.
    pub target: Target,
    /// Others to compile for as well: the artifact holds the code for each, and the loader takes that which uses most
    /// of the machine it is on.
    pub more_targets: Vec<Target>,
    /// The numerics contract.
    pub numerics: Numerics,
    /// What is known of open dimensions.
    pub dims: Vec<DimOption>,
    /// Whether threads stay awake during runs and between those that follow one another soon: less latency, at the cost of
    /// processors that wait at full speed.
    pub keep_awake: bool,
    /// Which graph passes run, and those of the user.
    pub passes: Passes,
    /// Threads that the compiler uses; the result does not depend on it.
    pub jobs: usize,
    /// Where compiled functions are kept and looked for; the result does not depend on it. The default is
    /// nowhere: a library does not write to its user's disk unasked.
    pub cache: Option<Cache>,
    /// Records of tuning that functions are scheduled by.
    pub records: Arc<Lookup>,
    /// Asks the compilation to stop, from any thread: it does as soon as the functions in work are done.
    pub cancel: Cancel,
}

/// Which reassociations and algorithms are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numerics {
    /// Reassociated reductions and fast algorithms within the documented error.
    #[default]
    Default,
    /// Direct algorithms only.
    Strict,
}

/// Which graph passes run, for how long they begin, and which there are beside the compiler's own.
#[derive(Clone, Debug, Default)]
pub struct Passes {
    /// `+NAME` or `-NAME`, or several with commas between: passes that are to run, or not to.
    pub selection: Vec<String>,
    /// For how long passes begin; those that others rely on run once all the same.
    pub limit: Option<Duration>,
    /// The user's passes on the graph as imported, in order.
    pub first: Vec<UserPass>,
    /// The user's passes on the simplified graph, in order; what they leave is simplified again.
    pub last: Vec<UserPass>,
}

/// `NAME=N` or `NAME=LO..HI[:STEP]`: what is known of an open dimension, and which of its extents matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DimOption {
    /// The dimension's name, or `INPUT[AXIS]` for one without a name.
    pub name: String,
    /// Least value.
    pub lo: i64,
    /// Greatest value; equal to `lo` for a fixed dimension.
    pub hi: i64,
    /// Programs are specialised for the multiples of this from `lo` to `hi`, but for 0; for none without.
    pub step: Option<i64>,
}

/// What a compilation reports while it runs.
pub trait CompileObserver {
    /// A step of the road begins.
    fn step(&mut self, _name: &'static str) {}
    /// A step has ended.
    fn step_done(&mut self, _name: &'static str, _elapsed: Duration) {}
    /// A stage can be shown: `text` makes its text form.
    fn stage(&mut self, _name: &str, _text: &dyn Fn() -> String) {}
    /// A pass has run on the graph, and may again: whether it changed it, and `text` makes the graph's text form.
    fn pass(&mut self, _name: &str, _changed: bool, _text: &dyn Fn() -> String) {}
    /// Whether a stage of scheduling will be shown ([`is_schedule_stage`]): then every function is scheduled, and none
    /// taken from the cache.
    fn shows_schedules(&self) -> bool {
        false
    }
    /// Something is amiss that does not stop the compilation.
    fn warning(&mut self, _text: &str) {}
    /// Something is worth knowing.
    fn remark(&mut self, _text: &str) {}
    /// `done` of `total` kernels are generated.
    fn kernels(&mut self, _done: usize, _total: usize) {}
}

impl CompileObserver for () {}

/// Whether a stage shows functions that are scheduled now: `rules`, `strategies`, `schedule`, `kernels`, or a pass between the last two.
pub fn is_schedule_stage(name: &str) -> bool {
    matches!(name, "rules" | "strategies" | "schedule" | "kernels") || flatten::PASSES.contains(&name)
}

impl Options {
    /// The defaults for a code generator on this machine.
    pub fn host(codegen: CodegenKind) -> Options {
        Options::for_target(Target::host(codegen))
    }

    /// The defaults for a target.
    pub fn for_target(target: Target) -> Options {
        let jobs = tilewright_runtime::threads::available_threads();
        Options {
            target,
            more_targets: Vec::new(),
            numerics: Numerics::Default,
            dims: Vec::new(),
            keep_awake: false,
            passes: Passes::default(),
            jobs,
            cache: None,
            records: Arc::default(),
            cancel: Cancel::new(),
        }
    }

    /// How the compilation's work is done.
    pub(crate) fn work(&self) -> Jobs {
        Jobs::new(self.jobs, self.cancel.clone())
    }

    /// Everything to compile for.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.target).chain(&self.more_targets)
    }

    /// The best code generator of this build.
    pub fn best_codegen() -> CodegenKind {
        if tilewright_llvm::is_available() { CodegenKind::Llvm } else { CodegenKind::Cranelift }
    }
}

impl FromStr for Numerics {
    type Err = String;

    fn from_str(text: &str) -> Result<Numerics, String> {
        match text {
            "default" => Ok(Numerics::Default),
            "strict" => Ok(Numerics::Strict),
            _ => Err(format!("unknown numerics `{text}`: default or strict")),
        }
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Numerics::Default => "default",
            Numerics::Strict => "strict",
        })
    }
}

impl DimOption {
    /// Whether it leaves nothing open.
    pub fn is_fixed(&self) -> bool {
        self.lo == self.hi
    }

    /// Everything that is wrong with it.
    pub fn problems(&self) -> Vec<String> {
        let DimOption { name, lo, hi, step } = self;
        let mut problems = Vec::new();
        if name.is_empty() {
            problems.push("the dimension has no name".to_string());
        }
        if *lo < 0 {
            problems.push("an extent cannot be negative".to_string());
        }
        if lo > hi {
            problems.push(format!("the lower bound {lo} is above the upper bound {hi}"));
        }
        match step {
            Some(step) if *step < 1 => problems.push("the step must be at least 1".to_string()),
            Some(step) if lo < hi && self.n_specialised() == 0 => problems.push(format!(
                "no multiple of {step} lies from {} to {hi}: give a smaller step, or none",
                (*lo).max(1)
            )),
            Some(_) | None => {}
        }
        problems
    }

    /// How many extents it is specialised for.
    pub(crate) fn n_specialised(&self) -> u64 {
        match self.step {
            Some(step) if !self.is_fixed() && step > 0 && self.hi > 0 => {
                (self.hi / step - (self.lo.max(1) - 1) / step) as u64
            }
            _ => 0,
        }
    }

    /// The extents that it is specialised for, ascending.
    pub(crate) fn specialised(&self) -> impl Iterator<Item = i64> + use<> {
        let step = self.step.unwrap_or(1).max(1);
        let first = (self.lo.max(1) - 1) / step + 1;
        (first..).take(self.n_specialised() as usize).map(move |n| n * step)
    }
}

impl FromStr for DimOption {
    type Err = String;

    fn from_str(text: &str) -> Result<DimOption, String> {
        let usage = || format!("`{text}` is not NAME=N or NAME=LO..HI[:STEP], where each is a number");
        let (name, value) = text.rsplit_once('=').ok_or_else(usage)?;
        let number = |s: &str| s.trim().parse::<i64>().ok().ok_or_else(usage);
        let (lo, hi, step) = match value.split_once("..") {
            None => (number(value)?, number(value)?, None),
            Some((lo, rest)) => match rest.split_once(':') {
                None => (number(lo)?, number(rest)?, None),
                Some((hi, step)) => (number(lo)?, number(hi)?, Some(number(step)?)),
            },
        };
        let option = DimOption { name: name.to_string(), lo, hi, step };
        match &option.problems()[..] {
            [] => Ok(option),
            problems => Err(format!("`{text}`: {}", problems.join("; "))),
        }
    }
}

impl fmt::Display for DimOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimOption { name, lo, hi, .. } if lo == hi => write!(f, "{name}={lo}"),
            DimOption { name, lo, hi, step: None } => write!(f, "{name}={lo}..{hi}"),
            DimOption { name, lo, hi, step: Some(step) } => write!(f, "{name}={lo}..{hi}:{step}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dim_options_parse_and_print() {
        for text in ["batch=1", "seq=1..512", "seq=0..512", "seq=128..512:128", "input[0]=3", "n=1..8:1"] {
            assert_eq!(text.parse::<DimOption>().map(|d| d.to_string()), Ok(text.to_string()));
        }
    }

    #[test]
    fn what_is_wrong_with_a_dim_option_is_said_at_once() {
        for (text, said) in [
            ("batch", "is not NAME=N or NAME=LO..HI[:STEP]"),
            ("seq=x", "is not NAME=N"),
            ("seq=1..", "is not NAME=N"),
            ("seq=1..8:", "is not NAME=N"),
            ("=3", "has no name"),
            ("seq=-1", "cannot be negative"),
            ("seq=5..1", "the lower bound 5 is above the upper bound 1"),
            ("seq=1..4:0", "the step must be at least 1"),
            ("seq=5..1:0", "above the upper bound 1; the step must be at least 1"),
            ("seq=1..100:128", "no multiple of 128 lies from 1 to 100: give a smaller step, or none"),
            ("seq=0..100:128", "no multiple of 128 lies from 1 to 100"),
            ("seq=130..250:128", "no multiple of 128 lies from 130 to 250"),
        ] {
            let error = text.parse::<DimOption>().unwrap_err();
            assert!(error.contains(text) && error.contains(said), "{error}");
        }
    }

    #[test]
    fn programs_are_specialised_for_the_multiples_of_the_step() {
        let check = |text: &str, expect: &[i64]| {
            let option: DimOption = text.parse().unwrap();
            assert_eq!(option.specialised().collect::<Vec<_>>(), expect, "{text}");
            assert_eq!(option.n_specialised(), expect.len() as u64, "{text}");
        };
        check("seq=1..512:128", &[128, 256, 384, 512]);
        check("seq=0..300:100", &[100, 200, 300]);
        check("seq=128..129:128", &[128]);
        check("seq=2..4:1", &[2, 3, 4]);
        check("seq=1..512", &[]);
        check("seq=128", &[]);
        check("seq=128..128:128", &[]);
        let all: DimOption = format!("n=0..{}:1", i64::MAX).parse().unwrap();
        assert_eq!(all.n_specialised(), i64::MAX as u64);
    }
}
