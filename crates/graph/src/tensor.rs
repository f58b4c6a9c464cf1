//! Constant tensors: dense row-major data that is shared, never copied.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use rustc_hash::FxHasher;
use tilewright_dtype::{DType, numbers};

use crate::types::TensorType;

/// Tensors of at most so many bytes are hashed whole.
const HASHED_WHOLE: usize = 1 << 16;

/// How many pieces of larger ones are hashed.
const HASHED_SAMPLES: usize = 512;

/// A shared range of immutable bytes: owned memory or part of a mapped file.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    offset: usize,
    len: usize,
}

impl Bytes {
    /// All of `owner`'s bytes.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Bytes {
        let len = owner.as_ref().len();
        Bytes { owner: Arc::new(owner), offset: 0, len }
    }

    /// `len` bytes from `offset` on, sharing memory; `None` if they are not all there.
    pub fn slice(&self, offset: usize, len: usize) -> Option<Bytes> {
        (offset.checked_add(len)? <= self.len).then(|| Bytes {
            owner: Arc::clone(&self.owner),
            offset: self.offset + offset,
            len,
        })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.offset..self.offset + self.len]
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes::new(bytes)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.len)
    }
}

/// What a tensor's elements are stored in.
#[derive(Clone, Debug)]
enum Storage {
    /// Little-endian elements, row-major, [`DType::bytes`] each.
    Bytes(Bytes),
    Strings(Arc<[Vec<u8>]>),
}

/// A constant tensor. Cloning shares the data; equality is by content.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    dims: Vec<usize>,
    storage: Storage,
    hash: Arc<OnceLock<u64>>,
}

/// Data whose size does not fit the extents and element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tensor {dtype}{dims:?} takes {expected:?} bytes, but {got} are there")]
pub struct TensorSizeError {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub dims: Vec<usize>,
    /// Bytes needed; `None` if the number overflows or the elements are strings.
    pub expected: Option<usize>,
    /// Bytes given.
    pub got: usize,
}

/// A Rust type that is the in-memory form of one [`DType`].
pub trait Element: Copy {
    /// The element type.
    const DTYPE: DType;
    /// Appends the little-endian bytes.
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),*) => { $(
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
            fn append(self, bytes: &mut Vec<u8>) { bytes.extend_from_slice(&self.to_le_bytes()) }
        }
    )* };
}
elements!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64, f32 => F32, f64 => F64);

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn append(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }
}

impl Tensor {
    /// A tensor over raw little-endian data.
    pub fn from_bytes(dtype: DType, dims: Vec<usize>, bytes: Bytes) -> Result<Tensor, TensorSizeError> {
        let expected = dims.iter().try_fold(dtype.bytes(), |product, &dim| product.checked_mul(dim));
        if dtype == DType::String || expected != Some(bytes.len) {
            return Err(TensorSizeError { dtype, dims, expected, got: bytes.len });
        }
        Ok(Tensor { dtype, dims, storage: Storage::Bytes(bytes), hash: Arc::default() })
    }

    /// A tensor of strings (UTF-8 by convention of ONNX, but kept as given).
    pub fn from_strings(dims: Vec<usize>, strings: Vec<Vec<u8>>) -> Result<Tensor, TensorSizeError> {
        let count = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
        if count != Some(strings.len()) {
            return Err(TensorSizeError { dtype: DType::String, dims, expected: count, got: strings.len() });
        }
        let storage = Storage::Strings(strings.into());
        Ok(Tensor { dtype: DType::String, dims, storage, hash: Arc::default() })
    }

    /// A tensor with the given elements.
    pub fn from_elements<T: Element>(dims: &[usize], elements: &[T]) -> Result<Tensor, TensorSizeError> {
        let mut bytes = Vec::with_capacity(std::mem::size_of_val(elements));
        elements.iter().for_each(|element| element.append(&mut bytes));
        Tensor::from_bytes(T::DTYPE, dims.to_vec(), Bytes::from(bytes))
    }

    /// A scalar.
    pub fn scalar<T: Element>(element: T) -> Tensor {
        Tensor::vector_with_dims(vec![], &[element])
    }

    /// A vector.
    pub fn vector<T: Element>(elements: &[T]) -> Tensor {
        Tensor::vector_with_dims(vec![elements.len()], elements)
    }

    fn vector_with_dims<T: Element>(dims: Vec<usize>, elements: &[T]) -> Tensor {
        let mut bytes = Vec::with_capacity(std::mem::size_of_val(elements));
        elements.iter().for_each(|element| element.append(&mut bytes));
        Tensor { dtype: T::DTYPE, dims, storage: Storage::Bytes(Bytes::from(bytes)), hash: Arc::default() }
    }

    /// A scalar of `dtype` with the value of `value` rounded to it; `None` for strings and 8-bit or narrower
    /// floats.
    pub fn scalar_of(dtype: DType, value: f64) -> Option<Tensor> {
        let mut bytes = Vec::new();
        numbers::append(dtype, value, &mut bytes).then(|| Tensor {
            dtype,
            dims: vec![],
            storage: Storage::Bytes(Bytes::from(bytes)),
            hash: Arc::default(),
        })
    }

    /// The same data under other extents of the same number of elements.
    pub fn reshaped(&self, dims: Vec<usize>) -> Option<Tensor> {
        let count = dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))?;
        (count == self.len()).then(|| Tensor {
            dtype: self.dtype,
            dims,
            storage: self.storage.clone(),
            hash: Arc::default(),
        })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element type and shape.
    pub fn tensor_type(&self) -> TensorType {
        TensorType::fixed(self.dtype, &self.dims)
    }

    /// The raw little-endian elements; `None` for strings.
    pub fn bytes(&self) -> Option<&Bytes> {
        match &self.storage {
            Storage::Bytes(bytes) => Some(bytes),
            Storage::Strings(_) => None,
        }
    }

    /// The strings; `None` for other element types.
    pub fn strings(&self) -> Option<&[Vec<u8>]> {
        match &self.storage {
            Storage::Strings(strings) => Some(strings),
            Storage::Bytes(_) => None,
        }
    }

    /// The elements of an integer or boolean tensor; `None` for others or where a value exceeds `i64`.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        numbers::to_i64s(self.dtype, self.bytes()?.as_slice())
    }

    /// The elements as doubles; `None` for strings. 64-bit integers round.
    pub fn to_f64s(&self) -> Option<Vec<f64>> {
        numbers::to_f64s(self.dtype, self.bytes()?.as_slice())
    }

    /// The value of a one-element numeric tensor.
    pub fn as_scalar(&self) -> Option<f64> {
        if self.len() == 1 { self.to_f64s()?.first().copied() } else { None }
    }

    /// The value that every element has, if they all have the same and there is at least one.
    pub fn as_splat(&self) -> Option<f64> {
        let size = self.dtype.bytes();
        let bytes = self.bytes()?.as_slice();
        let first = bytes.get(..size)?;
        if bytes.chunks_exact(size).any(|element| element != first) {
            return None;
        }
        let one = Bytes::from(first.to_vec());
        Tensor::from_bytes(self.dtype, vec![], one).ok()?.as_scalar()
    }

    /// A hash of type, extents and content, computed once. Of large tensors it reads samples only: it is for
    /// finding candidates for equality, not for identifying content.
    pub fn content_hash(&self) -> u64 {
        *self.hash.get_or_init(|| {
            let mut hasher = FxHasher::default();
            (self.dtype, &self.dims).hash(&mut hasher);
            match &self.storage {
                Storage::Bytes(bytes) if bytes.len <= HASHED_WHOLE => bytes.as_slice().hash(&mut hasher),
                Storage::Bytes(bytes) => {
                    let stride = bytes.len.div_ceil(HASHED_SAMPLES);
                    bytes
                        .as_slice()
                        .chunks(stride)
                        .for_each(|chunk| chunk[..64.min(chunk.len())].hash(&mut hasher));
                }
                Storage::Strings(strings) => strings.hash(&mut hasher),
            }
            hasher.finish()
        })
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        if self.dtype != other.dtype || self.dims != other.dims {
            return false;
        }
        match (&self.storage, &other.storage) {
            (Storage::Bytes(a), Storage::Bytes(b)) => {
                std::ptr::eq(a.as_slice(), b.as_slice())
                    || (self.content_hash() == other.content_hash() && a.as_slice() == b.as_slice())
            }
            (Storage::Strings(a), Storage::Strings(b)) => a == b,
            (Storage::Bytes(_), Storage::Strings(_)) | (Storage::Strings(_), Storage::Bytes(_)) => false,
        }
    }
}

impl Eq for Tensor {}

impl Hash for Tensor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.content_hash().hash(state);
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{:?})", self.dtype, self.dims)
    }
}
