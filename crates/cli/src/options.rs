//! The options of a compilation, shared by every verb that compiles.

use clap::ValueEnum;
use tilewright::{Cache, CodegenKind, DimOption, Numerics, Options, Target};

use crate::failure::{Exit, Failure};

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
    /// Value or range of an open dimension; one without a name is INPUT[AXIS]
    #[arg(long = "dim", value_name = "NAME=N|LO..HI[:STEP]")]
    dims: Vec<DimOption>,
    /// Compile every function afresh, and keep none (see `tilewright cache`)
    #[arg(long)]
    no_cache: bool,
    /// Use no records of tuning
    #[arg(long)]
    no_database: bool,
    /// Print a stage to standard error; `all` prints every one
    #[arg(long, value_name = "STAGE", value_delimiter = ',')]
    pub(crate) dump_after: Vec<String>,
    /// Verify the graph after every pass
    #[arg(long)]
    verify_passes: bool,
}

/// What runs the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CodegenArg {
    /// LLVM: the fastest code
    Llvm,
    /// Cranelift: compiles fast, needs nothing but Rust
    Cranelift,
    /// No code: the interpreter that defines what operators mean, to compare with; slow
    Interpreter,
}

/// What to optimise for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Good code quickly
    Default,
    /// Least time between kernels (not built yet)
    ReduceOverhead,
    /// Search for the best schedules (not built yet)
    MaxAutotune,
}

impl CompileArgs {
    /// Whether the model is to be interpreted instead of compiled.
    pub(crate) fn interpret(&self) -> bool {
        self.codegen == Some(CodegenArg::Interpreter)
    }

    /// The library's options.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        match self.mode {
            None | Some(Mode::Default) => {}
            Some(Mode::ReduceOverhead) => return Err(Failure::not_built("--mode reduce-overhead")),
            Some(Mode::MaxAutotune) => return Err(Failure::not_built("--mode max-autotune")),
        }
        let mut targets = self.targets()?;
        let mut options = Options::for_target(targets.remove(0));
        options.more_targets = targets;
        options.numerics = self.numerics.unwrap_or_default();
        options.verify_passes = self.verify_passes;
        options.dims = self.dims.clone();
        if !self.no_cache {
            options.cache = Cache::of_user().map_err(Failure::usage)?;
        }
        for (i, dim) in self.dims.iter().enumerate() {
            if self.dims[..i].iter().any(|other| other.name == dim.name) {
                return Err(Failure::usage(format!("--dim {} is given twice", dim.name)));
            }
        }
        Ok(options)
    }

    /// What to compile for, at least one.
    fn targets(&self) -> Result<Vec<Target>, Failure> {
        let codegen = match self.codegen {
            Some(CodegenArg::Llvm) if Options::best_codegen() != CodegenKind::Llvm => {
                let message = "the code generator llvm is not in this build: install LLVM 22 and build with the \
                               feature `llvm` (`cargo xtask setup` does both), or use --codegen cranelift";
                return Err(Failure::new(Exit::Unsupported, message));
            }
            Some(CodegenArg::Llvm) => CodegenKind::Llvm,
            Some(CodegenArg::Cranelift) => CodegenKind::Cranelift,
            None | Some(CodegenArg::Interpreter) => Options::best_codegen(),
        };
        let name = self.target.as_deref().unwrap_or("cpu");
        let mut targets: Vec<Target> = Vec::new();
        for name in name.split(',').map(str::trim) {
            if name == "cuda" || name.starts_with("cuda:") {
                return Err(Failure::not_built("--target cuda"));
            }
            let target = Target::parse(name, codegen).map_err(Failure::usage)?;
            // By the same features the loader could not choose.
            let machine = &target.machine;
            let is_same =
                |t: &Target| t.machine.arch == machine.arch && t.machine.features == machine.features;
            if targets.iter().any(is_same) {
                return Err(Failure::usage(format!(
                    "--target: {name} has the features of another one in the list"
                )));
            }
            targets.push(target);
        }
        Ok(targets)
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
            dump_after,
            verify_passes,
        } = self;
        let given = [
            (target.is_some(), "--target"),
            (codegen.is_some(), "--codegen"),
            (mode.is_some(), "--mode"),
            (numerics.is_some(), "--numerics"),
            (!dims.is_empty(), "--dim"),
            (*no_cache, "--no-cache"),
            (*no_database, "--no-database"),
            (!dump_after.is_empty(), "--dump-after"),
            (*verify_passes, "--verify-passes"),
        ];
        let names: Vec<&str> = given.iter().filter(|(given, _)| *given).map(|&(_, name)| name).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!("{}: options of compilation, but {why}", names.join(", "))))
    }
}
