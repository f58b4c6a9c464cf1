//! Every case on every code generator, for several machines.

use tilewright_machine::{CodegenError, CodegenKind, Machine, ObjectCode, Target};
use tilewright_target_suite::{CompileKernel, cases, check};
use tilewright_te::BinaryOp;
use tilewright_te::kernel::{Inst, Kernel, KernelOp};

/// Runs the suite for a machine by name; one that the host cannot run is left out.
#[track_caller]
fn conforms(machine: &str, codegen: CodegenKind, compile: CompileKernel) {
    let target = Target::parse(machine, codegen).expect("a known machine");
    if !Machine::host().runs_code_for(&target.machine) {
        return;
    }
    let cases = cases::all(target.has_fma());
    let failures = check(&cases, compile, &target);
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

#[test]
fn cranelift_conforms_on_the_host() {
    conforms("cpu", CodegenKind::Cranelift, tilewright_cranelift::compile_kernel);
}

#[test]
fn cranelift_conforms_without_fma() {
    conforms("x86-64-v2", CodegenKind::Cranelift, tilewright_cranelift::compile_kernel);
}

#[cfg(feature = "llvm")]
mod llvm {
    use super::*;

    #[test]
    fn llvm_conforms_on_the_host() {
        conforms("cpu", CodegenKind::Llvm, tilewright_llvm::compile_kernel);
    }

    #[test]
    fn llvm_conforms_with_256_bits() {
        conforms("x86-64-v3", CodegenKind::Llvm, tilewright_llvm::compile_kernel);
    }

    #[test]
    fn llvm_conforms_without_fma() {
        conforms("x86-64-v2", CodegenKind::Llvm, tilewright_llvm::compile_kernel);
    }
}

/// The suite itself: it must notice a code generator that is wrong, and say where.
#[test]
fn a_wrong_code_generator_is_noticed() {
    fn compile_wrongly(kernel: &Kernel, target: &Target) -> Result<ObjectCode, CodegenError> {
        let mut wrong = kernel.clone();
        swap_min_and_max(&mut wrong.body);
        tilewright_cranelift::compile_kernel(&wrong, target)
    }
    fn swap_min_and_max(insts: &mut [Inst]) {
        for inst in insts {
            match inst {
                Inst::Let { op: KernelOp::Binary(op @ BinaryOp::Min, ..), .. } => *op = BinaryOp::Max,
                Inst::Loop { body, .. } => swap_min_and_max(body),
                Inst::Let { .. }
                | Inst::Store { .. }
                | Inst::Scatter { .. }
                | Inst::Prefetch { .. }
                | Inst::Barrier
                | Inst::CopyAsync { .. }
                | Inst::CommitCopies
                | Inst::WaitCopies { .. }
                | Inst::If { .. } => {}
            }
        }
    }
    let cases = cases::all(true);
    assert!(cases.len() > 600, "{} cases", cases.len());
    let failures = check(&cases, compile_wrongly, &Target::host(CodegenKind::Cranelift));
    // One binary case for each of ten numeric types, truth values aside, and each number of lanes.
    assert_eq!(failures.len(), 11 * 7, "{}", failures.join("\n"));
    assert!(failures.contains(&"binary_i8x1: min element 1 is 1, expected 0".to_owned()), "{}", failures[0]);
}
