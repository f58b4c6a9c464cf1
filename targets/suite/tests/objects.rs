//! What objects may hold. What code generators refuse is in `filetests/refused_*.kernel`.

use object::{Object, ObjectSymbol};
use tilewright_machine::{CodegenError, CodegenKind, Target};
use tilewright_target_suite::{Case, CompileKernel, cases};

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

/// Why the suite runs under an emulator on one core of each instruction set: the others' code is the same, byte by byte.
#[test]
fn cores_of_the_same_instructions_have_the_same_code() {
    let cases: Vec<_> = cases::all(true).into_iter().step_by(7).collect();
    for (kind, compile) in generators() {
        for (core, other) in
            [("cortex-a53", "aarch64"), ("cortex-a72", "aarch64"), ("neoverse-n1", "cortex-a76")]
        {
            let code = |machine: &str, case: &Case| {
                let target = Target::parse(machine, kind).expect("a known machine");
                case.compile(compile, &target).unwrap_or_else(|error| panic!("{kind} for {machine}: {error}"))
            };
            for case in &cases {
                let same = code(core, case) == code(other, case);
                assert!(same, "{kind}: other code for {core} than for {other}: {}", case.kernel.name);
            }
        }
    }
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
