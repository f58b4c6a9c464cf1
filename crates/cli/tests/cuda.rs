//! A model for a CUDA device, with a driver of the tests' own: what it computes, and everything that goes wrong with devices, each
//! with its exit code. Needs a C compiler.

mod common;
#[path = "../../../tools/conditional_tests.rs"]
mod conditional;
#[path = "../../../runtime/cuda/tests/fake_cuda/driver.rs"]
mod driver;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Run;
use conditional::Conditional;
use driver::Fake;
use prost::Message;
use tempfile::TempDir;
use tilewright_driver::DType;
use tilewright_driver::onnx::proto::TensorProto;
use tilewright_driver::runtime::artifact::{
    Contents, DeviceDef, DeviceKernel, ImageDef, Level, Manifest, ProgramDef,
};
use tilewright_driver::runtime::plan::{
    Access, ArenaDef, BufferDef, BufferId, DimSpec, Instr, KernelDef, KernelId, KernelParam, Place, Plan,
    PlanOp, SizeDef, SizeId, Space, TensorSpec, TextId,
};

/// No run of these tests takes as long.
const LONGEST: Duration = Duration::from_secs(10);

type Test = fn(&Fake);

fn main() -> ExitCode {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/cuda/tests/fake_cuda");
    let fake = Fake::build(&sources);
    let lacking = fake.as_ref().err().cloned();
    let fake = Arc::new(fake.ok());
    let tests: [(&str, Test); 7] = [
        ("a_model_runs", a_model_runs),
        ("runs_that_follow_one_another_are_graphs", runs_that_follow_one_another_are_graphs),
        ("devices_that_are_not_there", devices_that_are_not_there),
        ("drivers_that_will_not_do", drivers_that_will_not_do),
        ("code_that_the_device_does_not_run", code_that_the_device_does_not_run),
        ("code_that_is_damaged", code_that_is_damaged),
        ("memory_and_faults", memory_and_faults),
    ];
    conditional::run(tests.map(|(name, test)| {
        let fake = fake.clone();
        let check = move || {
            test(fake.as_ref().as_ref().ok_or("no driver")?);
            Ok::<(), String>(())
        };
        Conditional::new(name, lacking.clone(), check)
    }))
}

const PTX: &[u8] = b"//\n.version 8.0\n.entry add_one(\n.entry bad(\n";

/// Code for a device, and what is said of it.
struct Code {
    arch: &'static str,
    parts: Vec<(&'static str, Vec<u8>)>,
    kernel: &'static str,
    elements: usize,
}

impl Default for Code {
    fn default() -> Code {
        Code { arch: "sm_80", parts: vec![("ptx", PTX.to_vec())], kernel: "add_one", elements: 3 }
    }
}

/// Adds 4 to each of some elements: a copy there, four calls of a kernel, and a copy back.
fn plan(elements: usize) -> Plan {
    let sizes = [elements as i64, 4 * elements as i64, 1].map(SizeDef::Const).to_vec();
    let [n, bytes, one] = [0, 1, 2].map(SizeId);
    let [x, y, on_device] = [0, 1, 2].map(BufferId);
    let buffer =
        |space, place| BufferDef { dtype: DType::F32, size_bytes: bytes, shape: vec![n], space, place };
    let spec = |name: &str, buffer| {
        let dims = vec![DimSpec { name: None, size: n }];
        TensorSpec { name: name.into(), dtype: DType::F32, dims, buffer }
    };
    let call = PlanOp::Call {
        kernel: KernelId(0),
        buffers: vec![on_device],
        sizes: vec![n],
        rounds: one,
        per_round: n,
        in_order: false,
    };
    let mut ops = vec![call; 4];
    ops.insert(0, PlanOp::Copy { from: x, to: on_device });
    ops.push(PlanOp::Copy { from: on_device, to: y });
    let params = vec![KernelParam { align: 4, access: Access::Write }];
    Plan {
        sizes,
        buffers: vec![
            buffer(Space::Host, Place::Input(0)),
            buffer(Space::Host, Place::Output(0)),
            buffer(Space::Device, Place::Block(0)),
        ],
        device_arena: ArenaDef { bytes: 0, blocks: vec![bytes] },
        keep_awake: true,
        kernels: vec![KernelDef { name: "add".into(), params, n_sizes: 1, space: Space::Device }],
        inputs: vec![spec("x", x)],
        outputs: vec![spec("y", y)],
        instrs: ops.into_iter().map(|op| Instr { op, provenance: TextId(0) }).collect(),
        texts: vec![String::new()],
        ..Plan::default()
    }
}

/// A folder with a model that adds 4 to its input as `adds.twm`, and an input `-1, 0, 1, ...` in `in`.
fn folder(code: &Code) -> TempDir {
    let n = code.elements;
    let plan = plan(n);
    let kernel = DeviceKernel { symbol: code.kernel.into(), threads: [2, 32], dynamic_shared: 0 };
    let parts = code.parts.iter().map(|(format, code)| (format.to_string(), code.len() as u64)).collect();
    let device = DeviceDef {
        kind: "cuda".into(),
        arch: code.arch.into(),
        assembler: String::new(),
        parts,
        kernels: vec![kernel],
    };
    let image = ImageDef {
        triple: format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        program: ProgramDef { entries: vec![0], ..ProgramDef::default() },
        device: Some(device),
        ..ImageDef::default()
    };
    let manifest = Manifest { images: vec![image], ..Manifest::default() };
    let bytes: Vec<u8> = code.parts.iter().flat_map(|(_, code)| code.clone()).collect();
    let levels = [Level { plan: &plan, specialised: &[], image: &[], device_code: Some(&bytes) }];
    let contents = Contents { manifest: &manifest, levels: &levels, weights: &[[0u8; 0]; 0] };
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("adds.twm"), &*contents.to_bytes().expect("an artifact")).expect("a file");
    std::fs::create_dir(dir.path().join("in")).expect("a folder");
    let x = TensorProto {
        dims: vec![n as i64],
        data_type: Some(1),
        float_data: (0..n).map(|i| i as f32 - 1.0).collect(),
        ..TensorProto::default()
    };
    std::fs::write(dir.path().join("in/input_0.pb"), x.encode_to_vec()).expect("a file");
    dir
}

/// Runs the command with the driver of ours.
fn tilewright(fake: &Fake, dir: &Path, settings: &[(&str, &str)], args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.current_dir(dir).args(args);
    command.env("LD_LIBRARY_PATH", fake.folder()).env("FAKE_CUDA_LOG", dir.join("log"));
    for (name, value) in settings {
        command.env(format!("FAKE_CUDA_{name}"), value);
    }
    let begin = Instant::now();
    let run = common::run(&mut command);
    assert!(begin.elapsed() < LONGEST, "tilewright {args:?} took {:?}", begin.elapsed());
    run
}

/// A run that must fail with a code and a message.
fn fails(fake: &Fake, dir: &Path, settings: &[(&str, &str)], device: &str, code: i32, message: &str) {
    let run = tilewright(fake, dir, settings, &["run", "adds.twm", "--inputs", "in", "--device", device]);
    assert_eq!(run.code, Some(code), "{}{}", run.out, run.err);
    assert!(run.err.contains(message), "no {message:?} in {}", run.err);
}

fn a_model_runs(fake: &Fake) {
    let dir = folder(&Code::default());
    for device in ["cuda", "cuda:1"] {
        let args = ["run", "adds.twm", "--inputs", "in", "--device", device];
        let run = tilewright(fake, dir.path(), &[], &args);
        assert_eq!(run.code, Some(0), "{}", run.err);
        assert!(run.out.contains("y: f32[3] min 3.00000 max 5.00000 mean 4.00000"), "{}", run.out);
    }
    let run = tilewright(fake, dir.path(), &[], &["doctor"]);
    assert!(run.out.contains("Fake GPU (CUDA device 1)"), "{}", run.out);
}

fn runs_that_follow_one_another_are_graphs(fake: &Fake) {
    let dir = folder(&Code::default());
    let args = ["bench", "adds.twm", "--inputs", "in", "--device", "cuda", "--seconds", "0.05"];
    let args = [&args[..], &["--outputs", "out"]].concat();
    let run = tilewright(fake, dir.path(), &[], &args);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let log = std::fs::read_to_string(dir.path().join("log")).expect("a log");
    let count = |word: &str| log.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!((count("launch"), count("record")), (4, 4));
    assert!(count("replay of 4") > 1, "{log}");
    for what in ["context", "module", "memory", "stream", "graph", "exec"] {
        assert_eq!(count(&format!("+{what}")), count(&format!("-{what}")), "{what}");
    }
    let y = std::fs::read(dir.path().join("out/output_0.pb")).expect("an output");
    let y = TensorProto::decode(&*y).expect("a tensor");
    let raw: Vec<f32> = y
        .raw_data
        .unwrap_or_default()
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    assert_eq!(if raw.is_empty() { y.float_data } else { raw }, [3.0, 4.0, 5.0]);
}

fn devices_that_are_not_there(fake: &Fake) {
    let dir = folder(&Code::default());
    let dir = dir.path();
    let message = "there is no CUDA device 7: devices are counted from 0, and there are 2";
    fails(fake, dir, &[], "cuda:7", 3, message);
    fails(fake, dir, &[("DEVICES", "1")], "cuda:1", 3, "there is no CUDA device 1");
    fails(fake, dir, &[("DEVICES", "0")], "cuda", 3, "the CUDA driver has no device");
    fails(fake, dir, &[("INIT", "100")], "cuda", 3, "the CUDA driver has no device");
    for name in ["cuda:", "cuda:x", "cuda:-1", "CUDA"] {
        fails(fake, dir, &[], name, 2, &format!("`{name}` is no device"));
    }
    fails(fake, dir, &[], "cpu", 3, "the artifact has code for cuda alone");
    let run = tilewright(fake, dir, &[], &["run", "adds.twm", "--inputs", "in"]);
    assert_eq!(run.code, Some(0), "what it is for is known: {}", run.err);
}

fn drivers_that_will_not_do(fake: &Fake) {
    let dir = folder(&Code::default());
    let dir = dir.path();
    let message = "the driver is of CUDA 10.2, and CUDA 11.0 is needed: install a newer driver";
    fails(fake, dir, &[("VERSION", "10020")], "cuda", 3, message);
    fails(fake, dir, &[("INIT", "803")], "cuda", 3, "the CUDA driver does not work: cuInit: error 803");
    let message = "its PTX is of version 8.0, and the driver, of CUDA 11.4, reads up to 7.4";
    fails(fake, dir, &[("VERSION", "11040")], "cuda", 3, message);
    // No driver at all: a folder without one, and none of the machine's.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.current_dir(dir).args(["run", "adds.twm", "--inputs", "in", "--device", "cuda:999"]);
    let run = common::run(&mut command);
    assert_eq!(run.code, Some(3), "{}", run.err);
    assert!(run.err.contains("there is no CUDA d"), "driver or device: {}", run.err);
}

fn code_that_the_device_does_not_run(fake: &Fake) {
    let check = |arch: &'static str, message: &str| {
        let dir = folder(&Code { arch, ..Code::default() });
        fails(fake, dir.path(), &[], "cuda", 3, message);
    };
    check("sm_90", "cannot run code for cuda:sm_90: the device is sm_86, and the code of sm_90");
    check("sm_80a", "cannot run code for cuda:sm_80a: the device is sm_86, and the code of sm_80a");
    check("sm_12345", "`sm_12345` is no generation of GPUs that this runtime knows");
    check("ampere", "`ampere` is no generation of GPUs that this runtime knows");
    let dir = folder(&Code { parts: vec![("spirv", PTX.to_vec())], ..Code::default() });
    fails(fake, dir.path(), &[], "cuda", 3, "it has neither PTX nor machine code");
}

fn code_that_is_damaged(fake: &Fake) {
    let check = |format: &'static str, code: &[u8], message: &str| {
        let dir = folder(&Code { parts: vec![(format, code.to_vec())], ..Code::default() });
        fails(fake, dir.path(), &[], "cuda", 5, message);
    };
    check("ptx", b".version 8.0\n\0.entry add_one(", "its PTX is damaged");
    check("ptx", b".version 8.0\nnonsense", "fatal   : nonsense");
    check("ptx", b".version 8.0\n.entry other(", "kernel `add_one`: CUDA_ERROR_NOT_FOUND");
    check("cubin", b"\x7fELF\x02\x01", "its machine code is damaged");
    let mut image = b"\x7fELF\x02\x01".to_vec();
    image.resize(80, 0);
    check("cubin", &image, "machine code: CUDA_ERROR_INVALID_IMAGE");
    // The checksums find what is damaged in the file before a driver sees it.
    let dir = folder(&Code::default());
    let file = dir.path().join("adds.twm");
    let mut bytes = std::fs::read(&file).expect("the file");
    let at = bytes.windows(PTX.len()).position(|part| part == PTX).expect("its PTX");
    bytes[at + 20] ^= 1;
    std::fs::write(&file, bytes).expect("the file");
    fails(fake, dir.path(), &[], "cuda", 5, "code for a device");
}

fn memory_and_faults(fake: &Fake) {
    let dir = folder(&Code { elements: 3000, ..Code::default() });
    let message = "Fake GPU (CUDA device 0) is out of memory: 12000 bytes asked for, 7680 are free";
    fails(fake, dir.path(), &[("MEMORY", "8192")], "cuda", 4, message);
    let dir = folder(&Code { kernel: "bad", ..Code::default() });
    let message = "Fake GPU (CUDA device 0) failed: CUDA_ERROR_ILLEGAL_ADDRESS";
    fails(fake, dir.path(), &[], "cuda", 6, message);
    fails(fake, dir.path(), &[("FAULT", "719")], "cuda", 6, "CUDA_ERROR_LAUNCH_FAILED");
}
