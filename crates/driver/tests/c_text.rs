//! The generator of C: its kernels are text, which nothing here runs.

use std::path::PathBuf;

use tilewright_driver::{CompileError, Listing, Options, Target, codegen, compile, kernels, tuning::Tasks};

fn digits() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx")
}

fn target() -> Target {
    "x86-64-v3@c".parse().expect("a known target")
}

#[test]
fn kernels_of_a_model_are_functions_of_a_program() {
    let kernels = kernels(&digits(), &Options::for_target(target()), &mut ()).expect("it is lowered");
    assert!(!kernels.is_empty());
    for kernel in &kernels {
        codegen::check_kernel(kernel, &target()).expect("C has all of it");
        let code = codegen::compile_kernel(kernel, &target()).expect("C has all of it");
        let text = String::from_utf8(code.object).expect("text");
        assert!(text.starts_with(&format!("static void {}(", code.symbols[0])), "{text}");
    }
}

/// What makes artifacts or measures says where the text is to be had, before it does anything.
#[test]
fn artifacts_and_measurements_are_refused() {
    let options = Options::for_target(target());
    let refused = |result: Result<(), CompileError>| {
        let error = result.expect_err("there is no machine code");
        assert!(matches!(error, CompileError::NoMachineCode { .. }), "{error}");
        assert_eq!(error.exit_code(), 2);
        let message = error.to_string();
        assert!(message.contains("@c is the text of a C program, which no artifact holds"), "{message}");
        assert!(message.ends_with("write it by `tilewright compile --emit c`"), "{message}");
    };
    refused(compile(&digits(), &options, &mut ()).map(drop));
    let mut several = Options::for_target("x86-64-v3@cranelift".parse().expect("a known target"));
    several.more_targets.push(target());
    refused(compile(&digits(), &several, &mut ()).map(drop));
    refused(Tasks::default().add_model(&digits(), &options));
    refused(codegen::generate(&[], &target()).map(drop));
    refused(codegen::listing(&[], &target(), Listing::Assembly).map(drop));
}
