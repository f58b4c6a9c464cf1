//! Views of tensors in memory: what a session takes and gives.
#![allow(unsafe_code, reason = "views bytes as numbers and numbers as bytes")]

use alloc::vec::Vec;

use tilewright_dtype::DType;

/// A Rust type that is the memory form of an element type.
///
/// # Safety
/// The type has no padding and no invalid bit patterns, and its size is [`DType::bytes`] of `DTYPE`.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The element type it represents.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident)*) => {
        // SAFETY: primitive numbers, of the size that the table of `DType::bytes` states.
        $(unsafe impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}

elements! { i8 => I8 i16 => I16 i32 => I32 i64 => I64 u8 => U8 u16 => U16 u32 => U32 u64 => U64 f32 => F32 f64 => F64 }

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

    /// A view of numbers, with the element type of `T`.
    pub fn of<T: Element>(dims: &'a [usize], elements: &'a [T]) -> TensorView<'a> {
        // SAFETY: an `Element` has no padding, so all its bytes are initialised.
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

    /// The elements copied, if `T` is the memory form of the element type; for bytes of any alignment.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        (T::DTYPE == self.dtype).then(|| {
            let read = |chunk: &[u8]| {
                // SAFETY: the chunk has the size of `T`, and every bit pattern is valid.
                unsafe { chunk.as_ptr().cast::<T>().read_unaligned() }
            };
            self.bytes.chunks_exact(size_of::<T>()).map(read).collect()
        })
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
