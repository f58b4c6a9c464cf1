//! Models as libraries: what is refused, and what the header says. That they run is shown by C programs (`cargo xtask c-library --check`).

use tilewright_driver::graph::{Graph, text};
use tilewright_driver::{Artifact, CodegenKind, CompileError, Compiler, LibraryError, Obstacle};

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");

fn compiler() -> Compiler {
    Compiler::new().codegen(CodegenKind::Cranelift)
}

fn artifact(graph: &str) -> Artifact {
    let graph: Graph = text::parse(graph).unwrap_or_else(|error| panic!("{error}\n{graph}"));
    compiler().compile(graph).expect("an artifact")
}

fn refusal(artifact: &Artifact, name: &str) -> LibraryError {
    match artifact.library(name) {
        Err(CompileError::Library(error)) => error,
        other => panic!("no refusal but {other:?}"),
    }
}

#[test]
fn names_that_c_does_not_take_are_refused() {
    let artifact = compiler().dim("batch", 1).compile(DIGITS).expect("an artifact");
    for name in ["", "3d", "a-b", "a b", "größe"] {
        assert!(matches!(refusal(&artifact, name), LibraryError::Name(_)), "{name}");
    }
    assert!(artifact.library("_net2").is_ok());
}

const SUMS: &str = "graph sums {\n sym batch input 0..1000:1\n sym seq input 1..9:1\n \
                    region0(%x x: f32[batch, seq], %y y: f32[batch, 4]) {\n \
                    %a: f32[batch, seq] = Binary[add](%x, %x)\n %b: f32[batch, 4] = Binary[add](%y, %y)\n \
                    return %a as a, %b as b\n }\n}";

#[test]
fn open_extents_are_all_named_with_what_fixes_them_where_c_is_to_be_made() {
    let path = tempfile::tempdir().expect("a folder").keep().join("sums.onnx");
    let graph: Graph = text::parse(SUMS).expect("a graph");
    let model = tilewright_driver::onnx::export(&graph).expect("a model");
    std::fs::write(&path, tilewright_driver::onnx::encode(&model).expect("bytes")).expect("a file");
    let refused = Compiler::new().codegen(CodegenKind::C).library(&path, "net");
    let Err(CompileError::Library(error)) = refused else { panic!("{refused:?}") };
    let message = error.to_string();
    let LibraryError::NotStraight(obstacles) = error else { panic!("{message}") };
    assert!(obstacles.iter().all(|o| matches!(o, Obstacle::OpenDim { .. })), "{message}");
    assert_eq!(obstacles.len(), 3, "{message}");
    assert!(message.contains("axis 1 of input \"x\" is open: fix it by `--dim"), "{message}");
}

#[test]
fn the_header_of_a_library_with_a_runtime_inside_tells_what_is_open() {
    let library = artifact(SUMS).library("net").expect("a library");
    let model = format!("#define NET_MODEL_BYTES {}\n", library.model_bytes().expect("a runtime is inside"));
    for part in [
        "Open extents of inputs: batch, of any extent; seq, of any extent.",
        "/* \"x\": f32 [batch][seq] */\n#define NET_INPUT_0_TYPE float\n#define NET_INPUT_0_RANK 2\n",
        "/* \"b\": f32 [batch][4] */",
        "#define NET_RANK 2\n",
        "int32_t net_open(void *model, uint64_t bytes);",
        &model,
    ] {
        assert!(library.header().contains(part), "no {part:?} in\n{}", library.header());
    }
    let bounded = compiler().dim("batch", 1..=8).compile(DIGITS).expect("an artifact");
    let bounded = bounded.library("net").expect("a library");
    let bounds = "Open extents of inputs: batch, from 1 to 8.";
    assert!(bounded.header().contains(bounds), "no {bounds:?} in\n{}", bounded.header());
    assert_eq!(library.workspace_bytes(), None);
    assert!(!library.header().contains("NET_WORKSPACE_BYTES"), "{}", library.header());
}

#[test]
fn a_runtime_that_is_not_there_or_none_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, runtime) = (folder.path().join("libnet.a"), folder.path().join("runtime.o"));
    let write = || {
        let made = artifact(SUMS).library("net").expect("a library").runtime(Some(runtime.clone()));
        made.write_static(&library).expect_err("no runtime")
    };
    let error = write().to_string();
    assert!(error.contains("runtime.o") && error.contains("cargo xtask cross "), "{error}");
    std::fs::write(&runtime, "no object").expect("a file");
    let error = write();
    assert!(matches!(error, CompileError::Library(LibraryError::BadRuntime { .. })), "{error}");
    assert!(!library.exists());
}

#[test]
fn what_takes_host_operators_is_no_library() {
    let graph = "graph found {\n sym found computed 0..4:1\n region0(%x x: f32[4]) {\n \
                 %a: i64[1, found] = NonZero(%x)\n return %a as a\n }\n}";
    let error = refusal(&artifact(graph), "net");
    assert!(matches!(error, LibraryError::NotInside(_)), "{error}");
}

#[test]
fn several_targets_and_programs_for_some_extents_are_refused() {
    let of = |compiler: Compiler| refusal(&compiler.compile(DIGITS).expect("an artifact"), "net");
    let two = compiler().target("x86-64-v2,x86-64-v3").expect("targets").dim("batch", 1);
    assert!(matches!(of(two), LibraryError::Several));
}

#[test]
fn the_header_tells_what_a_caller_has_to_give() {
    let artifact = compiler().dim("batch", 3).target("x86-64-v3").expect("a target").compile(DIGITS);
    let library = artifact.expect("an artifact").library("net").expect("a library");
    let workspace =
        format!("#define NET_WORKSPACE_BYTES {}\n", library.workspace_bytes().expect("extents are known"));
    for part in [
        "int32_t net_run(const void *const inputs[NET_INPUTS], void *const outputs[NET_OUTPUTS], void *workspace);",
        "/* \"image\": f32 [3][1][8][8] */",
        "#define NET_INPUT_0_TYPE float\n#define NET_INPUT_0_BYTES 768\n",
        "#define NET_OUTPUT_0_BYTES 120\n",
        &workspace,
    ] {
        assert!(library.header().contains(part), "no {part:?} in\n{}", library.header());
    }
}

#[test]
fn the_same_model_makes_the_same_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = || {
        let artifact = compiler().dim("batch", 1).target("x86-64-v3").expect("a target").compile(DIGITS);
        let library = artifact.expect("an artifact").library("net").expect("a library");
        ["libnet.a", "libnet.so", "net.h"].map(|name| {
            let path = folder.path().join(name);
            let written = match name {
                "libnet.a" => library.write_static(&path),
                "libnet.so" => library.write_shared(&path),
                _ => library.write_header(&path),
            };
            let bytes = std::fs::read(&path).expect("a file");
            assert_eq!(written.expect("a file"), bytes.len() as u64);
            bytes
        })
    };
    assert_eq!(bytes(), bytes());
}
