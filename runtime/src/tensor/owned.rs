//! Tensors that own their elements.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use smallvec::SmallVec;
use tilewright_dtype::DType;

use super::{Element, Scalar, TensorView, byte_len};
use crate::memory::{AlignedBuf, OutOfMemory};

/// A dense row-major tensor that owns its elements, in memory where a session takes them without a copy.
pub struct Tensor {
    dtype: DType,
    dims: Dims,
    data: Data,
    reuse: Option<Arc<dyn Reuse>>,
}

/// Extents, which are no allocation of their own where there are as few as most tensors have.
type Dims = SmallVec<[usize; 4]>;

#[derive(Clone, PartialEq)]
enum Data {
    Numbers(AlignedBuf),
    Strings(Vec<String>),
}

/// Bytes, or strings, that `Debug` shows at most.
const SHOWN: usize = 64;

/// Where memory goes that a tensor had, to be used again.
pub trait Reuse: Send + Sync {
    /// Takes memory, with whatever it holds.
    fn give_back(&self, buffer: AlignedBuf);
}

/// Why a tensor cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// Another number of elements than the extents need.
    #[error("extents {dims:?} need {expected} elements, got {got}")]
    Elements {
        /// The extents.
        dims: Vec<usize>,
        /// Elements that they need.
        expected: usize,
        /// Elements given.
        got: usize,
    },
    /// Another number of bytes than type and extents need.
    #[error("{dtype}{dims:?} needs {expected} bytes, got {got}")]
    Bytes {
        /// Element type.
        dtype: DType,
        /// The extents.
        dims: Vec<usize>,
        /// Bytes that they need.
        expected: usize,
        /// Bytes given.
        got: usize,
    },
    /// Elements of another type than the tensor has.
    #[error("expected element type {expected}, got {got}")]
    DType {
        /// The type asked for.
        expected: DType,
        /// The tensor's.
        got: DType,
    },
    /// Extents whose product no machine can hold.
    #[error("extents {dims:?} are too large")]
    TooLarge {
        /// The extents.
        dims: Vec<usize>,
    },
    /// Strings, where elements of a fixed size are expected.
    #[error("strings are no elements of a fixed size")]
    Strings,
    /// The machine has no such memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

impl Tensor {
    /// A tensor of the elements given, which are copied: numbers, or truth values.
    ///
    /// # Errors
    /// When there are not as many elements as the extents need, or no memory for them.
    pub fn new<T: Scalar>(dims: &[usize], elements: impl AsRef<[T]>) -> Result<Tensor, TensorError> {
        let elements = elements.as_ref();
        let expected = count(dims)?;
        if expected != elements.len() {
            return Err(TensorError::Elements { dims: dims.to_vec(), expected, got: elements.len() });
        }
        Tensor::from_bytes(T::DTYPE, dims, TensorView::of(dims, elements).bytes)
    }

    /// A tensor of zeros, which are `false` as truth values.
    ///
    /// # Errors
    /// For strings, and when there is no memory for it.
    pub fn zeros(dtype: DType, dims: &[usize]) -> Result<Tensor, TensorError> {
        let buffer = AlignedBuf::zeroed(bytes_of(dtype, dims)?)?;
        Ok(Tensor { dtype, dims: dims.into(), data: Data::Numbers(buffer), reuse: None })
    }

    /// A tensor of elements as they are in memory, which are copied.
    ///
    /// # Errors
    /// When there are not as many bytes as type and extents need, for strings, and when there is no memory.
    pub fn from_bytes(dtype: DType, dims: &[usize], bytes: impl AsRef<[u8]>) -> Result<Tensor, TensorError> {
        let bytes = bytes.as_ref();
        check_bytes(dtype, dims, bytes.len())?;
        Ok(Tensor { dtype, dims: dims.into(), data: Data::Numbers(AlignedBuf::copy_of(bytes)?), reuse: None })
    }

    /// A tensor of elements as they are in memory, without a copy.
    ///
    /// # Errors
    /// When there are not as many bytes as type and extents need, and for strings.
    pub fn from_buf(dtype: DType, dims: &[usize], buffer: AlignedBuf) -> Result<Tensor, TensorError> {
        Tensor::reusable(dtype, dims, buffer, None)
    }

    /// As [`Tensor::from_buf`]; the memory goes to `reuse` when the tensor is dropped. That of a clone does not.
    ///
    /// # Errors
    /// As [`Tensor::from_buf`].
    pub fn reusable(
        dtype: DType,
        dims: &[usize],
        buffer: AlignedBuf,
        reuse: Option<Arc<dyn Reuse>>,
    ) -> Result<Tensor, TensorError> {
        check_bytes(dtype, dims, buffer.len())?;
        Ok(Tensor::of_numbers(dtype, dims, buffer, reuse))
    }

    /// A tensor of as many bytes as type and extents need.
    pub(crate) fn of_numbers(
        dtype: DType,
        dims: &[usize],
        buffer: AlignedBuf,
        reuse: Option<Arc<dyn Reuse>>,
    ) -> Tensor {
        Tensor { dtype, dims: dims.into(), data: Data::Numbers(buffer), reuse }
    }

    /// A tensor of strings.
    ///
    /// # Errors
    /// When there are not as many as the extents need.
    pub fn from_strings(dims: &[usize], strings: Vec<String>) -> Result<Tensor, TensorError> {
        let expected = count(dims)?;
        if expected != strings.len() {
            return Err(TensorError::Elements { dims: dims.to_vec(), expected, got: strings.len() });
        }
        Ok(Tensor { dtype: DType::String, dims: dims.into(), data: Data::Strings(strings), reuse: None })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The elements, if `T` is the memory form of the element type. Truth values are read by [`Tensor::to_vec`].
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        self.view()?.elements()
    }

    /// The elements copied, if `T` is the element type.
    pub fn to_vec<T: Scalar>(&self) -> Option<Vec<T>> {
        self.view()?.to_vec()
    }

    /// The tensor as a session takes it; none for strings, which are a [`Value`](crate::Value).
    pub fn view(&self) -> Option<TensorView<'_>> {
        match &self.data {
            Data::Numbers(buffer) => Some(TensorView { dtype: self.dtype, dims: &self.dims, bytes: buffer }),
            Data::Strings(_) => None,
        }
    }

    /// The elements as they are in memory; none for strings.
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Numbers(buffer) => buffer,
            Data::Strings(_) => &[],
        }
    }

    /// The elements as they are in memory, to be written; none for strings.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.data {
            Data::Numbers(buffer) => buffer,
            Data::Strings(_) => &mut [],
        }
    }

    /// The elements of a tensor of strings; none for numbers.
    pub fn strings(&self) -> &[String] {
        match &self.data {
            Data::Numbers(_) => &[],
            Data::Strings(strings) => strings,
        }
    }

    /// The memory of the elements; empty for strings.
    pub fn into_buf(mut self) -> AlignedBuf {
        self.take_buf()
    }

    /// The strings, moved out; none of numbers.
    #[cfg(feature = "ndarray")]
    pub(super) fn into_strings(mut self) -> Vec<String> {
        match &mut self.data {
            Data::Numbers(_) => Vec::new(),
            Data::Strings(strings) => core::mem::take(strings),
        }
    }

    fn take_buf(&mut self) -> AlignedBuf {
        match &mut self.data {
            Data::Numbers(buffer) => core::mem::take(buffer),
            Data::Strings(_) => AlignedBuf::new(),
        }
    }
}

/// Number of elements.
fn count(dims: &[usize]) -> Result<usize, TensorError> {
    // A byte each.
    byte_len(DType::U8, dims).ok_or_else(|| TensorError::TooLarge { dims: dims.to_vec() })
}

/// Bytes of a tensor that has elements of a fixed size.
fn bytes_of(dtype: DType, dims: &[usize]) -> Result<usize, TensorError> {
    if dtype == DType::String {
        return Err(TensorError::Strings);
    }
    byte_len(dtype, dims).ok_or_else(|| TensorError::TooLarge { dims: dims.to_vec() })
}

fn check_bytes(dtype: DType, dims: &[usize], got: usize) -> Result<(), TensorError> {
    let expected = bytes_of(dtype, dims)?;
    if expected != got {
        return Err(TensorError::Bytes { dtype, dims: dims.to_vec(), expected, got });
    }
    Ok(())
}

impl Drop for Tensor {
    fn drop(&mut self) {
        if let Some(reuse) = self.reuse.take() {
            let buffer = self.take_buf();
            // Who took the memory out has it.
            if buffer.capacity() > 0 {
                reuse.give_back(buffer);
            }
        }
    }
}

impl Clone for Tensor {
    fn clone(&self) -> Tensor {
        Tensor { dtype: self.dtype, dims: self.dims.clone(), data: self.data.clone(), reuse: None }
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.dims == other.dims && self.data == other.data
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?} ", self.dtype, self.dims)?;
        match &self.data {
            Data::Numbers(buffer) => shown(f, buffer),
            Data::Strings(strings) => shown(f, strings),
        }
    }
}

/// Items of a list as `Debug` shows them: weights are millions.
fn shown<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    let mut list = f.debug_list();
    list.entries(items.iter().take(SHOWN));
    if items.len() > SHOWN { list.finish_non_exhaustive() } else { list.finish() }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use core::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::plan::ALIGN;

    #[test]
    fn elements_go_in_and_out() {
        let tensor = Tensor::new(&[2, 2], [1f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((tensor.dtype(), tensor.dims()), (DType::F32, &[2, 2][..]));
        assert_eq!(tensor.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
        assert_eq!(tensor.as_slice::<i32>(), None);
        assert_eq!(tensor.bytes().as_ptr().addr() % ALIGN, 0);
        assert_eq!(Tensor::from_buf(DType::F32, &[2, 2], tensor.clone().into_buf()), Ok(tensor));
        assert_eq!(Tensor::zeros(DType::I64, &[2]).unwrap().to_vec(), Some(vec![0i64; 2]));
        assert_eq!(Tensor::new::<u8>(&[usize::MAX, 0], []).unwrap().as_slice::<u8>(), Some(&[][..]));
    }

    #[test]
    fn a_large_tensor_is_not_shown_whole() {
        let large = Tensor::zeros(DType::F32, &[1 << 20]).unwrap();
        let text = alloc::format!("{large:?}");
        assert!(text.starts_with("f32[1048576] [0, 0, ") && text.ends_with(", ..]"), "{text}");
        assert_eq!(alloc::format!("{:?}", Tensor::new(&[2], [1u8, 2]).unwrap()), "u8[2] [1, 2]");
    }

    /// Any byte that is not 0 is true, and none is taken for a `bool` in place.
    #[test]
    fn truth_values_are_copied() {
        let tensor = Tensor::new(&[2], [true, false]).unwrap();
        assert_eq!((tensor.dtype(), tensor.bytes()), (DType::Bool, &[1, 0][..]));
        assert_eq!(tensor.as_slice::<u8>(), None);
        let other = Tensor::from_bytes(DType::Bool, &[3], [0, 1, 7]).unwrap();
        assert_eq!(other.to_vec(), Some(vec![false, true, true]));
    }

    #[test]
    fn strings_are_no_bytes() {
        let strings = vec![String::from("a"), String::from("b")];
        let tensor = Tensor::from_strings(&[2], strings.clone()).unwrap();
        assert_eq!((tensor.dtype(), tensor.strings()), (DType::String, &strings[..]));
        assert!(tensor.view().is_none() && tensor.bytes().is_empty() && tensor.into_buf().is_empty());
        assert_eq!(Tensor::from_bytes(DType::String, &[0], []), Err(TensorError::Strings));
        assert_eq!(Tensor::zeros(DType::String, &[1]), Err(TensorError::Strings));
    }

    #[test]
    fn memory_goes_where_it_is_used_again() {
        struct Count(AtomicUsize);
        impl Reuse for Count {
            fn give_back(&self, buffer: AlignedBuf) {
                self.0.fetch_add(buffer.len(), Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let tensor = || {
            let buffer = AlignedBuf::copy_of(&[1, 2, 3]).unwrap();
            Tensor::reusable(DType::U8, &[3], buffer, Some(count.clone())).unwrap()
        };
        let returned = || count.0.load(Ordering::Relaxed);
        drop(tensor().clone());
        assert_eq!(returned(), 3, "once, for the tensor and not for its clone");
        assert_eq!((tensor().into_buf().len(), returned()), (3, 3));
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let check = |made: Result<Tensor, TensorError>, expect: &str| {
            assert_eq!(made.unwrap_err().to_string(), expect);
        };
        use alloc::string::ToString;
        check(Tensor::new(&[2, 3], [0u8; 5]), "extents [2, 3] need 6 elements, got 5");
        check(Tensor::from_bytes(DType::F32, &[2], [0; 7]), "f32[2] needs 8 bytes, got 7");
        check(Tensor::from_buf(DType::F32, &[], AlignedBuf::new()), "f32[] needs 4 bytes, got 0");
        check(Tensor::from_strings(&[], vec![]), "extents [] need 1 elements, got 0");
        let huge = [usize::MAX, 2];
        let too_large = alloc::format!("extents {huge:?} are too large");
        check(Tensor::from_strings(&huge, vec![]), &too_large);
        check(Tensor::zeros(DType::F64, &huge), &too_large);
        let bytes = isize::MAX as usize;
        let none = alloc::format!("out of memory: {bytes} bytes asked for");
        check(Tensor::zeros(DType::U8, &[bytes]), &none);
    }
}
