//! Errors of a compilation, by whose fault they are.

use tilewright_image::EmbedError;
use tilewright_lower::LowerError;
use tilewright_machine::{CodegenError, DeviceKind, TargetError};
use tilewright_onnx::import::Origins;
use tilewright_onnx::{ImportErrors, OnnxError};
use tilewright_run::files::FileError;
use tilewright_run::noise::NoiseError;
use tilewright_runtime::{LoadError, RunError, TensorError};
use tilewright_te::verify::Illegal;
use tilewright_tune::JournalError;

use crate::devices::DevicesError;
use crate::gap::{Gap, List, Stage};
use crate::library::straight::Obstacle;

/// What may go wrong on the road from a model to its outputs, for callers who do not tell its parts from one another.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model was not compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The artifact was not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A tensor was not made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The model did not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The device that is to run the model cannot be had.
    #[error(transparent)]
    Device(#[from] DevicesError),
    /// Tensors in files were not read.
    #[error(transparent)]
    Files(#[from] FileError),
    /// There is no noise in place of inputs.
    #[error(transparent)]
    Noise(#[from] NoiseError),
    /// A model without its graph, which the interpreter needs, and nothing else to compare with.
    #[error("a compiled model has no graph to interpret: compare it with outputs or with another model")]
    NoReference,
    /// Nothing to compare an output with.
    #[error("there is nothing to hold output {output:?} against")]
    Unpaired {
        /// Name of the output.
        output: String,
    },
}

/// The exit code of what was cancelled: that by which shells tell of a program that was interrupted.
const CANCELLED: u8 = 130;

/// Why a model could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The model file cannot be read or is no valid model.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// The model asks for what is not supported: every gap at once, in the order of the stages.
    #[error("{}", List(.0))]
    Gaps(Vec<Gap>),
    /// The model is not valid: every problem at once, with what is not supported beside them.
    #[error(transparent)]
    Import(ImportErrors),
    /// The model contradicts itself, as what is computed from its constants shows: every node at once.
    #[error("the model is not valid: {0}")]
    Invalid(String),
    /// The target is unknown or not in this build.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The code generator is not in this build, or failed.
    #[error(transparent)]
    Codegen(CodegenError),
    /// The code generator makes no machine code.
    #[error(
        "code for {target} is the text of a C program, which no artifact holds and nothing here runs: write it by \
         `tilewright compile --emit c`"
    )]
    NoMachineCode {
        /// The target.
        target: String,
    },
    /// A function that the cache did not have, of a code generator that is not in this build.
    #[error(
        "function `{function}` is not in the cache of compiled functions, and {source}; or take a cache in which such \
         a build has compiled this model for this target"
    )]
    NotKept {
        /// Name of the function.
        function: String,
        /// What is missing.
        source: CodegenError,
    },
    /// A search for schedules before the compilation.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The compilation was asked to stop, and did; nothing was written.
    #[error("the compilation was cancelled")]
    Cancelled,
    /// A pass of the user's own failed, or left a graph that is not valid.
    #[error("pass `{pass}`: {message}")]
    Pass {
        /// The pass.
        pass: String,
        /// What went wrong.
        message: String,
    },
    /// An option contradicts the model.
    #[error("{0}")]
    Option(String),
    /// The model cannot be a library.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A limit of the format was hit.
    #[error("{0}")]
    Limit(String),
    /// A defect of the compiler.
    #[error("internal error in {step}: {message}")]
    Internal {
        /// The step of the road.
        step: &'static str,
        /// What went wrong.
        message: String,
    },
    /// Functions that break the rules of their stage: defects of the compiler, all of a step at once.
    #[error("internal error in {step}: {}", functions.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Illegal {
        /// The step of the road.
        step: &'static str,
        /// What is wrong.
        functions: Vec<Illegal>,
    },
    /// The artifact cannot be written.
    #[error("cannot write {path}: {source}")]
    Output {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl CompileError {
    /// A defect of the compiler found in `step`.
    pub fn internal(step: &'static str, message: impl ToString) -> CompileError {
        CompileError::Internal { step, message: message.to_string() }
    }

    /// What lowering or the plan says of a graph.
    pub(crate) fn of_lowering(stage: Stage, error: LowerError) -> CompileError {
        match error {
            LowerError::Unsupported(gaps) => {
                let gap = |gap| Gap::of_graph(stage, gap, &Origins::default());
                CompileError::Gaps(gaps.into_iter().map(gap).collect())
            }
            LowerError::Internal(message) => CompileError::internal(stage.name(), message),
        }
    }

    /// Nothing where no function is illegal.
    pub(crate) fn illegal(step: &'static str, functions: Vec<Illegal>) -> Result<(), CompileError> {
        if functions.is_empty() { Ok(()) } else { Err(CompileError::Illegal { step, functions }) }
    }

    /// The exit code of the command line for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            CompileError::Option(_)
            | CompileError::Pass { .. }
            | CompileError::Target(_)
            | CompileError::NoMachineCode { .. } => 2,
            CompileError::Gaps(_)
            | CompileError::Codegen(CodegenError::Unavailable { .. } | CodegenError::Unsupported { .. })
            | CompileError::NotKept { .. } => 3,
            CompileError::Search(error) => error.exit_code(),
            CompileError::Library(error) => error.exit_code(),
            CompileError::Limit(_) | CompileError::Model(OnnxError::TooLarge { .. }) => 4,
            CompileError::Cancelled => CANCELLED,
            CompileError::Import(errors) if errors.is_limit() => 4,
            CompileError::Model(OnnxError::Io { .. }) | CompileError::Output { .. } => 6,
            CompileError::Import(_) | CompileError::Model(_) | CompileError::Invalid(_) => 5,
            CompileError::Codegen(_) | CompileError::Internal { .. } | CompileError::Illegal { .. } => 70,
        }
    }
}

impl From<ImportErrors> for CompileError {
    fn from(errors: ImportErrors) -> CompileError {
        match errors.is_unsupported() {
            true => CompileError::Gaps(errors.faults.into_iter().map(Gap::of_fault).collect()),
            false => CompileError::Import(errors),
        }
    }
}

impl From<CodegenError> for CompileError {
    fn from(error: CodegenError) -> CompileError {
        match error {
            CodegenError::Unsupported { codegen, kernel, what } => {
                CompileError::Gaps(vec![Gap::of_kernel(&codegen.to_string(), &kernel, &what)])
            }
            other => CompileError::Codegen(other),
        }
    }
}

/// Why a search could not be made, or what it found that must not be.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// Nothing here runs what is to be measured.
    #[error("tuning measures on this machine, which does not run code for that target")]
    OtherMachine,
    /// Functions for a device are measured by a process of their own, since a schedule may hang or end it.
    #[error(
        "functions for {0} are measured by another process: search by `tilewright tune`, and compile by the records it makes"
    )]
    Device(DeviceKind),
    /// The file of records cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Nothing is there any more that could measure. What was measured until then is kept.
    #[error("{0}")]
    Unavailable(String),
    /// A schedule computes something else than the rules' own: a defect of the compiler.
    #[error("{0}")]
    Wrong(String),
    /// Schedules that were offered do not apply: defects of the compiler.
    #[error("{n} schedules that were offered do not apply, the first: {first}")]
    Illegal {
        /// How many.
        n: usize,
        /// What is wrong with the first.
        first: String,
    },
}

impl SearchError {
    /// The exit code of the command line for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            SearchError::OtherMachine | SearchError::Device(_) => 3,
            SearchError::Journal(JournalError::Read { .. } | JournalError::Write { .. })
            | SearchError::Unavailable(_) => 6,
            SearchError::Journal(JournalError::Entry(_))
            | SearchError::Wrong(_)
            | SearchError::Illegal { .. } => 70,
        }
    }
}

/// Why there is no library of a model.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// A name that C does not take.
    #[error("`{0}` is no name for a library: it takes letters, digits and underscores, and no digit first")]
    Name(String),
    /// Code for several targets, or programs for some extents.
    #[error("a library has code for one target and all extents: name one, and leave the step of --dim out")]
    Several,
    /// Code for a device.
    #[error("a library has no code for devices: compile for a processor")]
    Device,
    /// Code that is text where machine code is asked for.
    #[error("code by the generator c is text, and no library: --emit c writes it")]
    Text,
    /// Machine code where text is asked for.
    #[error("a program in C is made by the generator c: leave --codegen out")]
    MachineCode,
    /// A shared library for a machine without a system.
    #[error("{0} has no system that loads shared libraries: --emit static makes one that is linked")]
    NoSystem(String),
    /// The plan is more than calls of kernels: all that is in the way.
    #[error("the model cannot be straight code: {}", list(.0))]
    NotStraight(Vec<Obstacle>),
    /// What a library has not, even with a runtime in it.
    #[error("the model cannot be a library, with or without a runtime: {}", list(.0))]
    NotInside(Vec<Obstacle>),
    /// The runtime for the machine is not where it is looked for.
    #[error(
        "the model needs a runtime in its library, and there is none at {looked_for}: `cargo xtask cross {target}` builds it, and --runtime \
         names another file ({why})"
    )]
    NoRuntime {
        /// The file.
        looked_for: String,
        /// The machine in Rust's words.
        target: &'static str,
        /// What the system says.
        why: std::io::Error,
    },
    /// A file that is no runtime for the machine.
    #[error("{file} is no runtime for the model: {why}")]
    BadRuntime {
        /// The file.
        file: String,
        /// Why.
        why: EmbedError,
    },
    /// No linker.
    #[error(
        "a shared library with a runtime in it takes a linker, and none of {0} is there: install lld, or use --emit static"
    )]
    NoLinker(String),
    /// A linker that failed.
    #[error("{linker} makes no shared library: {said}")]
    Linker {
        /// The program.
        linker: String,
        /// What it says.
        said: String,
    },
}

impl LibraryError {
    /// The exit code of the command line for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            LibraryError::Name(_)
            | LibraryError::Several
            | LibraryError::Text
            | LibraryError::MachineCode => 2,
            LibraryError::Device
            | LibraryError::NoSystem(_)
            | LibraryError::NotStraight(_)
            | LibraryError::NotInside(_)
            | LibraryError::NoRuntime { .. }
            | LibraryError::BadRuntime { .. }
            | LibraryError::NoLinker(_)
            | LibraryError::Linker { .. } => 3,
        }
    }
}

fn list(obstacles: &[Obstacle]) -> String {
    match obstacles {
        [one] => one.to_string(),
        all => all.iter().map(|obstacle| format!("\n  {obstacle}")).collect(),
    }
}
