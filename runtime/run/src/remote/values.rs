//! Values as blobs: ONNX's messages, which hold all of them.

use serde::{Deserialize, Serialize};
use tilewright_runtime::Value;
use tilewright_runtime::plan::Nesting;

use crate::files::{PbError, pb};
use crate::values::Named;

/// What is said of a value beside its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sent {
    name: String,
    nesting: Vec<Nesting>,
}

/// Named values, and the bytes of each.
pub(super) fn encode(values: &[(String, Value)]) -> (Vec<Sent>, Vec<Vec<u8>>) {
    let sent = |(name, value): &(String, Value)| {
        (Sent { name: name.clone(), nesting: nesting(value) }, pb::encode(name, value))
    };
    values.iter().map(sent).unzip()
}

/// The values of these bytes, as many as there are both.
pub(super) fn decode<B: AsRef<[u8]>>(
    sent: &[Sent],
    bytes: impl IntoIterator<Item = B>,
) -> Result<Named, PbError> {
    let value =
        |(sent, bytes): (&Sent, B)| Ok((sent.name.clone(), pb::decode(bytes.as_ref(), &sent.nesting)?));
    sent.iter().zip(bytes).map(value).collect()
}

/// What is around the tensors of a value, as deep as any of its items tells: an empty sequence tells nothing.
fn nesting(value: &Value) -> Vec<Nesting> {
    let (outer, inner) = match value {
        Value::Tensor(_) => return Vec::new(),
        Value::Sequence(items) => {
            (Nesting::Sequence, items.iter().map(nesting).max_by_key(Vec::len).unwrap_or_default())
        }
        Value::Optional(value) => (Nesting::Optional, value.as_deref().map(nesting).unwrap_or_default()),
    };
    [vec![outer], inner].concat()
}

#[cfg(test)]
mod tests {
    use tilewright_runtime::Tensor;

    use super::*;

    #[test]
    fn values_of_all_kinds_come_through() {
        let tensor = Value::from(Tensor::new(&[2], [1.5f32, -0.0]).unwrap());
        let strings = Value::from(Tensor::from_strings(&[1], vec!["a".to_string()]).unwrap());
        let empty = Value::from(Tensor::new::<i64>(&[0, 3], []).unwrap());
        let some = |value: &Value| Value::optional(Some(value.clone()));
        let none = Value::optional(None);
        let values: Named = [
            tensor.clone(),
            strings.clone(),
            empty,
            Value::sequence(vec![]),
            Value::sequence(vec![tensor.clone(), tensor.clone()]),
            Value::sequence(vec![none.clone(), some(&strings)]),
            none,
            some(&Value::sequence(vec![tensor])),
        ]
        .into_iter()
        .enumerate()
        .map(|(i, value)| (format!("v{i}"), value))
        .collect();
        let (sent, bytes) = encode(&values);
        assert_eq!(decode(&sent, &bytes).unwrap(), values);
        assert!(matches!(decode(&sent[..1], [b"\xff"]), Err(PbError::Message { .. })));
    }
}
