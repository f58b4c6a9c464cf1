//! Tensors of C: those that are lent for a run, and those that are given away.
#![allow(unsafe_code, reason = "structs of C")]

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_dtype::DType;
use tilewright_run::{Tensor, TensorView, TensorViewMut, Value};
use tilewright_runtime::byte_len;
use tilewright_runtime::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLTensor, KDL_CPU, VERSION,
    compact_strides,
};

use crate::failure::{Failure, Kind, Problem, Status, call};

/// More axes than any model has: a number beyond is damage, and as many extents are not read.
const MOST_AXES: usize = 1024;

/// A tensor that is lent, checked by itself. Its extents are in a list beside it, so that runs reuse that.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    dtype: DType,
    /// Where its extents begin in the list.
    start: usize,
    rank: usize,
    data: *mut u8,
    bytes: usize,
}

/// Tensors of a run, without an allocation where they are as few as most models have.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

impl Lent {
    fn dims<'d>(&self, dims: &'d [usize]) -> &'d [usize] {
        &dims[self.start..self.start + self.rank]
    }

    /// The tensor, to be read.
    ///
    /// # Safety
    /// Its memory stays and is not written while the view is used.
    pub(crate) unsafe fn view<'a>(&self, dims: &'a [usize]) -> TensorView<'a> {
        // SAFETY: by the caller's word.
        let bytes = unsafe { std::slice::from_raw_parts(self.data, self.bytes) };
        TensorView::new(self.dtype, self.dims(dims), bytes)
    }

    /// The tensor, to be written.
    ///
    /// # Safety
    /// Its memory stays and nobody else uses it while the view is used.
    pub(crate) unsafe fn view_mut<'a>(&self, dims: &'a [usize]) -> TensorViewMut<'a> {
        // SAFETY: by the caller's word.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.data, self.bytes) };
        TensorViewMut::new(self.dtype, self.dims(dims), bytes)
    }

    /// Whether two tensors share memory.
    pub(crate) fn overlaps(&self, other: &Lent) -> bool {
        let (start, other_start) = (self.data.addr(), other.data.addr());
        start < other_start + other.bytes && other_start < start + self.bytes
    }
}

/// Checks tensors by themselves, as far as that goes without a model, and adds their extents to `dims`. `name` says what errors call each.
///
/// # Errors
/// All that is wrong with them.
///
/// # Safety
/// There are as many tensors, each as DLPack has it: extents and strides, where there are any, are as many as axes.
pub(crate) unsafe fn lent(
    tensors: *const DLTensor,
    n: usize,
    name: &dyn Fn(usize) -> String,
    dims: &mut Vec<usize>,
) -> Result<Few<Lent>, Failure> {
    if n > 0 && tensors.is_null() {
        return Err(Failure::null("the tensors"));
    }
    let mut lent = Few::new();
    let mut problems = Vec::new();
    for i in 0..n {
        // SAFETY: by the caller's word.
        match unsafe { one(&*tensors.add(i), dims) } {
            Ok(tensor) => lent.push(tensor),
            Err((kind, text)) => {
                let name = name(i);
                problems.push(Problem::new(kind, &name, &format!("{name:?}: {text}")));
            }
        }
    }
    if problems.is_empty() { Ok(lent) } else { Err(Failure::of_problems(problems)) }
}

/// Checks one tensor and adds its extents to `dims`.
///
/// # Safety
/// As [`lent`].
unsafe fn one(tensor: &DLTensor, dims: &mut Vec<usize>) -> Result<Lent, (Kind, String)> {
    let DLTensor { data, device, ndim, dtype, shape, strides, byte_offset } = *tensor;
    if device.device_type != KDL_CPU {
        return Err((Kind::Device, format!("it lies on {device}, and the processor's memory is meant")));
    }
    let unknown = || (Kind::DType, format!("elements of {dtype} are none of a model"));
    let dtype = dtype.to_dtype().ok_or_else(unknown)?;
    let rank = usize::try_from(ndim).ok().filter(|&rank| rank <= MOST_AXES);
    let rank = rank.ok_or_else(|| (Kind::Rank, format!("{ndim} axes are none of a tensor")))?;
    if rank > 0 && shape.is_null() {
        return Err((Kind::Rank, format!("it has {rank} axes, and `shape` is null")));
    }
    // SAFETY: by the caller's word.
    let numbers = |start: *const i64| match start.is_null() || rank == 0 {
        true => &[][..],
        // SAFETY: by the caller's word.
        false => unsafe { std::slice::from_raw_parts(start, rank) },
    };
    let (shape, strides) = (numbers(shape), numbers(strides));
    let start = dims.len();
    for &extent in shape {
        let negative = || (Kind::Extent, format!("extents {shape:?} are none of a tensor"));
        dims.push(usize::try_from(extent).map_err(|_| negative())?);
    }
    let bytes = byte_len(dtype, &dims[start..]).filter(|&bytes| isize::try_from(bytes).is_ok());
    let bytes = bytes.ok_or_else(|| (Kind::Extent, format!("extents {shape:?} are too large")))?;
    if !strides.is_empty() && bytes > 0 && !is_compact(shape, strides) {
        let wanted = compact_strides(shape);
        let text =
            format!("strides {strides:?} are not those of dense row-major elements, {wanted:?}: copy it");
        return Err((Kind::Strides, text));
    }
    if bytes == 0 {
        return Ok(Lent { dtype, start, rank, data: NonNull::dangling().as_ptr(), bytes });
    }
    let data = data.cast::<u8>();
    let offset = usize::try_from(byte_offset).ok().filter(|_| !data.is_null());
    let end = offset.and_then(|offset| data.addr().checked_add(offset)?.checked_add(bytes));
    match (offset, end) {
        (Some(offset), Some(_)) => Ok(Lent { dtype, start, rank, data: data.wrapping_add(offset), bytes }),
        _ => Err((
            Kind::Address,
            "its elements lie nowhere: `data` is null, or `byte_offset` too large".into(),
        )),
    }
}

/// Whether strides are those of dense row-major elements. The stride of an axis with one element moves nothing.
fn is_compact(shape: &[i64], strides: &[i64]) -> bool {
    let mut wanted = 1i64;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        if extent != 1 && stride != wanted {
            return false;
        }
        wanted = wanted.saturating_mul(extent);
    }
    true
}

/// A tensor that is given away, with what it points to.
struct Given {
    managed: DLManagedTensorVersioned,
    shape: SmallVec<[i64; 6]>,
    strides: SmallVec<[i64; 6]>,
    _tensor: Tensor,
}

/// A tensor that C programs own from now on; its deleter may be called by any thread.
///
/// # Errors
/// For what DLPack has no form of.
pub fn export(name: &str, value: Value) -> Result<NonNull<DLManagedTensorVersioned>, Failure> {
    let unsupported = |what: &str| {
        let text = format!("output {name:?} is {what}, and C programs get tensors of numbers alone");
        Failure::new(Status::Unsupported, text)
    };
    let mut tensor = match value {
        Value::Tensor(tensor) => Arc::try_unwrap(tensor).unwrap_or_else(|shared| Tensor::clone(&shared)),
        Value::Sequence(_) => return Err(unsupported("a sequence")),
        Value::Optional(_) => return Err(unsupported("an optional")),
    };
    let dtype = DLDataType::of(tensor.dtype());
    let dtype = dtype.ok_or_else(|| unsupported(&format!("of {}", tensor.dtype())))?;
    let shape: SmallVec<[i64; 6]> = tensor.dims().iter().map(|&extent| extent as i64).collect();
    let strides = compact_strides(&shape).into();
    let data = tensor.bytes_mut().as_mut_ptr().cast();
    let ndim = shape.len() as i32;
    let device = DLDevice { device_type: KDL_CPU, device_id: 0 };
    let (none, null) = (std::ptr::null_mut(), std::ptr::null_mut());
    let dl_tensor = DLTensor { data, device, ndim, dtype, shape: none, strides: none, byte_offset: 0 };
    let managed = DLManagedTensorVersioned {
        version: VERSION,
        manager_ctx: null,
        deleter: Some(delete),
        flags: 0,
        dl_tensor,
    };
    let given = Box::into_raw(Box::new(Given { managed, shape, strides, _tensor: tensor }));
    // SAFETY: just made, and not given to anybody yet. It stays where it is, and so do short lists in it.
    unsafe {
        (*given).managed.manager_ctx = given.cast();
        (*given).managed.dl_tensor.shape = (*given).shape.as_mut_ptr();
        (*given).managed.dl_tensor.strides = (*given).strides.as_mut_ptr();
        Ok(NonNull::new_unchecked(&raw mut (*given).managed))
    }
}

/// The deleter of tensors that [`export`] gives away.
///
/// # Safety
/// `managed` is from there, and nobody uses it any more.
unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: by the caller's word; this is called once.
    drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Given>()) });
}

/// Gives a tensor back.
///
/// # Safety
/// `tensor` is null or a tensor as DLPack has it, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_tensor_free(tensor: *mut DLManagedTensorVersioned) {
    if tensor.is_null() {
        return;
    }
    // SAFETY: by the caller's word.
    unsafe {
        if let Some(deleter) = (*tensor).deleter {
            deleter(tensor);
        }
    }
}

/// Makes an output one of the form before DLPack 1.0.
///
/// # Safety
/// `tensor` is null or a tensor as DLPack has it; `unversioned` is null or has room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tw_tensor_unversioned(
    tensor: *mut DLManagedTensorVersioned,
    unversioned: *mut *mut DLManagedTensor,
) -> i32 {
    call(|| {
        if tensor.is_null() || unversioned.is_null() {
            return Err(Failure::null("the tensor, or where to put the other"));
        }
        // SAFETY: by the caller's word, here and below.
        let managed = unsafe { &*tensor };
        let ours: unsafe extern "C" fn(*mut DLManagedTensorVersioned) = delete;
        if managed.deleter.is_none_or(|deleter| !std::ptr::fn_addr_eq(deleter, ours)) {
            return Err(Failure::new(Status::Argument, "the tensor is none that this library made"));
        }
        let dl_tensor = managed.dl_tensor;
        let manager_ctx = tensor.cast::<c_void>();
        let plain = DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete_unversioned) };
        // SAFETY: as above.
        unsafe { unversioned.write(Box::into_raw(Box::new(plain))) };
        Ok(())
    })
}

/// The deleter of tensors that [`tw_tensor_unversioned`] makes.
///
/// # Safety
/// `managed` is from there, and nobody uses it any more.
unsafe extern "C" fn delete_unversioned(managed: *mut DLManagedTensor) {
    // SAFETY: both were made here, and are freed once, by the caller's word.
    unsafe {
        let plain = Box::from_raw(managed);
        delete(plain.manager_ctx.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tensor: &DLTensor, expect: Result<&[usize], Kind>) {
        let mut dims = Vec::new();
        // SAFETY: extents and strides are as many as axes.
        let made = unsafe { one(tensor, &mut dims) };
        assert_eq!(made.map(|lent| lent.dims(&dims)).map_err(|(kind, _)| kind), expect);
    }

    #[test]
    fn tensors_are_checked_by_themselves() {
        let mut elements = [0f32; 6];
        let (mut shape, mut strides) = ([2i64, 3], [3i64, 1]);
        let device = DLDevice { device_type: KDL_CPU, device_id: 0 };
        let dtype = DLDataType { code: 2, bits: 32, lanes: 1 };
        let sound = DLTensor {
            data: elements.as_mut_ptr().cast(),
            device,
            ndim: 2,
            dtype,
            shape: shape.as_mut_ptr(),
            strides: strides.as_mut_ptr(),
            byte_offset: 0,
        };
        check(&sound, Ok(&[2, 3]));
        let null = std::ptr::null_mut();
        check(&DLTensor { strides: null, ..sound }, Ok(&[2, 3]));
        check(&DLTensor { ndim: 0, shape: null, ..sound }, Ok(&[]));
        check(&DLTensor { device: DLDevice { device_type: 2, device_id: 0 }, ..sound }, Err(Kind::Device));
        check(&DLTensor { dtype: DLDataType { lanes: 4, ..dtype }, ..sound }, Err(Kind::DType));
        check(&DLTensor { dtype: DLDataType { code: 5, ..dtype }, ..sound }, Err(Kind::DType));
        for ndim in [-1, i32::MAX] {
            check(&DLTensor { ndim, ..sound }, Err(Kind::Rank));
        }
        check(&DLTensor { shape: null, ..sound }, Err(Kind::Rank));
        check(&DLTensor { data: std::ptr::null_mut(), ..sound }, Err(Kind::Address));
        check(&DLTensor { byte_offset: u64::MAX, ..sound }, Err(Kind::Address));
        let mut other = [1i64, 2];
        check(&DLTensor { strides: other.as_mut_ptr(), ..sound }, Err(Kind::Strides));
        for extents in [[-2, 3], [i64::MAX, 3], [i64::MAX, 1]] {
            let mut extents: [i64; 2] = extents;
            check(&DLTensor { shape: extents.as_mut_ptr(), strides: null, ..sound }, Err(Kind::Extent));
        }
        let mut empty = [0i64, 3];
        let nothing = DLTensor { data: std::ptr::null_mut(), shape: empty.as_mut_ptr(), ..sound };
        check(&nothing, Ok(&[0, 3]));
        // Of an axis with one element the stride does not count.
        let (mut flat, mut odd) = ([1i64, 6], [77i64, 1]);
        check(&DLTensor { shape: flat.as_mut_ptr(), strides: odd.as_mut_ptr(), ..sound }, Ok(&[1, 6]));
    }

    #[test]
    fn outputs_are_given_away_in_both_forms() {
        let tensor = Tensor::new(&[2, 3], [1f32, 2., 3., 4., 5., 6.]).expect("a tensor");
        let given = export("y", tensor.into()).expect("numbers").as_ptr();
        let mut plain = std::ptr::null_mut();
        // SAFETY: given away just now.
        unsafe {
            let dl = (*given).dl_tensor;
            assert_eq!((dl.ndim, *dl.shape, *dl.shape.add(1), *dl.strides), (2, 2, 3, 3));
            assert_eq!(*dl.data.cast::<f32>().add(5), 6.0);
            assert_eq!(tw_tensor_unversioned(given, &raw mut plain), 0);
            assert_eq!((*plain).dl_tensor.data, dl.data);
            ((*plain).deleter.expect("a deleter"))(plain);
        }
        let strings = Tensor::from_strings(&[1], vec!["a".to_string()]).expect("a tensor");
        for value in [strings.into(), Value::sequence(vec![]), Value::optional(None)] {
            assert_eq!(export("y", value).map_err(|failure| failure.status), Err(Status::Unsupported));
        }
    }
}
