//! Every case of the suite for another machine, run by `tilewright-suite-runner` there or in what plays it.
//!
//! `cargo run --release -p tilewright-target-suite --features llvm --example boards -- llvm aarch64 qemu-aarch64-static RUNNER`

use std::process::{Command, ExitCode};

use tilewright_machine::{CodegenKind, Target};
use tilewright_target_suite::run::{Place, Remote};
use tilewright_target_suite::{CompileKernel, cases, check_at};

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
    let [codegen, machine, program, rest @ ..] = arguments else {
        return Err("give a code generator, a machine, and the words that run the runner".to_owned());
    };
    let kind: CodegenKind = codegen.parse().map_err(|error| format!("{error}"))?;
    let compile: CompileKernel = match kind {
        CodegenKind::Llvm => tilewright_llvm::compile_kernel,
        CodegenKind::Cranelift => tilewright_cranelift::compile_kernel,
        CodegenKind::C => return Err("C is text, which the runner does not take".to_owned()),
    };
    let target = Target::parse(machine, kind).map_err(|error| error.to_string())?;
    let start = || {
        let remote = Remote::start(Command::new(program).args(rest));
        remote.map(|remote| Place::There(Box::new(remote))).map_err(|error| format!("{program}: {error}"))
    };
    let mut place = start()?;
    let all = cases::all(target.has_fma());
    let mut n_failed = 0;
    for case in &all {
        if let Err(error) = check_at(&mut place, case, compile, &target) {
            println!("{error}");
            n_failed += 1;
            // The program may have ended with the case.
            place = start()?;
        }
    }
    println!("{codegen} for {machine}: {} of {} cases pass", all.len() - n_failed, all.len());
    Ok(n_failed == 0)
}
