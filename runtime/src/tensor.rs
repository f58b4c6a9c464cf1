//! Tensors: views of memory, which a session takes and gives, and those that own theirs.
#![allow(unsafe_code, reason = "views bytes as numbers and numbers as bytes")]

#[cfg(feature = "ndarray")]
mod arrays;
mod owned;

use alloc::vec::Vec;

use tilewright_dtype::DType;

#[cfg(feature = "ndarray")]
pub use arrays::ArrayElement;
pub use owned::{Reuse, Tensor, TensorError};

/// A Rust type whose values are elements: they are copied in and out.
///
/// # Safety
/// The type has no padding, and its size is [`DType::bytes`] of `DTYPE`.
pub unsafe trait Scalar: Copy + Send + Sync + 'static {
    /// The element type it represents.
    const DTYPE: DType;

    /// The value of an element; `None` unless there are as many bytes as it has.
    fn of_bytes(bytes: &[u8]) -> Option<Self>;
}

/// A Rust type that is the memory form of an element type: slices of it are lent in place.
///
/// # Safety
/// The type has no invalid bit patterns.
pub unsafe trait Element: Scalar {}

macro_rules! elements {
    ($($rust:ty => $dtype:ident)*) => {$(
        // SAFETY: a primitive number, of the size that the table of `DType::bytes` states.
        unsafe impl Scalar for $rust {
            const DTYPE: DType = DType::$dtype;

            fn of_bytes(bytes: &[u8]) -> Option<$rust> {
                bytes.try_into().ok().map(<$rust>::from_ne_bytes)
            }
        }

        // SAFETY: every bit pattern is a number.
        unsafe impl Element for $rust {}
    )*};
}

elements! { i8 => I8 i16 => I16 i32 => I32 i64 => I64 u8 => U8 u16 => U16 u32 => U32 u64 => U64 f32 => F32 f64 => F64 }

// SAFETY: one byte. Not an `Element`: most bytes are no `bool`, and a model may give any.
unsafe impl Scalar for bool {
    const DTYPE: DType = DType::Bool;

    fn of_bytes(bytes: &[u8]) -> Option<bool> {
        match bytes {
            &[byte] => Some(byte != 0),
            _ => None,
        }
    }
}

/// A dense row-major tensor that is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorView<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: &'a [usize],
    /// Elements in row-major order; the length must be [`byte_len`] of type and extents.
    pub bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// A view of bytes; a session checks that their number fits.
    pub fn new(dtype: DType, dims: &'a [usize], bytes: &'a [u8]) -> TensorView<'a> {
        TensorView { dtype, dims, bytes }
    }

    /// A view of numbers or truth values, with the element type of `T`.
    pub fn of<T: Scalar>(dims: &'a [usize], elements: &'a [T]) -> TensorView<'a> {
        // SAFETY: a `Scalar` has no padding, so all its bytes are initialised.
        let bytes = unsafe { core::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) };
        TensorView { dtype: T::DTYPE, dims, bytes }
    }

    /// The elements, if `T` is the memory form of the element type and the bytes are aligned for it.
    pub fn elements<T: Element>(&self) -> Option<&'a [T]> {
        if T::DTYPE != self.dtype {
            return None;
        }
        // SAFETY: every bit pattern of an `Element` is valid.
        let (before, elements, after) = unsafe { self.bytes.align_to::<T>() };
        (before.is_empty() && after.is_empty()).then_some(elements)
    }

    /// The elements copied, if `T` is the element type; for bytes of any alignment.
    pub fn to_vec<T: Scalar>(&self) -> Option<Vec<T>> {
        (T::DTYPE == self.dtype)
            .then(|| self.bytes.chunks_exact(size_of::<T>()).filter_map(T::of_bytes).collect())
    }
}

/// A dense row-major tensor that is written.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost first.
    pub dims: &'a [usize],
    /// Elements in row-major order.
    pub bytes: &'a mut [u8],
}

impl<'a> TensorViewMut<'a> {
    /// A view of bytes; a session checks that their number fits.
    pub fn new(dtype: DType, dims: &'a [usize], bytes: &'a mut [u8]) -> TensorViewMut<'a> {
        TensorViewMut { dtype, dims, bytes }
    }

    /// A view of numbers, with the element type of `T`.
    pub fn of<T: Element>(dims: &'a [usize], elements: &'a mut [T]) -> TensorViewMut<'a> {
        // SAFETY: as in `TensorView::of`; every bit pattern written is a valid `T`.
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) };
        TensorViewMut { dtype: T::DTYPE, dims, bytes }
    }
}

/// Bytes of a dense tensor; `None` on overflow.
pub fn byte_len(dtype: DType, dims: &[usize]) -> Option<usize> {
    // A zero extent makes the tensor empty whatever the others are.
    if dims.contains(&0) {
        return Some(0);
    }
    dims.iter().try_fold(dtype.bytes(), |bytes, &dim| bytes.checked_mul(dim))
}
