//! Attributes of host operators.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use tilewright_dtype::DType;

/// A distribution with two parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// Uniform on `[a, b)`.
    Uniform,
    /// Normal with mean a and standard deviation b.
    Normal,
}

/// Attributes of [`HostOp::Random`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomAttrs {
    /// The distribution.
    pub distribution: Distribution,
    /// Its first parameter.
    pub a: f32,
    /// Its second parameter.
    pub b: f32,
    /// The node's seed: the bits of its F32 attribute. The session's seed and the stream serve where there is none.
    pub seed: Option<u32>,
    /// Which node of the model this is.
    pub stream: u64,
    /// Element type of the result.
    pub dtype: DType,
}

/// Attributes of [`HostOp::Multinomial`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MultinomialAttrs {
    /// As in [`RandomAttrs`].
    pub seed: Option<u32>,
    /// As in [`RandomAttrs`].
    pub stream: u64,
    /// Element type of the result: I32 or I64.
    pub dtype: DType,
}

/// Attributes of [`HostOp::Strings`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StringsAttrs {
    /// Extents.
    pub dims: Vec<u64>,
    /// Elements in row-major order.
    pub strings: Vec<String>,
}

/// Attributes of [`HostOp::Compress`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompressAttrs {
    /// The axis; the operand is flattened if absent.
    pub axis: Option<u32>,
}

/// Attributes of [`HostOp::Unique`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UniqueAttrs {
    /// The axis of the slices compared; the operand is flattened if absent.
    pub axis: Option<u32>,
    /// Whether results are sorted, instead of in order of first occurrence.
    pub sorted: bool,
}

/// Attributes of [`HostOp::NonMaxSuppression`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NmsAttrs {
    /// Whether boxes are `[x, y, width, height]` around a centre, instead of two corners `[y1, x1, y2, x2]`.
    pub center_point_box: bool,
}

/// What counts of n-grams become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NgramMode {
    /// The counts.
    Tf,
    /// The weights where the count is not 0.
    Idf,
    /// Counts times weights.
    TfIdf,
}

/// The n-grams of a pool, one after the other, shorter ones first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pool {
    /// Of integers.
    Integers(Vec<i64>),
    /// Of strings.
    Strings(Vec<String>),
}

/// Attributes of [`HostOp::Ngrams`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NgramAttrs {
    /// What the counts become.
    pub mode: NgramMode,
    /// Shortest n-gram counted.
    pub min_length: u32,
    /// Longest n-gram counted.
    pub max_length: u32,
    /// Most items skipped between two of an n-gram.
    pub max_skip: u32,
    /// First position of each length in the pool.
    pub starts: Vec<u64>,
    /// Column of the result of each n-gram.
    pub columns: Vec<u64>,
    /// The n-grams.
    pub pool: Pool,
    /// Weight of each n-gram; all 1 if empty.
    pub weights: Vec<f32>,
}

/// Attributes of [`HostOp::SplitToSequence`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitAttrs {
    /// The axis.
    pub axis: u32,
    /// Whether the axis stays in parts of the default extent 1.
    pub keep_dims: bool,
}

/// Attributes of [`HostOp::ConcatFromSequence`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConcatAttrs {
    /// The axis.
    pub axis: u32,
    /// Whether the axis is new.
    pub new_axis: bool,
}

/// Attributes of [`HostOp::StringSplit`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StringSplitAttrs {
    /// Separator; runs of white space if empty.
    pub delimiter: String,
    /// Most splits of a string; unlimited if absent.
    pub max_split: Option<u64>,
}

/// Change of case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Case {
    /// None.
    Keep,
    /// To lower case.
    Lower,
    /// To upper case.
    Upper,
}

/// Attributes of [`HostOp::StringNormalize`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormalizeAttrs {
    /// Change of case.
    pub case: Case,
    /// Whether stop words are compared with case.
    pub case_sensitive: bool,
    /// Strings that are removed.
    pub stopwords: Vec<String>,
}
