//! The options of a compilation, shared by every verb that compiles.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use tilewright_driver::tune::Lookup;
use tilewright_driver::{Cache, CodegenKind, Compiler, DimOption, Numerics, Options, records};

use crate::failure::{Exit, Failure};
use crate::output;

/// How long a search takes unless told otherwise.
pub(crate) const DEFAULT_SECONDS: f64 = 180.0;

/// A number of seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let valid = text.parse().ok().filter(|s: &f64| (0.0..=31_536_000.0).contains(s));
    valid.ok_or_else(|| "not a number of seconds".to_string())
}

/// Most threads that make any sense.
const MAX_THREADS: usize = 4096;

/// Parses a number of threads.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MAX_THREADS) => Ok(n),
        _ => Err(format!("not a number from 1 to {MAX_THREADS}")),
    }
}

/// Options of a compilation; usage errors where an artifact is given, which is compiled already.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Compilation")]
pub(crate) struct CompileArgs {
    /// Machine to compile for: a name that `tilewright targets` lists; of several, with commas between, the artifact
    /// holds code for each, and the best that a machine can run is taken there [default: cpu]
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// What makes the machine code [default: the best of this build]
    #[arg(long, value_enum)]
    codegen: Option<CodegenArg>,
    /// What to optimise for, and how long [default: default]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Reassociated reductions and fast algorithms within the documented error, or direct ones only:
    /// `default` or `strict` [default: default]
    #[arg(long, value_name = "NUMERICS")]
    numerics: Option<Numerics>,
    /// Value or bounds of an open dimension, one without a name being INPUT[AXIS]; with a step, its multiples within the
    /// bounds get programs of their own, which are faster than that for all extents
    #[arg(long = "dim", value_name = "NAME=N|LO..HI[:STEP]")]
    dims: Vec<String>,
    /// Compile every function afresh, and keep none (see `tilewright cache`)
    #[arg(long)]
    no_cache: bool,
    /// Use no records of tuning
    #[arg(long, conflicts_with = "database")]
    no_database: bool,
    /// Records of tuning: a file that `tilewright tune` adds to, and that schedules functions before those that come
    /// with this program do [default: $TILEWRIGHT_DATABASE, else tilewright/tuning.jsonl in $XDG_DATA_HOME]
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    /// Seconds that `--mode max-autotune` searches [default: 180]
    #[arg(long, value_name = "S", value_parser = seconds)]
    tune_time: Option<f64>,
    /// Graph passes to run (+NAME) or to leave out (-NAME)
    #[arg(long = "pass", value_name = "+NAME,-NAME", allow_hyphen_values = true)]
    passes: Vec<String>,
    /// Seconds for which graph passes begin; after that only those that others rely on run, once
    #[arg(long, value_name = "S", value_parser = seconds)]
    pass_timeout: Option<f64>,
    /// Print a stage, or the graph after a graph pass, to standard error; `all` prints every stage
    #[arg(long, value_name = "STAGE|PASS", value_delimiter = ',')]
    pub(crate) dump_after: Vec<String>,
}

/// What runs the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CodegenArg {
    /// LLVM: the fastest code
    Llvm,
    /// Cranelift: compiles fast, needs nothing but Rust
    Cranelift,
    /// The text of a C program, for `compile --emit c` alone
    C,
    /// No code: the interpreter that defines what operators mean, to compare with; slow
    Interpreter,
}

/// What to optimise for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Good code quickly
    Default,
    /// Least time between kernels, and between runs that follow one another soon: threads wait awake, and GPUs are given graphs
    ReduceOverhead,
    /// Search for the fastest schedules first, as `tilewright tune` does
    MaxAutotune,
}

impl CompileArgs {
    /// The same for a target, unless they have one.
    pub(crate) fn or_target(self, target: &str) -> CompileArgs {
        CompileArgs { target: self.target.or_else(|| Some(target.to_string())), ..self }
    }

    /// Whether they name a target.
    pub(crate) fn has_target(&self) -> bool {
        self.target.is_some()
    }

    /// Whether the model is to be interpreted instead of compiled.
    pub(crate) fn interpret(&self) -> bool {
        self.codegen == Some(CodegenArg::Interpreter)
    }

    /// The library's options.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        if self.tune_time.is_some() && self.search_time().is_none() {
            return Err(Failure::usage("--tune-time is for --mode max-autotune"));
        }
        let compiler = Compiler::new().codegen(self.best_codegen()?);
        let compiler = compiler.target(self.target.as_deref().unwrap_or("cpu"))?;
        let mut options = compiler.options().clone();
        options.numerics = self.numerics.unwrap_or_default();
        options.passes.selection.clone_from(&self.passes);
        options.passes.limit = self.pass_timeout.map(Duration::from_secs_f64);
        options.dims = self.dims()?;
        options.keep_awake = self.mode == Some(Mode::ReduceOverhead);
        options.cache = self.cache()?;
        options.records = Arc::new(self.records()?);
        Ok(options)
    }

    /// The records of tuning to schedule by. A file that the user has not named is not worth a failure.
    fn records(&self) -> Result<Lookup, Failure> {
        match &self.database {
            _ if self.no_database => Ok(Lookup::default()),
            Some(path) => Ok(records::lookup(Some(path))?),
            None => records::lookup(records::of_user().as_deref()).or_else(|error| {
                output::note(&format!("{error}: compiling without your records of tuning\n"));
                Ok(records::lookup(None)?)
            }),
        }
    }

    /// The cache to use, if any.
    fn cache(&self) -> Result<Option<Cache>, Failure> {
        match self.no_cache {
            true => Ok(None),
            false => Cache::of_user().map_err(Failure::usage),
        }
    }

    /// Whether there is a cache with functions that LLVM has made: a build without LLVM takes them.
    fn has_functions_of_llvm(&self) -> Result<bool, Failure> {
        Ok(self.cache()?.is_some_and(|cache| cache.generator().is_some()))
    }

    /// What is known of open dimensions.
    fn dims(&self) -> Result<Vec<DimOption>, Failure> {
        let mut dims: Vec<DimOption> = Vec::new();
        let mut problems = Vec::new();
        for text in &self.dims {
            match text.parse::<DimOption>() {
                Ok(dim) if dims.iter().any(|other| other.name == dim.name) => {
                    problems.push(format!("--dim {} is given twice", dim.name));
                }
                Ok(dim) => dims.push(dim),
                Err(problem) => problems.push(format!("--dim {problem}")),
            }
        }
        if problems.is_empty() { Ok(dims) } else { Err(Failure::usage(problems.join("\n"))) }
    }

    /// How long to search for schedules before compiling, if at all.
    pub(crate) fn search_time(&self) -> Option<Duration> {
        let seconds = self.tune_time.unwrap_or(DEFAULT_SECONDS);
        (self.mode == Some(Mode::MaxAutotune)).then(|| Duration::from_secs_f64(seconds))
    }

    /// The file of the user's records; nothing where none are to be used, or the system names no place for them.
    pub(crate) fn database_path(&self) -> Option<PathBuf> {
        if self.no_database { None } else { self.database.clone().or_else(records::of_user) }
    }

    /// Whether no records are to be used.
    pub(crate) fn uses_no_records(&self) -> bool {
        self.no_database
    }

    /// The code generator that was named.
    pub(crate) fn codegen(&self) -> Option<CodegenKind> {
        match self.codegen? {
            CodegenArg::Llvm => Some(CodegenKind::Llvm),
            CodegenArg::Cranelift => Some(CodegenKind::Cranelift),
            CodegenArg::C => Some(CodegenKind::C),
            CodegenArg::Interpreter => None,
        }
    }

    /// What makes the machine code.
    fn best_codegen(&self) -> Result<CodegenKind, Failure> {
        match self.codegen {
            Some(CodegenArg::Llvm)
                if Options::best_codegen() != CodegenKind::Llvm && !self.has_functions_of_llvm()? =>
            {
                let message = "the code generator llvm is not in this build: install LLVM 22 and build with the \
                               feature `llvm` (`cargo xtask setup` does both), use --codegen cranelift, or set \
                               TILEWRIGHT_CACHE_DIR to a cache of such a build";
                Err(Failure::new(Exit::Unsupported, message))
            }
            _ => Ok(self.codegen().unwrap_or_else(Options::best_codegen)),
        }
    }

    /// A usage error if any option was given, for a model that is compiled already.
    pub(crate) fn refuse(&self, why: &str) -> Result<(), Failure> {
        let CompileArgs {
            target,
            codegen,
            mode,
            numerics,
            dims,
            no_cache,
            no_database,
            database,
            tune_time,
            passes,
            pass_timeout,
            dump_after,
        } = self;
        let given = [
            (target.is_some(), "--target"),
            (codegen.is_some(), "--codegen"),
            (mode.is_some(), "--mode"),
            (numerics.is_some(), "--numerics"),
            (!dims.is_empty(), "--dim"),
            (*no_cache, "--no-cache"),
            (*no_database, "--no-database"),
            (database.is_some(), "--database"),
            (tune_time.is_some(), "--tune-time"),
            (!passes.is_empty(), "--pass"),
            (pass_timeout.is_some(), "--pass-timeout"),
            (!dump_after.is_empty(), "--dump-after"),
        ];
        let names: Vec<&str> = given.iter().filter(|(given, _)| *given).map(|&(_, name)| name).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!("{}: options of compilation, but {why}", names.join(", "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_a_sensible_number() {
        assert_eq!(threads("2"), Ok(2));
        for text in ["0", "-1", "x", "999999"] {
            assert!(threads(text).is_err(), "{text}");
        }
    }
}
