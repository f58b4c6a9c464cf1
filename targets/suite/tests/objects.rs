//! What objects may hold, and what code generators refuse.

use object::{Object, ObjectSymbol};
use tilewright_dtype::DType;
use tilewright_machine::{CodegenError, CodegenKind, Target};
use tilewright_target_suite::build::KernelBuilder;
use tilewright_target_suite::{CompileKernel, cases};
use tilewright_te::expr::UnaryOp;
use tilewright_te::kernel::{Access, Kernel, Op, Type, Value};

/// The code generators of this build.
fn generators() -> Vec<(CodegenKind, CompileKernel)> {
    let mut all: Vec<(CodegenKind, CompileKernel)> =
        vec![(CodegenKind::Cranelift, tilewright_cranelift::compile_kernel)];
    if tilewright_llvm::is_available() {
        all.push((CodegenKind::Llvm, tilewright_llvm::compile_kernel));
    }
    all
}

/// Objects for every architecture are complete, and the same each time.
#[test]
fn objects_call_nothing_and_are_reproducible() {
    let cases: Vec<_> = cases::all(false).into_iter().step_by(7).collect();
    for (kind, compile) in generators() {
        for machine in ["x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"] {
            let target = Target::parse(machine, kind).expect("a known machine");
            for case in &cases {
                let name = &case.kernel.name;
                let code = compile(&case.kernel, &target)
                    .unwrap_or_else(|error| panic!("{kind} for {machine}: {error}"));
                let file = object::File::parse(&code.object[..]).expect("an object file");
                let undefined: Vec<_> = file
                    .symbols()
                    .filter(|s| s.is_undefined())
                    .filter_map(|s| s.name().ok())
                    .filter(|n| !n.is_empty())
                    .collect();
                assert!(undefined.is_empty(), "{kind} for {machine}, {name} calls {undefined:?}");
                assert_eq!(code.symbols, [name.as_str()]);
            }
            let again = compile(&cases[0].kernel, &target).expect("it compiled before");
            assert_eq!(again, compile(&cases[0].kernel, &target).expect("it compiled before"));
        }
    }
}

/// Checks what every code generator says of a kernel, its own name replaced by `*`.
#[track_caller]
fn check_error(machine: &str, kernel: &Kernel, expect: &str) {
    for (kind, compile) in generators() {
        let target = Target::parse(machine, kind).expect("a known machine");
        let error = compile(kernel, &target).expect_err("the kernel is wrong");
        assert_eq!(error.to_string().replace(kind.name(), "*"), expect, "{kind}");
    }
}

fn kernel(dtype: DType, op: impl FnOnce(&mut KernelBuilder, Value) -> Value) -> Kernel {
    let mut b = KernelBuilder::new("odd");
    let from = b.buffer("from", dtype, Access::Read);
    let zero = b.index(0);
    let value = b.load(Type::scalar(dtype), from, zero, 0);
    op(&mut b, value);
    b.finish()
}

#[test]
fn types_that_must_be_expanded_are_refused() {
    let kernel = kernel(DType::BF16, |_, x| x);
    check_error("cpu", &kernel, "* cannot compile kernel `odd`: values of type bf16");
}

#[test]
fn intrinsics_are_refused() {
    let kernel = kernel(DType::F32, |b, x| b.unary(UnaryOp::Exp, x));
    check_error("cpu", &kernel, "kernel `odd` is malformed: %3 of type f32 cannot be Unary(Exp, %2)");
}

#[test]
fn operations_that_a_type_has_not_are_refused() {
    let integer = kernel(DType::I32, |b, x| b.unary(UnaryOp::Sqrt, x));
    check_error("cpu", &integer, "kernel `odd` is malformed: %3 of type i32 cannot be Unary(Sqrt, %2)");
    let float = kernel(DType::F32, |b, x| b.binary(tilewright_te::BinaryOp::Xor, x, x));
    check_error("cpu", &float, "kernel `odd` is malformed: %3 of type f32 cannot be Binary(Xor, %2, %2)");
}

#[test]
fn wrong_lanes_are_refused() {
    let kernel = kernel(DType::F32, |b, x| b.let_(Type::scalar(DType::F32), Op::Extract(x, 3)));
    check_error("cpu", &kernel, "kernel `odd` is malformed: %3 of type f32 cannot be Extract(%2, 3)");
}

#[test]
fn a_wide_fma_without_the_instruction_is_refused() {
    let kernel = kernel(DType::F64, |b, x| b.let_(Type::scalar(DType::F64), Op::Fma(x, x, x)));
    check_error("x86-64-v2", &kernel, "* cannot compile kernel `odd`: fma of f64 on a machine without it");
}

#[test]
fn llvm_says_how_to_get_it() {
    if tilewright_llvm::is_available() {
        return;
    }
    let target = Target::host(CodegenKind::Llvm);
    let error = tilewright_llvm::compile(&[], &target).expect_err("it is not linked");
    assert!(matches!(error, CodegenError::Unavailable { codegen: CodegenKind::Llvm, .. }));
    assert!(error.to_string().starts_with("the code generator llvm is not in this build: install LLVM 22"));
}
