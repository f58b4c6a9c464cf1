//! Every case of the suite for another machine, run by `tilewright-suite-runner` there or in what plays it: on several cores with the same
//! code.
//!
//! `cargo run --release -p tilewright-target-suite --features llvm --example boards -- llvm aarch64 -- qemu-aarch64-static RUNNER`

use std::process::{Command, ExitCode};

use tilewright_machine::{CodegenKind, ObjectCode, Target};
use tilewright_target_suite::run::{Place, Remote};
use tilewright_target_suite::{Case, CompileKernel, cases, check_at};

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<bool, String> {
    let usage =
        "give a code generator, a machine, and behind a `--` the words that run the runner on each core";
    let mut groups = arguments.split(|word| word == "--");
    let [codegen, machine] = groups.next().unwrap_or_default() else { return Err(usage.to_owned()) };
    let kind: CodegenKind = codegen.parse().map_err(|error| format!("{error}"))?;
    let compile: CompileKernel = match kind {
        CodegenKind::Llvm => tilewright_llvm::compile_kernel,
        CodegenKind::Cranelift => tilewright_cranelift::compile_kernel,
        CodegenKind::C => return Err("C is text, which the runner does not take".to_owned()),
    };
    let target = Target::parse(machine, kind).map_err(|error| error.to_string())?;
    let mut cores = groups.map(Core::start).collect::<Result<Vec<_>, _>>()?;
    if cores.is_empty() {
        return Err(usage.to_owned());
    }
    let all = cases::all(target.has_fma());
    for case in &all {
        match case.compile(compile, &target) {
            Ok(code) => {
                for core in &mut cores {
                    core.check(case, &code)?;
                }
            }
            Err(error) => {
                println!("{error}");
                cores.iter_mut().for_each(|core| core.n_failed += 1);
            }
        }
    }
    for core in &cores {
        println!(
            "{codegen} for {machine} by {}: {} of {} cases pass",
            core.words.join(" "),
            all.len() - core.n_failed,
            all.len()
        );
    }
    Ok(cores.iter().all(|core| core.n_failed == 0))
}

/// A core, and the program that runs there.
struct Core<'a> {
    words: &'a [String],
    place: Place,
    n_failed: usize,
}

impl<'a> Core<'a> {
    fn start(words: &'a [String]) -> Result<Core<'a>, String> {
        Ok(Core { words, place: start(words)?, n_failed: 0 })
    }

    fn check(&mut self, case: &Case, code: &ObjectCode) -> Result<(), String> {
        if let Err(error) = check_at(&mut self.place, case, code) {
            println!("{error}");
            self.n_failed += 1;
            // The program may have ended with the case.
            self.place = start(self.words)?;
        }
        Ok(())
    }
}

fn start(words: &[String]) -> Result<Place, String> {
    let (program, arguments) = words.split_first().ok_or("behind a `--` is nothing")?;
    let remote = Remote::start(Command::new(program).args(arguments));
    remote.map(|remote| Place::There(Box::new(remote))).map_err(|error| format!("{program}: {error}"))
}
