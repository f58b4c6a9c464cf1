//! What to compile for, and how.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tilewright_machine::{CodegenKind, Target};
use tilewright_tune::Lookup;

use crate::cache::Cache;

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
    /// Whether to verify the graph after every pass.
    pub verify_passes: bool,
    /// Threads that the compiler uses; the result does not depend on it.
    pub jobs: usize,
    /// Where compiled functions are kept and looked for; the result does not depend on it. The default is
    /// nowhere: a library does not write to its user's disk unasked.
    pub cache: Option<Cache>,
    /// Records of tuning that functions are scheduled by.
    pub records: Arc<Lookup>,
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

/// `NAME=N` or `NAME=LO..HI[:STEP]`: the value or range of an open dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DimOption {
    /// The dimension's name, or `INPUT[AXIS]` for one without a name.
    pub name: String,
    /// Least value.
    pub lo: i64,
    /// Greatest value; equal to `lo` for a fixed dimension.
    pub hi: i64,
    /// Distance of neighbouring values.
    pub step: i64,
}

/// What a compilation reports while it runs.
pub trait Observer {
    /// A step of the road begins.
    fn step(&mut self, _name: &'static str) {}
    /// A step has ended.
    fn step_done(&mut self, _name: &'static str, _elapsed: Duration) {}
    /// A stage can be shown: `text` makes its text form.
    fn stage(&mut self, _name: &str, _text: &dyn Fn() -> String) {}
    /// Whether one of the stages `rules`, `schedule` and `kernels` will be shown: then every function is scheduled, and
    /// none taken from the cache.
    fn shows_schedules(&self) -> bool {
        false
    }
    /// Something is amiss that does not stop the compilation.
    fn warning(&mut self, _text: &str) {}
    /// `done` of `total` kernels are generated.
    fn kernels(&mut self, _done: usize, _total: usize) {}
}

impl Observer for () {}

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
            verify_passes: false,
            jobs,
            cache: None,
            records: Arc::default(),
        }
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

impl FromStr for DimOption {
    type Err = String;

    fn from_str(text: &str) -> Result<DimOption, String> {
        let usage = || format!("`{text}` is not NAME=N or NAME=LO..HI[:STEP]");
        let (name, value) = text.rsplit_once('=').ok_or_else(usage)?;
        let number = |s: &str| s.trim().parse::<i64>().ok().filter(|&n| n >= 0).ok_or_else(usage);
        let (lo, hi, step) = match value.split_once("..") {
            None => (number(value)?, number(value)?, 1),
            Some((lo, rest)) => match rest.split_once(':') {
                None => (number(lo)?, number(rest)?, 1),
                Some((hi, step)) => (number(lo)?, number(hi)?, number(step)?),
            },
        };
        if name.is_empty() || lo > hi || step == 0 {
            return Err(usage());
        }
        Ok(DimOption { name: name.to_string(), lo, hi, step })
    }
}

impl fmt::Display for DimOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimOption { name, lo, hi, .. } if lo == hi => write!(f, "{name}={lo}"),
            DimOption { name, lo, hi, step: 1 } => write!(f, "{name}={lo}..{hi}"),
            DimOption { name, lo, hi, step } => write!(f, "{name}={lo}..{hi}:{step}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dim_options_parse_and_print() {
        for text in ["batch=1", "seq=1..512", "seq=128..512:128", "input[0]=3"] {
            assert_eq!(text.parse::<DimOption>().map(|d| d.to_string()), Ok(text.to_string()));
        }
        for text in ["batch", "=3", "seq=5..1", "seq=1..4:0", "seq=-1", "seq=x"] {
            assert!(text.parse::<DimOption>().is_err(), "{text}");
        }
    }
}
