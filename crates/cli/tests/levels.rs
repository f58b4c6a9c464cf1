//! Levels of the instruction set: code for a level uses nothing above it, and one artifact holds several.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Run, folder, image, run, succeed, tilewright};

/// The command in `dir`, on a machine of that name.
fn on(machine: &str, dir: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    run(command.current_dir(dir).args(args).env("TILEWRIGHT_ISA", machine))
}

/// Those of the levels that run here, least first.
fn levels_here(dir: &Path) -> Vec<&'static str> {
    let targets = succeed(dir, &["targets", "--json"]).json();
    let runs = |name: &str| {
        let targets = targets["targets"].as_array().unwrap();
        targets.iter().any(|target| target["name"] == name && target["runs_here"] == true)
    };
    ["x86-64-v2", "x86-64-v3", "x86-64-v4"].into_iter().filter(|name| runs(name)).collect()
}

/// The code generators of this build whose code runs.
fn code_generators(dir: &Path) -> Vec<String> {
    let targets = succeed(dir, &["targets", "--json"]).json();
    let codegens = targets["codegens"].as_array().unwrap();
    let built = codegens.iter().filter(|codegen| codegen["built"] == true && codegen["name"] != "c");
    built.map(|codegen| codegen["name"].as_str().unwrap().to_string()).collect()
}

/// The outputs of an artifact for an image, as bytes.
fn outputs(machine: &str, dir: &Path, artifact: &str) -> Vec<u8> {
    let run = on(machine, dir, &["run", artifact, "--inputs", &image(), "--outputs", "out"]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let bytes = fs::read(dir.join("out/output_0.pb")).unwrap();
    fs::remove_dir_all(dir.join("out")).unwrap();
    bytes
}

#[test]
fn every_level_of_an_artifact_runs_as_if_it_were_alone() {
    let dir = folder();
    let dir = dir.path();
    let levels = levels_here(dir);
    fs::create_dir(dir.join("alone")).unwrap();
    for codegen in code_generators(dir) {
        let compile = |targets: &str, out: &str| {
            succeed(dir, &["compile", "digits.onnx", "--codegen", &codegen, "--target", targets, "-o", out]);
            fs::read(dir.join(out)).unwrap()
        };
        let together = compile(&levels.join(","), "all.twm");
        assert!(together == compile(&levels.join(","), "again.twm"), "{codegen}: other bytes");
        let weight_bytes = |artifact: &str| {
            let description = succeed(dir, &["inspect", artifact, "--json"]).json();
            description["weight_bytes"].as_u64().expect("a number")
        };
        let mut alone = 0;
        for level in &levels {
            let artifact = format!("alone/{level}.twm");
            compile(level, &artifact);
            alone += weight_bytes(&artifact);
            assert_eq!(outputs(level, dir, "all.twm"), outputs(level, dir, &artifact), "{codegen} {level}");
            // A machine takes the best that it can run, and no more than it is said to be.
            let inspect = on(level, dir, &["inspect", "all.twm", "--json"]).json();
            let of_artifact = inspect["levels"].as_array().unwrap();
            let names: Vec<&str> = of_artifact.iter().map(|l| l["target"].as_str().unwrap()).collect();
            assert_eq!(names, levels);
            let chosen: Vec<&str> = of_artifact
                .iter()
                .filter(|l| l["chosen"] == true)
                .map(|l| l["target"].as_str().unwrap())
                .collect();
            assert_eq!(chosen, [*level]);
        }
        // What several levels read alike is there once: biases, and what is packed alike.
        let shared = weight_bytes("all.twm");
        assert!(levels.len() == 1 || shared < alone, "{codegen}: {shared} of {alone} bytes");
    }
}

#[test]
fn where_no_level_fits_the_artifact_is_refused() {
    let dir = folder();
    let dir = dir.path();
    let compile = ["compile", "digits.onnx", "--codegen", "cranelift", "-o", "m.twm", "--target"];
    succeed(dir, &[&compile[..], &["x86-64-v3,x86-64-v4"]].concat());
    let refused = on("x86-64-v2", dir, &["run", "m.twm", "--inputs", &image(), "--outputs", "out"]);
    assert_eq!(refused.code, Some(5), "{}", refused.err);
    assert!(
        refused.err.contains("artifact for another instruction set: this machine lacks "),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("avx2") && !refused.err.contains("avx512"), "{}", refused.err);
    let inspect = on("x86-64-v2", dir, &["inspect", "m.twm", "--json"]).json();
    assert!(inspect["levels"].as_array().unwrap().iter().all(|level| level["chosen"] == false));
    assert_eq!(on("z80", dir, &["inspect", "m.twm"]).code, Some(2));

    for (targets, said) in [
        ("x86-64-v3,x86-64-v3;l2=1", "has the features of another one"),
        ("x86-64-v3,z80", "unknown target `z80`"),
        ("x86-64-v3,", "unknown target ``"),
    ] {
        let run = tilewright(dir, &["compile", "digits.onnx", "--target", targets]);
        assert!(run.code == Some(2) && run.err.contains(said), "{targets}: {}", run.err);
    }
}

/// The instructions of a listing: mnemonic and operands.
fn instructions(listing: &str) -> Vec<(&str, &str)> {
    let lines = listing.lines().map(str::trim);
    let code = lines.filter(|line| !line.is_empty() && !line.starts_with(['.', '#']) && !line.ends_with(':'));
    code.map(|line| line.split_once(char::is_whitespace).unwrap_or((line, ""))).collect()
}

/// Whether an operand can only be named by AVX-512's encoding: a 512-bit register, a mask, one of the upper sixteen.
fn needs_evex(operands: &str) -> bool {
    let registers = operands.split('%').skip(1);
    let mut names =
        registers.map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or(""));
    let is_upper = |number: &str| number.parse::<u32>().is_ok_and(|n| n >= 16);
    names.any(|name| {
        let upper = ["xmm", "ymm"].iter().any(|kind| name.strip_prefix(kind).is_some_and(is_upper));
        let mask = name.strip_prefix('k').is_some_and(|number| number.parse::<u32>().is_ok());
        name.starts_with("zmm") || upper || mask
    }) || operands.contains("{1to")
}

#[test]
#[cfg_attr(not(feature = "llvm"), ignore = "no LLVM, and Cranelift's vectors have 128 bits on every level")]
fn the_code_of_a_level_uses_nothing_above_it() {
    let dir = folder();
    let dir = dir.path();
    let listing = |target: &str| {
        succeed(dir, &["compile", "digits.onnx", "--codegen", "llvm", "--target", target, "--emit", "asm"])
            .out
    };
    // That the test can tell: the highest level does use what the lower ones must not.
    let v4 = listing("x86-64-v4");
    assert!(instructions(&v4).iter().any(|(_, operands)| needs_evex(operands)));

    let v3 = listing("x86-64-v3");
    let code = instructions(&v3);
    assert!(code.iter().any(|(name, operands)| name.starts_with("vfmadd") && operands.contains("%ymm")));
    let above: Vec<_> = code.iter().filter(|(_, operands)| needs_evex(operands)).collect();
    assert!(above.is_empty(), "{above:?}");

    // No instruction of SSE4 that computes begins with a v, every one of AVX does.
    let v2 = listing("x86-64-v2");
    let code = instructions(&v2);
    assert!(code.iter().any(|(name, operands)| name.starts_with("mulp") && operands.contains("%xmm")));
    let above: Vec<_> = code.iter().filter(|(name, _)| name.starts_with('v')).collect();
    assert!(above.is_empty(), "{above:?}");
}
