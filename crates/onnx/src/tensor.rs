//! Tensors between their protobuf form and the graph's; both share the elements.

use bytes::Bytes;
use tilewright_graph::tensor::{Bytes as SharedBytes, Tensor, TensorSizeError};
use tilewright_proto::tensor::{self as message, Elements, no_files};

use crate::external::ExternalFolder;
use crate::proto::{ExternalFault, SparseTensorProto, TensorError, TensorFault, TensorProto};

/// Decodes a tensor that has no external data, such as a test input; raw bytes are shared with the message.
pub fn from_proto(proto: &TensorProto) -> Result<Tensor, TensorError> {
    of_message(message::decode(proto, &no_files)?, proto.name())
}

/// Decodes a tensor; `folder` is where its external data may lie.
pub(crate) fn decode(proto: &TensorProto, folder: Option<&ExternalFolder>) -> Result<Tensor, TensorError> {
    of_message(message::decode(proto, &files(folder))?, proto.name())
}

/// Decodes a sparse tensor to dense form.
pub(crate) fn decode_sparse(
    proto: &SparseTensorProto,
    folder: Option<&ExternalFolder>,
) -> Result<Tensor, TensorError> {
    let name = proto.values.as_ref().map_or("", |values| values.name());
    of_message(message::decode_sparse(proto, &files(folder))?, name)
}

fn files(folder: Option<&ExternalFolder>) -> impl Fn(&str) -> Result<Bytes, ExternalFault> + '_ {
    move |location| folder.ok_or(ExternalFault::NoFolder)?.map(location)
}

fn of_message(tensor: message::Tensor, name: &str) -> Result<Tensor, TensorError> {
    let made = match tensor.elements {
        Elements::Bytes(bytes) => Tensor::from_bytes(tensor.dtype, tensor.dims, SharedBytes::new(bytes)),
        Elements::Strings(strings) => {
            Tensor::from_strings(tensor.dims, strings.iter().map(|string| string.to_vec()).collect())
        }
    };
    // The message was found to have as many elements as it needs; the graph's own check agrees.
    let fault = |TensorSizeError { dtype, dims, expected, got }| TensorFault::Size {
        dtype,
        dims,
        unit: "bytes",
        expected: expected.unwrap_or(usize::MAX),
        got,
    };
    made.map_err(|error| TensorError { name: name.to_owned(), reason: fault(error) })
}

/// Lets a message own a tensor's data.
struct Owner(SharedBytes);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

/// The protobuf form of a tensor: `raw_data`, shared with the tensor unless elements are packed, or
/// `string_data` for strings.
pub fn to_proto(tensor: &Tensor, name: &str) -> TensorProto {
    let elements = match tensor.bytes() {
        Some(bytes) => Elements::Bytes(Bytes::from_owner(Owner(bytes.clone()))),
        None => {
            let strings = tensor.strings().unwrap_or_default();
            Elements::Strings(strings.iter().map(|string| Bytes::from(string.clone())).collect())
        }
    };
    message::Tensor { dtype: tensor.dtype(), dims: tensor.dims().to_vec(), elements }.to_proto(name)
}
