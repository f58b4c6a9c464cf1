//! Models beyond 2 GiB: their weights in an external file, and in the model itself, where most protobuf libraries give
//! up. Written as sparse files, so that they take little room; their artifacts are not.
#![cfg(target_os = "linux")]

mod common;
#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use common::{model, node, succeed, value};
use conditional::Conditional;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use tilewright_driver::graph::Tensor;
use tilewright_driver::onnx::proto::tensor_proto::DataLocation;
use tilewright_driver::onnx::proto::{GraphProto, ModelProto, StringStringEntryProto, TensorProto};
use tilewright_driver::onnx::tensor::{from_proto, to_proto};

/// Columns of the table.
const WIDTH: usize = 1024;

/// Rows of the table: as F32, 256 KiB more than 2 GiB.
const ROWS: usize = (1 << 19) + 64;

/// Bytes of the table.
const TABLE: u64 = (ROWS * WIDTH * 4) as u64;

/// Rows that are not 0: on both sides of what 31 bits can address, and the last.
const MARKED: [usize; 4] = [1, (1 << 19) - 1, 1 << 19, ROWS - 1];

/// Memory and disk that must be free: an artifact on its way from one to the other, and as much again.
const ROOM: u64 = 3 * TABLE;

/// Element `column` of a marked row.
fn element(row: usize, column: usize) -> f32 {
    (row % 1000) as f32 + column as f32 / 1024.0
}

/// Writes the marked rows of the table that starts at `start` of a file, whose other rows are holes.
fn write_table(file: &File, start: u64) {
    for row in MARKED {
        let bytes: Vec<u8> = (0..WIDTH).flat_map(|column| element(row, column).to_le_bytes()).collect();
        file.write_all_at(&bytes, start + (row * WIDTH * 4) as u64).unwrap();
    }
}

/// Rows of the table by their numbers, plus the vector `shift`.
fn gather() -> ModelProto {
    let nodes =
        vec![node("Gather", &["table", "rows"], &["found"]), node("Add", &["found", "shift"], &["y"])];
    let mut rows = value("rows", &["n"]);
    if let Some(tilewright_driver::onnx::proto::type_proto::Value::TensorType(tensor)) =
        rows.r#type.as_mut().and_then(|ty| ty.value.as_mut())
    {
        tensor.elem_type = Some(7);
    }
    model(17, nodes, vec![rows], vec![value("y", &["n", "1024"])])
}

fn weights(name: &str, dims: &[usize]) -> TensorProto {
    TensorProto {
        name: Some(name.to_string()),
        dims: dims.iter().map(|&dim| dim as i64).collect(),
        data_type: Some(1),
        ..TensorProto::default()
    }
}

/// Why there is no room for the test, if so.
fn lacks_room(dir: &Path) -> Option<String> {
    let disk = Command::new("df").args(["--output=avail", "--block-size=1"]).arg(dir).output().ok()?;
    let disk: u64 = String::from_utf8_lossy(&disk.stdout).lines().nth(1)?.trim().parse().ok()?;
    let memory = std::fs::read_to_string("/proc/meminfo").ok()?;
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let memory: u64 = memory.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10;
    let lacking = [("disk", disk), ("memory", memory)].into_iter().find(|(_, free)| *free < ROOM);
    lacking.map(|(what, free)| format!("{free} bytes of {what}, {ROOM} are needed"))
}

fn main() -> ExitCode {
    let lacking = lacks_room(&std::env::temp_dir());
    let test = |name: &str, check: fn() -> Result<(), String>| Conditional::new(name, lacking.clone(), check);
    conditional::run([
        test("external_data_may_exceed_two_gigabytes", external_data_may_exceed_two_gigabytes),
        test("a_model_may_exceed_two_gigabytes", a_model_may_exceed_two_gigabytes),
    ])
}

/// Compiles and runs the model in a folder and holds the rows it finds against what was written.
fn check(dir: &Path, shift: f32) {
    succeed(dir, &["compile", "model.onnx", "--codegen", "cranelift"]);
    let rows: Vec<i64> = MARKED.iter().rev().map(|&row| row as i64).chain([0]).collect();
    std::fs::create_dir(dir.join("in")).unwrap();
    std::fs::write(dir.join("in/input_0.pb"), to_proto(&Tensor::vector(&rows), "rows").encode_to_vec())
        .unwrap();
    succeed(dir, &["run", "model.twm", "--inputs", "in", "--outputs", "out"]);
    let output = TensorProto::decode(&*std::fs::read(dir.join("out/output_0.pb")).unwrap()).unwrap();
    let output = from_proto(&output).unwrap();
    assert_eq!(output.dims(), [MARKED.len() + 1, WIDTH]);
    let expected = MARKED.iter().rev().flat_map(|&row| (0..WIDTH).map(move |column| element(row, column)));
    let expected: Vec<f64> = expected.chain([0.0; WIDTH]).map(|x| f64::from(x + shift)).collect();
    assert!(output.to_f64s().unwrap() == expected);
}

fn external_data_may_exceed_two_gigabytes() -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // The table ends beyond 2 GiB, the shift also begins there.
    let file = File::create(dir.join("weights.bin")).unwrap();
    file.set_len(TABLE).unwrap();
    write_table(&file, 0);
    let shift: Vec<u8> = 0.5f32.to_le_bytes().repeat(WIDTH);
    file.write_all_at(&shift, TABLE).unwrap();
    let external = |name: &str, dims: &[usize], offset: u64, length: u64| {
        let entry =
            |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
        TensorProto {
            data_location: Some(DataLocation::External as i32),
            external_data: vec![
                entry("location", "weights.bin".to_string()),
                entry("offset", offset.to_string()),
                entry("length", length.to_string()),
            ],
            ..weights(name, dims)
        }
    };
    let mut proto = gather();
    proto.graph.as_mut().unwrap().initializer.extend([
        external("table", &[ROWS, WIDTH], 0, TABLE),
        external("shift", &[WIDTH], TABLE, shift.len() as u64),
    ]);
    common::save(dir, "model.onnx", &proto);
    check(dir, 0.5);
    Ok(())
}

fn a_model_may_exceed_two_gigabytes() -> Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut proto = gather();
    let shift = Tensor::vector(&[0.25f32; WIDTH]);
    proto.graph.as_mut().unwrap().initializer.push(to_proto(&shift, "shift"));
    // The table is the last field of the last initializer of the graph, which is the last field of the model: each
    // message is what can be encoded, and then the rest of it as a field of known length.
    let ending = |message: Vec<u8>, tag: u32, length: u64| {
        let mut bytes = message;
        encode_key(tag, WireType::LengthDelimited, &mut bytes);
        encode_varint(length, &mut bytes);
        bytes
    };
    const RAW_DATA: u32 = 9;
    const INITIALIZER: u32 = 5;
    const GRAPH: u32 = 7;
    let graph: GraphProto = proto.graph.take().unwrap();
    let tensor = ending(weights("table", &[ROWS, WIDTH]).encode_to_vec(), RAW_DATA, TABLE);
    let graph = ending(graph.encode_to_vec(), INITIALIZER, tensor.len() as u64 + TABLE);
    let length = (graph.len() + tensor.len()) as u64 + TABLE;
    let start = [ending(proto.encode_to_vec(), GRAPH, length), graph, tensor].concat();
    let file = File::create(dir.join("model.onnx")).unwrap();
    file.set_len(start.len() as u64 + TABLE).unwrap();
    file.write_all_at(&start, 0).unwrap();
    write_table(&file, start.len() as u64);
    check(dir, 0.25);
    Ok(())
}
