//! Loading a model: mapping the file, decoding it, and telling damaged models from other files.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tilewright_graph::tensor::Tensor;

use crate::error::OnnxError;
use crate::external::{self, ExternalFolder};
use crate::proto::{GraphProto, MAX_IR_VERSION, ModelProto, SparseTensorProto, TensorError, TensorProto};
use crate::tensor;

/// A decoded model together with the place its external data is looked for. Cloning shares the weights.
#[derive(Clone, Debug)]
pub struct OnnxModel {
    /// The model as decoded; its byte fields are slices of the mapped file.
    pub proto: ModelProto,
    folder: Option<Arc<ExternalFolder>>,
}

impl OnnxModel {
    /// Maps and decodes the model at `path`. External data is read later, tensor by tensor.
    pub fn load(path: impl AsRef<Path>) -> Result<OnnxModel, OnnxError> {
        let path = path.as_ref();
        let bytes = external::map_file(path)
            .map_err(|source| OnnxError::Io { path: path.to_owned(), source })?
            .ok_or_else(|| OnnxError::NotAFile { path: path.to_owned() })?;
        let model = OnnxModel::from_bytes(bytes)?;
        Ok(OnnxModel { folder: Some(Arc::new(ExternalFolder::of_model(path))), ..model })
    }

    /// Decodes a model from memory, sharing that memory. It cannot have external data.
    pub fn from_bytes(bytes: Bytes) -> Result<OnnxModel, OnnxError> {
        let proto = ModelProto::decode(bytes.clone()).map_err(|error| diagnose(&bytes, error))?;
        if proto.graph.is_none() {
            // Any short file may be valid protobuf by chance; only one that also has a version is a model.
            return Err(match proto.ir_version {
                Some(1..) => OnnxError::NoGraph,
                Some(_) | None => OnnxError::NotOnnx { hint: looks_like(&bytes) },
            });
        }
        OnnxModel::from_proto(proto)
    }

    /// A model made in memory.
    pub fn from_proto(proto: ModelProto) -> Result<OnnxModel, OnnxError> {
        match proto.ir_version() {
            1..=MAX_IR_VERSION => {}
            version => return Err(OnnxError::IrVersion { version }),
        }
        if proto.graph.is_none() {
            return Err(OnnxError::NoGraph);
        }
        Ok(OnnxModel { proto, folder: None })
    }

    /// The main graph.
    pub fn graph(&self) -> &GraphProto {
        static EMPTY: std::sync::OnceLock<GraphProto> = std::sync::OnceLock::new();
        self.proto.graph.as_ref().unwrap_or_else(|| EMPTY.get_or_init(GraphProto::default))
    }

    /// The version of an operator set that the model imports. The default one is `""`.
    pub fn opset(&self, domain: &str) -> Option<i64> {
        opset(&self.proto.opset_import, domain)
    }

    /// A tensor of the model, its data shared with the mapped file where the format allows.
    pub fn tensor(&self, proto: &TensorProto) -> Result<Tensor, TensorError> {
        tensor::decode(proto, self.folder.as_deref())
    }

    /// A sparse tensor of the model, in dense form.
    pub fn sparse_tensor(&self, proto: &SparseTensorProto) -> Result<Tensor, TensorError> {
        tensor::decode_sparse(proto, self.folder.as_deref())
    }
}

/// The file of a model, with its weights in it.
///
/// # Errors
/// [`OnnxError::TooLarge`] for one that readers of protobuf refuse.
pub fn encode(model: &ModelProto) -> Result<Vec<u8>, OnnxError> {
    match model.encoded_len() {
        bytes if i32::try_from(bytes).is_ok() => Ok(model.encode_to_vec()),
        bytes => Err(OnnxError::TooLarge { bytes }),
    }
}

/// The version of `domain` in a list of imports; `ai.onnx` is another name of the default domain.
pub(crate) fn opset(imports: &[crate::proto::OperatorSetIdProto], domain: &str) -> Option<i64> {
    let canonical = |name: &str| if name == "ai.onnx" { String::new() } else { name.to_owned() };
    let domain = canonical(domain);
    imports.iter().find(|import| canonical(import.domain()) == domain).map(|import| import.version())
}

/// What is wrong with bytes that do not decode: cut, damaged, or no ONNX model at all.
fn diagnose(bytes: &Bytes, error: prost::DecodeError) -> OnnxError {
    let mut rest = bytes.as_ref();
    let mut known_fields = 0;
    while !rest.is_empty() {
        let offset = bytes.len() - rest.len();
        let Some((field, wire)) = read_varint(&mut rest).map(|key| (key >> 3, key & 7)) else { break };
        // Fields of ModelProto: numbers are varints, all else is length-delimited.
        match (field, wire) {
            (1 | 5, 0) if read_varint(&mut rest).is_some() => {}
            (2 | 3 | 4 | 6 | 7 | 8 | 14 | 20 | 25 | 26, 2) => {
                let Some(needed) = read_varint(&mut rest) else { break };
                if needed > rest.len() as u64 {
                    let offset = bytes.len() - rest.len();
                    // A length in the very first field may be any file's second byte.
                    let plausible = known_fields > 0 || field == 7;
                    return if plausible {
                        OnnxError::Truncated { field, offset, needed, available: rest.len() }
                    } else {
                        OnnxError::NotOnnx { hint: looks_like(bytes) }
                    };
                }
                rest = &rest[needed as usize..];
            }
            _ if offset == 0 || known_fields < 2 => return OnnxError::NotOnnx { hint: looks_like(bytes) },
            _ => break,
        }
        known_fields += 1;
    }
    if known_fields < 2 { OnnxError::NotOnnx { hint: looks_like(bytes) } } else { OnnxError::Damaged(error) }
}

fn read_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in rest.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * i).min(63);
        if byte < 0x80 {
            *rest = &rest[i + 1..];
            return Some(value);
        }
    }
    None
}

/// A guess at what a file is, for people who gave the wrong one.
fn looks_like(bytes: &[u8]) -> String {
    let starts: [(&[u8], &str); 12] = [
        (
            b"PK\x03\x04",
            "a zip archive (a PyTorch .pt file or .npz?); export the model with torch.onnx.export",
        ),
        (b"\x80\x02", "a Python pickle (a PyTorch .pth file?); export the model with torch.onnx.export"),
        (b"\x89HDF", "an HDF5 file (a Keras model?); convert it with tf2onnx"),
        (b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
        (b"<!DOCTYPE", "an HTML page; the download gave a page instead of the file"),
        (b"<html", "an HTML page; the download gave a page instead of the file"),
        (b"<?xml", "an XML file (an OpenVINO model?)"),
        (b"GGUF", "a GGUF file"),
        (b"\x7fELF", "an ELF binary"),
        (b"\x1f\x8b", "a gzip archive; unpack it first"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive; unpack it first"),
        (b"\x93NUMPY", "a NumPy array"),
    ];
    if bytes.is_empty() {
        return "the file is empty".to_owned();
    }
    if bytes.get(4..8) == Some(b"TFL3") {
        return "it looks like a TensorFlow Lite model; convert it with tf2onnx".to_owned();
    }
    if bytes.get(4..8) == Some(b"ORTM") {
        return "it looks like an ONNX Runtime .ort file".to_owned();
    }
    if bytes.get(8) == Some(&b'{') && bytes[1..8].iter().filter(|&&byte| byte == 0).count() >= 4 {
        return "it looks like a safetensors file".to_owned();
    }
    match starts.into_iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, name)) => format!("it looks like {name}"),
        None if bytes.iter().take(256).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) => {
            "it looks like a text file".to_owned()
        }
        None => "the bytes are not a protobuf message of type ModelProto".to_owned(),
    }
}
