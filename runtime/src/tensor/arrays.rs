//! Tensors and the arrays of the crate `ndarray`.

use alloc::string::String;
use alloc::vec::Vec;
use core::slice;

use ndarray::{ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};
use tilewright_dtype::DType;

use super::{Element, Scalar, Tensor, TensorError, TensorView};
use crate::memory::OutOfMemory;
use crate::session::Input;

/// A Rust type that is an element of both arrays and tensors: a [`Scalar`], or a string.
pub trait ArrayElement: Sized {
    /// The element type it represents.
    const DTYPE: DType;

    /// Dense row-major elements as an input.
    fn input<'a>(dims: &'a [usize], elements: &'a [Self]) -> Input<'a>;

    /// A tensor of elements in row-major order, which are copied.
    ///
    /// # Errors
    /// When there are not as many as the extents need, or no memory for them.
    fn collect<'a>(
        dims: &[usize],
        elements: impl ExactSizeIterator<Item = &'a Self>,
    ) -> Result<Tensor, TensorError>
    where
        Self: 'a;

    /// The elements of a tensor, in row-major order; none of a tensor of another type.
    fn take(tensor: Tensor) -> Vec<Self>;
}

impl<T: Scalar> ArrayElement for T {
    const DTYPE: DType = T::DTYPE;

    fn input<'a>(dims: &'a [usize], elements: &'a [T]) -> Input<'a> {
        TensorView::of(dims, elements).into()
    }

    fn collect<'a>(
        dims: &[usize],
        elements: impl ExactSizeIterator<Item = &'a T>,
    ) -> Result<Tensor, TensorError> {
        let mut tensor = Tensor::zeros(T::DTYPE, dims)?;
        let bytes = tensor.bytes_mut();
        let (expected, got) = (bytes.len() / size_of::<T>(), elements.len());
        if expected != got {
            return Err(TensorError::Elements { dims: dims.to_vec(), expected, got });
        }
        for (to, element) in bytes.chunks_exact_mut(size_of::<T>()).zip(elements) {
            to.copy_from_slice(TensorView::of(&[], slice::from_ref(element)).bytes);
        }
        Ok(tensor)
    }

    fn take(tensor: Tensor) -> Vec<T> {
        tensor.to_vec().unwrap_or_default()
    }
}

impl ArrayElement for String {
    const DTYPE: DType = DType::String;

    fn input<'a>(dims: &'a [usize], elements: &'a [String]) -> Input<'a> {
        String::collect(dims, elements.iter()).into()
    }

    fn collect<'a>(
        dims: &[usize],
        elements: impl ExactSizeIterator<Item = &'a String>,
    ) -> Result<Tensor, TensorError> {
        let mut strings = Vec::new();
        let bytes = (elements.len() as u64).saturating_mul(size_of::<String>() as u64);
        strings.try_reserve_exact(elements.len()).map_err(|_| OutOfMemory { bytes })?;
        strings.extend(elements.cloned());
        Tensor::from_strings(dims, strings)
    }

    fn take(tensor: Tensor) -> Vec<String> {
        tensor.into_strings()
    }
}

/// Numbers and truth values in standard layout (dense, row-major) are read where they are. Arrays of another layout and
/// strings are copied once.
impl<'a, S: Data, D: Dimension> From<&'a ArrayBase<S, D>> for Input<'a>
where
    S::Elem: ArrayElement,
{
    fn from(array: &'a ArrayBase<S, D>) -> Input<'a> {
        match array.as_slice() {
            Some(elements) => S::Elem::input(array.shape(), elements),
            None => Tensor::try_from(array).into(),
        }
    }
}

/// The elements are copied.
impl<S: Data, D: Dimension> TryFrom<&ArrayBase<S, D>> for Tensor
where
    S::Elem: ArrayElement,
{
    type Error = TensorError;

    fn try_from(array: &ArrayBase<S, D>) -> Result<Tensor, TensorError> {
        S::Elem::collect(array.shape(), array.iter())
    }
}

/// Strings are moved. Numbers are copied once: arrays own memory of another alignment. [`Tensor::array`] copies none.
impl<T: ArrayElement> TryFrom<Tensor> for ArrayD<T> {
    type Error = TensorError;

    fn try_from(tensor: Tensor) -> Result<ArrayD<T>, TensorError> {
        let (expected, got) = (T::DTYPE, tensor.dtype());
        if expected != got {
            return Err(TensorError::DType { expected, got });
        }
        let dims = tensor.dims().to_vec();
        let too_large = |_| TensorError::TooLarge { dims: dims.clone() };
        ArrayD::from_shape_vec(IxDyn(&dims), T::take(tensor)).map_err(too_large)
    }
}

impl Tensor {
    /// The tensor as an array, without a copy, if `T` is the memory form of the element type. Truth values and strings become an
    /// [`ArrayD`] by its `TryFrom`.
    pub fn array<T: Element>(&self) -> Option<ArrayViewD<'_, T>> {
        ArrayViewD::from_shape(IxDyn(self.dims()), self.as_slice()?).ok()
    }
}
