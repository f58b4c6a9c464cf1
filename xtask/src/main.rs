//! Project tasks, as `cargo xtask TASK`: the only entry points that developers, users of a clone and the
//! continuous build need. One file a task; this one is the table.
//!
//! `setup` and `test` install what is missing; every other task only detects and says what it would gain.

mod bench;
mod boards;
mod build;
mod c_library;
mod calibrate;
mod cargo;
mod compile;
mod conformance;
mod corpus;
mod cross;
mod digits;
mod embedded;
mod exported;
mod firmware;
mod for_machine;
mod gpu;
mod joined;
mod llvm;
mod models;
mod mutants;
mod project;
mod run;
mod setup;
mod sizes;
mod sysroot;
mod tally;
mod tensor;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project tasks", max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing: LLVM 22 and lld (apt), the Python environment in target/venv
    Setup(setup::Args),
    /// Build target/release/tilewright with every backend this machine has
    Build,
    /// Build, then `tilewright compile`
    Compile(compile::Args),
    /// Build, then `tilewright run`
    Run(run::Args),
    /// Compile the example classifier of handwritten digits and let it read an image
    Digits(digits::Args),
    /// Set up, then every check and test of the project
    Test(test::Args),
    /// Measure against ONNX Runtime and OpenVINO, interleaved, and keep the raw output
    Bench(bench::Args),
    /// Run the ONNX backend suites
    Conformance(conformance::Args),
    /// Put the models of tests and benchmarks into target/models
    Models(models::Args),
    /// Hold simplified models, exported as ONNX, against the original ones in ONNX Runtime
    Exported(exported::Args),
    /// Compile and run models of the ONNX suites with one field changed: nothing may panic, abort or hang
    Mutants(mutants::Args),
    /// Measure the records of tuning that come with the compiler, on networks of tools/corpus.py
    Corpus(corpus::Args),
    /// Build what runs models without a compiler for a machine: `tilewright-run`, and the runtime for models' libraries
    Cross(for_machine::Args),
    /// Compile models for boards and run them here, under qemu
    Boards(boards::Args),
    /// Build the firmware of `examples/cortex-m` for each board and run it here, under qemu
    Firmware(firmware::Args),
    /// Hold the bytes of what is deployed to their figures
    Sizes(sizes::Args),
    /// Build the C libraries, and put them below a folder with headers and what pkg-config and CMake find them by
    CLibrary(c_library::Args),
    /// Measure how fast this machine is, for the cost model of schedules
    Calibrate(calibrate::Args),
    /// Pack all that checks and times models on a machine with a GPU, which needs no compiler: one archive
    GpuPack(gpu::PackArgs),
    /// Check models on a device against the processor
    GpuCheck(gpu::ScriptArgs),
    /// Time models on a device beside PyTorch
    GpuBench(gpu::ScriptArgs),
    /// Time single operations on a device, beside what its memory and its libraries give
    GpuOperations(gpu::ScriptArgs),
    /// Weigh models on an NVIDIA GPU, beside PyTorch
    GpuMemory(gpu::ScriptArgs),
    /// Check the rules of the source tree that rustc and clippy do not know
    Tidy,
}

fn main() -> ExitCode {
    let verdict = match Cli::parse().task {
        Task::Setup(args) => setup::run(&args),
        Task::Build => build::run(),
        Task::Compile(args) => compile::run(&args),
        Task::Run(args) => run::run(&args),
        Task::Digits(args) => digits::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Conformance(args) => conformance::run(&args),
        Task::Models(args) => models::run(&args),
        Task::Exported(args) => exported::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        Task::Corpus(args) => corpus::run(&args),
        Task::Cross(args) => for_machine::run(&args),
        Task::Boards(args) => boards::run(&args),
        Task::Firmware(args) => firmware::run(&args),
        Task::Sizes(args) => sizes::run(&args),
        Task::CLibrary(args) => c_library::run(&args),
        Task::Calibrate(args) => calibrate::run(&args),
        Task::GpuPack(args) => gpu::pack(&args),
        Task::GpuCheck(args) => gpu::check(&args),
        Task::GpuBench(args) => gpu::bench(&args),
        Task::GpuOperations(args) => gpu::operations(&args),
        Task::GpuMemory(args) => gpu::memory(&args),
        Task::Tidy => tidy::run(),
    };
    match verdict {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
