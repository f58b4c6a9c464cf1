//! Loading: what is not a model, what is damaged, and external data.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use tilewright_onnx::proto::*;
use tilewright_onnx::tensor::{from_proto, to_proto};
use tilewright_onnx::{OnnxError, OnnxModel};

fn model_with(initializer: Vec<TensorProto>) -> ModelProto {
    ModelProto {
        ir_version: Some(9),
        producer_name: Some("test".into()),
        graph: Some(GraphProto { name: Some("g".into()), initializer, ..GraphProto::default() }),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        ..ModelProto::default()
    }
}

fn check_load_error(bytes: &'static [u8], expect: &str) {
    let error = OnnxModel::from_bytes(Bytes::from_static(bytes)).unwrap_err().to_string();
    assert!(error.contains(expect), "expected `{expect}` in `{error}`");
}

#[test]
fn other_files_are_named() {
    check_load_error(b"", "the file is empty");
    check_load_error(b"PK\x03\x04 and so on", "zip archive");
    check_load_error(b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull");
    check_load_error(b"<!DOCTYPE html><html>", "HTML page");
    check_load_error(b"hello there, I am text\n", "text file");
    check_load_error(b"\x89HDF\r\n\x1a\n", "HDF5");
    check_load_error(b"\x1c\x00\x00\x00TFL3", "TensorFlow Lite");
    check_load_error(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "not an ONNX model");
}

#[test]
fn truncation_is_told_from_damage() {
    let bytes = model_with(vec![]).encode_to_vec();
    let graph_key = 2 + 6; // ir_version, producer_name
    assert_eq!(bytes[graph_key], 7 << 3 | 2);
    let error = OnnxModel::from_bytes(Bytes::copy_from_slice(&bytes[..graph_key + 3])).unwrap_err();
    assert!(matches!(error, OnnxError::Truncated { field: 7, needed: 3, available: 1, .. }), "{error}");
    let mut damaged = bytes.clone();
    damaged[graph_key + 2] = 0xff; // the key of the graph's name
    let error = OnnxModel::from_bytes(Bytes::from(damaged)).unwrap_err();
    assert!(matches!(error, OnnxError::Damaged(_)), "{error}");
}

#[test]
fn versions_and_missing_graph() {
    let future = ModelProto { ir_version: Some(MAX_IR_VERSION + 1), ..model_with(vec![]) };
    let error = OnnxModel::from_bytes(future.encode_to_vec().into()).unwrap_err();
    assert_eq!(error.to_string(), "the ONNX model has IR version 15; versions 1 to 14 are known");
    let empty = ModelProto { graph: None, ..model_with(vec![]) };
    let error = OnnxModel::from_bytes(empty.encode_to_vec().into()).unwrap_err();
    assert!(matches!(error, OnnxError::NoGraph));
    let error = OnnxModel::load("/nonexistent/model.onnx").unwrap_err();
    assert!(matches!(error, OnnxError::Io { .. }));
    let error = OnnxModel::load("/").unwrap_err();
    assert!(matches!(error, OnnxError::NotAFile { .. }));
}

#[test]
fn deep_recursion_is_an_error() {
    // A type nested in sequences, deeper than any stack would bear.
    let mut bytes = Vec::new();
    for _ in 0..100_000 {
        let mut wrapped = vec![1 << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut wrapped);
        if bytes.len() > 1 << 16 {
            break;
        }
        wrapped.extend_from_slice(&bytes);
        let mut outer = vec![4 << 3 | 2];
        prost::encoding::encode_varint(wrapped.len() as u64, &mut outer);
        outer.extend_from_slice(&wrapped);
        bytes = outer;
    }
    let error = TypeProto::decode(Bytes::from(bytes)).unwrap_err();
    assert!(error.to_string().contains("recursion limit reached"), "{error}");
}

fn external(location: &str, offset: &str, length: &str) -> TensorProto {
    let entry =
        |key: &str, value: &str| StringStringEntryProto { key: Some(key.into()), value: Some(value.into()) };
    TensorProto {
        dims: vec![3],
        data_type: Some(tensor_proto::DataType::Int32 as i32),
        name: Some("w".into()),
        external_data: vec![entry("location", location), entry("offset", offset), entry("length", length)],
        data_location: Some(tensor_proto::DataLocation::External as i32),
        ..TensorProto::default()
    }
}

fn check_external(folder: &Path, tensor: TensorProto, expect: Result<&[i64], &str>) {
    let path = folder.join("model.onnx");
    fs::write(&path, model_with(vec![tensor]).encode_to_vec()).unwrap();
    let model = OnnxModel::load(&path).unwrap();
    let got = model.tensor(&model.graph().initializer[0]);
    match (got, expect) {
        (Ok(tensor), Ok(values)) => assert_eq!(tensor.to_i64s().unwrap(), values),
        (Err(error), Err(message)) => {
            let error = error.to_string();
            assert!(error.contains(message), "expected `{message}` in `{error}`");
        }
        (got, expect) => panic!("got {got:?}, expected {expect:?}"),
    }
}

#[test]
fn external_data_stays_in_the_folder() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("model");
    fs::create_dir_all(folder.join("sub")).unwrap();
    let data: Vec<u8> = [0i32, 7, -8, 9].iter().flat_map(|v| v.to_le_bytes()).collect();
    fs::write(folder.join("sub/data.bin"), &data).unwrap();
    fs::write(outer.path().join("secret.bin"), &data).unwrap();
    let check = |tensor, expect| check_external(&folder, tensor, expect);
    check(external("sub/data.bin", "4", "12"), Ok(&[7, -8, 9]));
    check(external("./sub/data.bin", "0", "12"), Ok(&[0, 7, -8]));
    check(external("../secret.bin", "0", "12"), Err("outside the model's folder"));
    check(external("sub/../../secret.bin", "0", "12"), Err("outside the model's folder"));
    check(external(outer.path().join("secret.bin").to_str().unwrap(), "0", "12"), Err("outside"));
    check(external("", "0", "12"), Err("no `location`"));
    check(external("sub", "0", "12"), Err("not a regular file"));
    check(external("missing.bin", "0", "12"), Err("No such file"));
    check(external("sub/data.bin", "-4", "12"), Err("`offset` is `-4`"));
    check(external("sub/data.bin", "4", "16"), Err("`length` is 16, but the tensor takes 12 bytes"));
    check(external("sub/data.bin", "8", "12"), Err("bytes 8..20 are needed, but the file has 16"));
    check(external("sub/data.bin", "18446744073709551615", "12"), Err("are needed, but the file has 16"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../secret.bin", folder.join("link.bin")).unwrap();
        std::os::unix::fs::symlink("sub/data.bin", folder.join("inner.bin")).unwrap();
        std::os::unix::fs::symlink("..", folder.join("up")).unwrap();
        check(external("link.bin", "0", "12"), Err("symbolic link leads outside"));
        check(external("up/secret.bin", "0", "12"), Err("symbolic link leads outside"));
        check(external("inner.bin", "4", "12"), Ok(&[7, -8, 9]));
    }
    let model = OnnxModel::from_proto(model_with(vec![external("sub/data.bin", "0", "12")])).unwrap();
    let error = model.tensor(&model.graph().initializer[0]).unwrap_err().to_string();
    assert_eq!(error, "tensor `w`: external data `sub/data.bin`: the model was not loaded from a file");
}

fn typed(data_type: tensor_proto::DataType, dims: &[i64], int32_data: &[i32]) -> TensorProto {
    let (dims, int32_data) = (dims.to_vec(), int32_data.to_vec());
    TensorProto { dims, data_type: Some(data_type as i32), int32_data, ..TensorProto::default() }
}

#[test]
fn sub_byte_elements_unpack_and_pack() {
    use tensor_proto::DataType::{Bool, Int2, Int4, Uint2, Uint4};
    for (data_type, dims, packed, expect) in [
        (Int4, 3, vec![0x8f, 0x07], vec![-1, -8, 7]),
        (Uint4, 3, vec![0x8f, 0x07], vec![15, 8, 7]),
        (Int2, 5, vec![0b11_10_01_00, 0b01], vec![0, 1, -2, -1, 1]),
        (Uint2, 5, vec![0b11_10_01_00, 0b01], vec![0, 1, 2, 3, 1]),
        (Bool, 3, vec![0, 1, 2], vec![0, 1, 1]),
    ] {
        let tensor = from_proto(&typed(data_type, &[dims], &packed)).unwrap();
        assert_eq!(tensor.to_i64s().unwrap(), expect, "{data_type:?}");
        let again = from_proto(&to_proto(&tensor, "t")).unwrap();
        assert_eq!(again, tensor, "{data_type:?}");
    }
}

#[test]
fn contradicting_tensors_are_errors() {
    use tensor_proto::DataType::{Complex64, Int32};
    let check = |tensor: TensorProto, expect: &str| {
        let error = from_proto(&tensor).unwrap_err().to_string();
        assert!(error.contains(expect), "expected `{expect}` in `{error}`");
    };
    check(typed(Int32, &[2, 2], &[1, 2, 3]), "i32[2, 2] takes 4 elements, but 3 are there");
    check(typed(Int32, &[-1], &[1]), "impossible extents [-1]");
    check(typed(Int32, &[i64::MAX, 4], &[1]), "impossible extents");
    check(typed(Complex64, &[1], &[1]), "COMPLEX64 is not supported");
    check(TensorProto { data_type: Some(77), ..TensorProto::default() }, "unknown element type 77");
    let raw = Some(Bytes::from_static(b"12345"));
    check(TensorProto { raw_data: raw, ..typed(Int32, &[1], &[]) }, "takes 4 bytes, but 5 are there");
}

#[test]
fn sparse_initializers_become_dense() {
    let int64 = |dims: &[i64], int64_data: &[i64]| TensorProto {
        dims: dims.to_vec(),
        data_type: Some(tensor_proto::DataType::Int64 as i32),
        int64_data: int64_data.to_vec(),
        ..TensorProto::default()
    };
    let model = OnnxModel::from_proto(model_with(vec![])).unwrap();
    let sparse = |dims: &[i64], indices| SparseTensorProto {
        values: Some(int64(&[2], &[5, 6])),
        indices: Some(indices),
        dims: dims.to_vec(),
    };
    for indices in [int64(&[2], &[1, 5]), int64(&[2, 2], &[0, 1, 1, 2])] {
        let dense = model.sparse_tensor(&sparse(&[2, 3], indices)).unwrap();
        assert_eq!(dense.to_i64s().unwrap(), [0, 5, 0, 0, 0, 6]);
    }
    let check = |sparse, expect: &str| {
        let error = model.sparse_tensor(&sparse).unwrap_err().to_string();
        assert!(error.contains(expect), "expected `{expect}` in `{error}`");
    };
    check(sparse(&[2, 3], int64(&[2], &[1, 6])), "an index exceeds the extents");
    check(sparse(&[1 << 40], int64(&[2], &[1, 6])), "over the limit");
}

/// Seeded mutations of a model: decoding ends in a model or an error, never a panic.
#[test]
fn mutations_never_panic() {
    let tensor = typed(tensor_proto::DataType::Int32, &[3], &[1, 2, 3]);
    let bytes = model_with(vec![tensor, external("a", "0", "4")]).encode_to_vec();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..20_000 {
        let mut mutant = bytes.clone();
        for _ in 0..1 + random() % 3 {
            let at = random() % mutant.len();
            match random() % 3 {
                0 => mutant[at] ^= 1 << (random() % 8),
                1 => mutant[at] = random() as u8,
                _ => mutant.truncate(at.max(1)),
            }
        }
        if let Ok(model) = OnnxModel::from_bytes(Bytes::from(mutant)) {
            model.graph().initializer.iter().for_each(|tensor| drop(model.tensor(tensor)));
        }
    }
}
