//! Reading and writing the `.pb` files of test data: ONNX TensorProto, SequenceProto and OptionalProto.
//!
//! Tasks must build before anything else of the workspace does, so this is a small reader of its own:
//! elements are widened to the one type that holds all of their kind, for printing and comparing only.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use prost::Message;

/// A value as test data holds it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// A tensor.
    Tensor(Tensor),
    /// A sequence of tensors or sequences.
    Sequence(Vec<Value>),
    /// A value that may be absent.
    Optional(Option<Box<Value>>),
}

/// Which message a `.pb` file holds; the file itself does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// TensorProto.
    Tensor,
    /// SequenceProto.
    Sequence,
    /// OptionalProto.
    Optional,
}

/// A dense tensor with widened elements.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tensor {
    /// The element type, as ONNX numbers it (`TensorProto.DataType`).
    pub(crate) data_type: i32,
    /// Extents.
    pub(crate) dims: Vec<i64>,
    /// The elements, row by row.
    pub(crate) elements: Elements,
}

/// Elements by kind, exactly as stored, in a type wide enough for all of the kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    /// Every floating-point type.
    Float(Vec<f64>),
    /// Truth values and every integer type.
    Int(Vec<i128>),
    /// Strings.
    Text(Vec<Vec<u8>>),
}

impl Elements {
    fn len(&self) -> usize {
        match self {
            Elements::Float(values) => values.len(),
            Elements::Int(values) => values.len(),
            Elements::Text(values) => values.len(),
        }
    }
}

/// `TensorProto.DataType.BFLOAT16`.
pub(crate) const BFLOAT16: i32 = 16;

/// Reads one file.
pub(crate) fn read(path: &Path, kind: ValueKind) -> anyhow::Result<Value> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    decode(&bytes, kind).with_context(|| format!("in {}", path.display()))
}

/// The message of a tensor of single precision.
pub(crate) fn floats(dims: &[i64], elements: impl Iterator<Item = f32>) -> Vec<u8> {
    let raw_data = elements.flat_map(f32::to_le_bytes).collect();
    TensorProto { dims: dims.to_vec(), data_type: 1, raw_data, ..TensorProto::default() }.encode_to_vec()
}

/// The message of an integer of 64 bits, a tensor without dimensions.
pub(crate) fn int(value: i64) -> Vec<u8> {
    let raw_data = value.to_le_bytes().to_vec();
    TensorProto { data_type: 7, raw_data, ..TensorProto::default() }.encode_to_vec()
}

/// Decodes one message.
pub(crate) fn decode(bytes: &[u8], kind: ValueKind) -> anyhow::Result<Value> {
    match kind {
        ValueKind::Tensor => Ok(Value::Tensor(TensorProto::decode(bytes)?.value()?)),
        ValueKind::Sequence => SequenceProto::decode(bytes)?.value(),
        ValueKind::Optional => OptionalProto::decode(bytes)?.value(),
    }
}

#[derive(Clone, PartialEq, Message)]
struct TensorProto {
    #[prost(int64, repeated, tag = "1")]
    dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    data_type: i32,
    #[prost(float, repeated, tag = "4")]
    float_data: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    int32_data: Vec<i32>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    string_data: Vec<Vec<u8>>,
    #[prost(int64, repeated, tag = "7")]
    int64_data: Vec<i64>,
    #[prost(bytes = "vec", tag = "9")]
    raw_data: Vec<u8>,
    #[prost(double, repeated, tag = "10")]
    double_data: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    uint64_data: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct SequenceProto {
    #[prost(message, repeated, tag = "3")]
    tensor_values: Vec<TensorProto>,
    #[prost(message, repeated, tag = "5")]
    sequence_values: Vec<SequenceProto>,
    #[prost(message, repeated, tag = "7")]
    optional_values: Vec<OptionalProto>,
}

#[derive(Clone, PartialEq, Message)]
struct OptionalProto {
    #[prost(message, optional, tag = "3")]
    tensor_value: Option<TensorProto>,
    #[prost(message, optional, boxed, tag = "5")]
    sequence_value: Option<Box<SequenceProto>>,
    #[prost(message, optional, boxed, tag = "7")]
    optional_value: Option<Box<OptionalProto>>,
}

impl SequenceProto {
    fn value(self) -> anyhow::Result<Value> {
        let tensors = self.tensor_values.into_iter().map(|tensor| Ok(Value::Tensor(tensor.value()?)));
        let sequences = self.sequence_values.into_iter().map(SequenceProto::value);
        let optionals = self.optional_values.into_iter().map(OptionalProto::value);
        Ok(Value::Sequence(tensors.chain(sequences).chain(optionals).collect::<anyhow::Result<_>>()?))
    }
}

impl OptionalProto {
    fn value(self) -> anyhow::Result<Value> {
        let inner = match (self.tensor_value, self.sequence_value, self.optional_value) {
            (Some(tensor), None, None) => Some(Value::Tensor(tensor.value()?)),
            (None, Some(sequence), None) => Some(sequence.value()?),
            (None, None, Some(optional)) => Some(optional.value()?),
            (None, None, None) => None,
            _ => bail!("an optional holds more than one value"),
        };
        Ok(Value::Optional(inner.map(Box::new)))
    }
}

/// How elements of one type are laid out in `raw_data`.
enum Format {
    Float { bits: u32, decode: fn(u64) -> f64 },
    Int { bits: u32, signed: bool },
    Text,
}

/// The format of an ONNX element type.
fn format_of(data_type: i32) -> anyhow::Result<Format> {
    let float = |bits, decode| Ok(Format::Float { bits, decode });
    let int = |bits, signed| Ok(Format::Int { bits, signed });
    match data_type {
        1 => float(32, |bits| f32::from_bits(bits as u32).into()),
        2 | 9 => int(8, false),
        3 => int(8, true),
        4 => int(16, false),
        5 => int(16, true),
        6 => int(32, true),
        7 => int(64, true),
        8 => Ok(Format::Text),
        10 => float(16, |bits| small_float(bits, 5, 10, 15, Specials::Ieee)),
        11 => float(64, f64::from_bits),
        12 => int(32, false),
        13 => int(64, false),
        BFLOAT16 => float(16, |bits| f32::from_bits((bits as u32) << 16).into()),
        17 => float(8, |bits| small_float(bits, 4, 3, 7, Specials::AllOnesIsNan)),
        18 => float(8, |bits| small_float(bits, 4, 3, 8, Specials::MinusZeroIsNan)),
        19 => float(8, |bits| small_float(bits, 5, 2, 15, Specials::Ieee)),
        20 => float(8, |bits| small_float(bits, 5, 2, 16, Specials::MinusZeroIsNan)),
        21 => int(4, false),
        22 => int(4, true),
        23 => float(4, |bits| small_float(bits, 2, 1, 1, Specials::None)),
        24 => float(8, |bits| if bits == 255 { f64::NAN } else { f64::from(bits as i32 - 127).exp2() }),
        25 => int(2, false),
        26 => int(2, true),
        other => bail!("element type {other} cannot be read"),
    }
}

/// What a small float format does with the bit patterns that IEEE 754 keeps for infinities and NaN.
#[derive(PartialEq)]
enum Specials {
    /// The largest exponent holds infinities and NaNs.
    Ieee,
    /// All ones but the sign is NaN; there are no infinities.
    AllOnesIsNan,
    /// Minus zero is the only NaN; there are no infinities.
    MinusZeroIsNan,
    /// Every pattern is a number.
    None,
}

/// The value of a sign, `exponent` and `mantissa` bits; exact, as all such values are doubles.
fn small_float(bits: u64, exponent: u32, mantissa: u32, bias: i32, specials: Specials) -> f64 {
    let sign = if bits >> (exponent + mantissa) & 1 == 1 { -1.0 } else { 1.0 };
    let fraction = bits & ((1 << mantissa) - 1);
    let power = bits >> mantissa & ((1 << exponent) - 1);
    let all_ones = power == (1 << exponent) - 1;
    match specials {
        Specials::Ieee if all_ones => return if fraction == 0 { sign * f64::INFINITY } else { f64::NAN },
        Specials::AllOnesIsNan if all_ones && fraction == (1 << mantissa) - 1 => return f64::NAN,
        Specials::MinusZeroIsNan if bits == 1 << (exponent + mantissa) => return f64::NAN,
        _ => {}
    }
    let significand = if power == 0 { fraction } else { fraction | 1 << mantissa };
    sign * significand as f64 * f64::from(power.max(1) as i32 - bias - mantissa as i32).exp2()
}

impl TensorProto {
    fn value(self) -> anyhow::Result<Tensor> {
        let count = self.dims.iter().try_fold(1usize, |n, &dim| n.checked_mul(usize::try_from(dim).ok()?));
        let count = count.with_context(|| format!("bad extents {:?}", self.dims))?;
        let elements = match format_of(self.data_type)? {
            Format::Text => Elements::Text(self.string_data),
            Format::Float { bits, decode } => {
                let raw = unpack(&raw_bytes(&self, bits), bits, count);
                Elements::Float(raw.into_iter().map(decode).collect())
            }
            Format::Int { bits, signed } => {
                let raw = unpack(&raw_bytes(&self, bits), bits, count);
                Elements::Int(raw.into_iter().map(|value| widen(value, bits, signed)).collect())
            }
        };
        ensure!(elements.len() == count, "{} elements for extents {:?}", elements.len(), self.dims);
        Ok(Tensor { data_type: self.data_type, dims: self.dims, elements })
    }
}

/// The elements as `raw_data` would hold them, whichever field they came in.
fn raw_bytes(tensor: &TensorProto, bits: u32) -> Vec<u8> {
    // Types of less than 32 bits travel one storage unit an int32: the value, or a byte of packed values.
    let unit = (bits as usize / 8).max(1);
    if !tensor.raw_data.is_empty() {
        tensor.raw_data.clone()
    } else if !tensor.int32_data.is_empty() {
        tensor.int32_data.iter().flat_map(|value| value.to_le_bytes().into_iter().take(unit)).collect()
    } else if !tensor.int64_data.is_empty() {
        tensor.int64_data.iter().flat_map(|value| value.to_le_bytes()).collect()
    } else if !tensor.uint64_data.is_empty() {
        tensor.uint64_data.iter().flat_map(|value| value.to_le_bytes().into_iter().take(unit)).collect()
    } else if !tensor.double_data.is_empty() {
        tensor.double_data.iter().flat_map(|value| value.to_le_bytes()).collect()
    } else {
        tensor.float_data.iter().flat_map(|value| value.to_le_bytes()).collect()
    }
}

/// At most `count` little-endian elements; those of less than a byte are packed from the low bits up.
fn unpack(bytes: &[u8], bits: u32, count: usize) -> Vec<u64> {
    if bits < 8 {
        let mask = (1u8 << bits) - 1;
        let shifts = || (0..8).step_by(bits as usize);
        bytes
            .iter()
            .flat_map(|byte| shifts().map(move |shift| u64::from(byte >> shift & mask)))
            .take(count)
            .collect()
    } else {
        let little_endian =
            |unit: &[u8]| unit.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
        bytes.chunks_exact(bits as usize / 8).map(little_endian).collect()
    }
}

fn widen(value: u64, bits: u32, signed: bool) -> i128 {
    if signed { i128::from((value << (64 - bits)) as i64 >> (64 - bits)) } else { i128::from(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tensor: TensorProto, expect: Elements) {
        let dims = vec![expect.len() as i64];
        let data_type = tensor.data_type;
        let bytes = TensorProto { dims: dims.clone(), ..tensor }.encode_to_vec();
        let value = decode(&bytes, ValueKind::Tensor).unwrap();
        assert_eq!(value, Value::Tensor(Tensor { data_type, dims, elements: expect }));
    }

    fn raw(data_type: i32, raw_data: &[u8]) -> TensorProto {
        TensorProto { data_type, raw_data: raw_data.to_vec(), ..TensorProto::default() }
    }

    #[test]
    fn integers_of_every_width() {
        check(raw(7, &(-5i64).to_le_bytes()), Elements::Int(vec![-5]));
        check(raw(13, &u64::MAX.to_le_bytes()), Elements::Int(vec![u64::MAX.into()]));
        check(raw(3, &[0xff, 0x7f]), Elements::Int(vec![-1, 127]));
        check(raw(22, &[0xf8, 0x01]), Elements::Int(vec![-8, -1, 1]));
        check(raw(21, &[0xf8]), Elements::Int(vec![8, 15]));
        check(raw(26, &[0b00_01_10_11]), Elements::Int(vec![-1, -2, 1, 0]));
    }

    #[test]
    fn floats_of_every_format() {
        check(raw(1, &1.5f32.to_le_bytes()), Elements::Float(vec![1.5]));
        check(raw(10, &[0x00, 0x3c, 0x00, 0xfc, 0x01, 0x00]), {
            Elements::Float(vec![1.0, f64::NEG_INFINITY, 2f64.powi(-24)])
        });
        check(raw(16, &[0x80, 0x3f]), Elements::Float(vec![1.0]));
        check(raw(17, &[0x7e, 0x01]), Elements::Float(vec![448.0, 2f64.powi(-9)]));
        check(raw(18, &[0x7f]), Elements::Float(vec![240.0]));
        check(raw(19, &[0x7b, 0x7c]), Elements::Float(vec![57344.0, f64::INFINITY]));
        check(raw(23, &[0x7f]), Elements::Float(vec![-6.0, 6.0]));
        check(raw(24, &[0x80]), Elements::Float(vec![2.0]));
    }

    #[test]
    fn typed_fields_hold_the_same_as_raw_data() {
        let tensor = |data_type| TensorProto { data_type, ..TensorProto::default() };
        check(TensorProto { int32_data: vec![-3, 4], ..tensor(3) }, Elements::Int(vec![-3, 4]));
        check(TensorProto { int32_data: vec![0x3c00], ..tensor(10) }, Elements::Float(vec![1.0]));
        check(TensorProto { uint64_data: vec![7], ..tensor(12) }, Elements::Int(vec![7]));
        check(
            TensorProto { string_data: vec![b"ab".to_vec()], ..tensor(8) },
            Elements::Text(vec![b"ab".to_vec()]),
        );
    }

    #[test]
    fn a_tensor_with_too_few_elements_is_refused() {
        let tensor = TensorProto { dims: vec![2], ..raw(1, &[0; 4]) };
        let error = decode(&tensor.encode_to_vec(), ValueKind::Tensor).unwrap_err();
        assert_eq!(error.to_string(), "1 elements for extents [2]");
    }

    #[test]
    fn sequences_and_optionals_nest() {
        let tensor = TensorProto { dims: vec![1], ..raw(2, &[9]) };
        let inner = Value::Tensor(Tensor { data_type: 2, dims: vec![1], elements: Elements::Int(vec![9]) });
        let sequence = SequenceProto { tensor_values: vec![tensor], ..SequenceProto::default() };
        let optional = OptionalProto { sequence_value: Some(Box::new(sequence)), ..OptionalProto::default() };
        let value = decode(&optional.encode_to_vec(), ValueKind::Optional).unwrap();
        assert_eq!(value, Value::Optional(Some(Box::new(Value::Sequence(vec![inner])))));
        assert_eq!(decode(&[], ValueKind::Optional).unwrap(), Value::Optional(None));
    }
}
