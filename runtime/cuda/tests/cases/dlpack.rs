//! DLPack: tensors that are taken over, refused, and given away.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_runtime::{Output, OwnedDeviceTensor, Placed, Session, TensorView, TensorViewMut};
use tilewright_runtime_cuda::CudaDevice;
use tilewright_runtime_cuda::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_READ_ONLY, DLPackVersion,
    DLTensor, DlpackError, DlpackTensor, KDL_CUDA, export, export_versioned,
};

use super::graphs::{ADDS, adds};
use super::help::*;

/// The tests by name.
pub(crate) fn find(name: &str) -> Option<fn() -> Outcome> {
    Some(match name {
        "tensors_of_other_libraries_are_inputs_and_outputs" => taken_over,
        "tensors_of_other_libraries_are_refused" => refused,
        "tensors_by_versions_of_dlpack" => versions,
        "outputs_are_given_away" => given_away,
        "graphs_beside_tensors_on_the_device" => graphs,
        _ => return None,
    })
}

/// How often a deleter was called.
static DELETED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn delete(_: *mut DLManagedTensor) {
    DELETED.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn delete_versioned(_: *mut DLManagedTensorVersioned) {
    DELETED.fetch_add(1, Ordering::SeqCst);
}

fn deleted() -> usize {
    DELETED.swap(0, Ordering::SeqCst)
}

const F32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };

/// A tensor of another library, with what it points to.
struct Foreign {
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    tensor: DLTensor,
}

impl Foreign {
    fn of(address: u64, shape: &[i64]) -> Foreign {
        let tensor = DLTensor {
            data: std::ptr::without_provenance_mut(address as usize),
            device: DLDevice { device_type: KDL_CUDA, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: F32,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        Foreign { shape: shape.to_vec(), strides: None, tensor }
    }

    fn managed(&mut self) -> DLManagedTensor {
        let mut dl_tensor = self.tensor;
        dl_tensor.shape = self.shape.as_mut_ptr();
        dl_tensor.strides =
            self.strides.as_mut().map_or(std::ptr::null_mut(), |strides| strides.as_mut_ptr());
        DLManagedTensor { dl_tensor, manager_ctx: std::ptr::null_mut(), deleter: Some(delete) }
    }

    /// Takes it over for the first device.
    fn take(&mut self) -> Result<DlpackTensor, DlpackError> {
        let device = CudaDevice::by_index(0).expect("a device");
        // SAFETY: the struct is sound, and what it points to lives on; the deleter frees nothing.
        unsafe { DlpackTensor::from_managed("x", &device, Box::leak(Box::new(self.managed()))) }
    }
}

fn run(session: &mut Session, inputs: &[Placed<'_>], outputs: &mut [Output<'_>]) -> Outcome {
    // SAFETY: the tests name memory that they hold.
    unsafe { session.run_placed(inputs, outputs) }?;
    Ok(())
}

fn numbers(tensor: &OwnedDeviceTensor) -> Result<Vec<f32>, Failed> {
    let bytes = tensor.download()?;
    TensorView::new(tensor.dtype(), tensor.dims(), &bytes).to_vec().ok_or_else(|| "no numbers".into())
}

fn taken_over() -> Outcome {
    let model = adds()?;
    let mut session = model.session();
    let memory = OwnedDeviceTensor::upload(&model, &TensorView::of(&[4], &[1.0f32, 2.0, 3.0, 4.0]))?;
    let there = OwnedDeviceTensor::upload(&model, &TensorView::of(&[4], &[0.0f32; 4]))?;
    let before = log().len();
    {
        // The second and the third element, to the third and the fourth of other memory.
        let mut from = Foreign::of(memory.address(), &[2]);
        (from.tensor.byte_offset, from.strides) = (4, Some(vec![1]));
        let x = from.take()?;
        ensure_eq(&(x.dims(), x.view().address, x.is_read_only()), &(&[2][..], memory.address() + 4, false))?;
        let mut y = Foreign::of(there.address() + 8, &[2]).take()?;
        run(&mut session, &[x.input()], &mut [y.output()?])?;
        ensure_eq(&deleted(), &0)?;
    }
    ensure_eq(&deleted(), &2)?;
    let lines = log().split_off(before);
    let moved = |word: &str| lines.iter().filter(|line| line.as_str() == word).count();
    ensure_eq(&["upload", "copy", "download"].map(moved), &[0, 3, 0])?;
    ensure_eq(&numbers(&there)?, &vec![0.0, 0.0, 6.0, 7.0])?;
    // Nothing to point to, and nothing to call: a tensor without elements that stays its library's.
    let mut none = Foreign::of(0, &[0]);
    none.strides = Some(vec![77]);
    let mut managed = none.managed();
    managed.deleter = None;
    // SAFETY: as in `take`.
    let none = unsafe { DlpackTensor::from_managed("x", &CudaDevice::by_index(0)?, &mut managed) }?;
    let mut new = None;
    run(&mut session, &[none.input()], &mut [Output::New(&mut new)])?;
    ensure_eq(new.ok_or("no output")?.dims(), &[0][..])?;
    drop((memory, there, session, model));
    ensure_balance()
}

/// Each with what is said of it; the deleter is called once, and where it is taken over not before it goes.
fn refused() -> Outcome {
    type Edit = fn(&mut Foreign);
    let cases: [(Edit, &str); 16] = [
        (|x| x.tensor.device.device_id = 1, "found memory of CUDA device 1, wanted that of CUDA device 0"),
        (
            |x| x.tensor.device.device_type = 1,
            "found memory of the processor (0), wanted that of CUDA device 0",
        ),
        (
            |x| x.tensor.device.device_type = 13,
            "found memory of CUDA, managed (0), wanted that of CUDA device 0",
        ),
        (
            |x| x.tensor.device = DLDevice { device_type: -3, device_id: 9 },
            "found memory of a device of type -3 (9), wanted that of CUDA device 0",
        ),
        (
            |x| x.tensor.dtype.lanes = 4,
            "found elements of float32 with 4 lanes, wanted whole elements of a type that ONNX has, one lane each",
        ),
        (
            |x| x.tensor.dtype = DLDataType { code: 5, bits: 64, lanes: 1 },
            "found elements of complex64, wanted whole elements of a type that ONNX has, one lane each",
        ),
        (
            |x| x.tensor.dtype = DLDataType { code: 0, bits: 4, lanes: 1 },
            "found elements of int4, wanted whole elements of a type that ONNX has, one lane each",
        ),
        (
            |x| x.tensor.ndim = -1,
            "found -1 axes and some extents, wanted extents for each of no or more axes",
        ),
        (|x| x.shape[1] = -3, "found extents [2, -3], wanted such that are not negative and fit into memory"),
        (
            |x| x.shape = vec![i64::MAX, 2],
            "found extents [9223372036854775807, 2], wanted such that are not negative and fit into memory",
        ),
        (
            |x| x.strides = Some(vec![1, 2]),
            "found strides [1, 2], wanted [3, 1] (a copy in row-major order has them)",
        ),
        (
            |x| x.strides = Some(vec![4, 1]),
            "found strides [4, 1], wanted [3, 1] (a copy in row-major order has them)",
        ),
        (
            |x| x.strides = Some(vec![0, 0]),
            "found strides [0, 0], wanted [3, 1] (a copy in row-major order has them)",
        ),
        (
            |x| (x.shape[0], x.strides) = (1, Some(vec![-8, 2])),
            "found strides [-8, 2], wanted [3, 1] (a copy in row-major order has them)",
        ),
        (|x| x.tensor.byte_offset = 2, "found address 0x1002, wanted a multiple of 4 other than 0"),
        (
            |x| x.tensor.data = std::ptr::null_mut::<c_void>(),
            "found address 0x0, wanted a multiple of 4 other than 0",
        ),
    ];
    for (edit, message) in cases {
        let mut foreign = Foreign::of(0x1000, &[2, 3]);
        edit(&mut foreign);
        let told = foreign.take().err().map(|error| error.to_string());
        ensure_eq(&(told, deleted()), &(Some(format!("\"x\": {message}")), 1))?;
    }
    // Without extents.
    let mut managed = Foreign::of(0x1000, &[2, 3]).managed();
    managed.dl_tensor.shape = std::ptr::null_mut();
    let device = CudaDevice::by_index(0)?;
    // SAFETY: the struct is sound but for what is found.
    let told = unsafe { DlpackTensor::from_managed("x", &device, &mut managed) }.err();
    let expect = DlpackError::Rank { name: "x".into(), ndim: 2, has_shape: false };
    ensure_eq(&(told, deleted()), &(Some(expect), 1))?;
    // SAFETY: null is allowed.
    let told = unsafe { DlpackTensor::from_managed("x", &device, std::ptr::null_mut()) }.err();
    ensure_eq(&(told, deleted()), &(Some(DlpackError::Null { name: "x".into() }), 0))?;
    // What is sound as a tensor may not fit the model, which names both.
    let x = Foreign::of(0x1000, &[2, 3]).take()?;
    let (mut session, mut new) = (adds()?.session(), None);
    let told = run(&mut session, &[x.input()], &mut [Output::New(&mut new)]);
    ensure_eq(&told.err().map(|error| error.to_string()), &Some("\"x\": expected 1 axes, got 2".into()))?;
    // The stride of an axis of one element is of no account.
    let mut one = Foreign::of(0x1000, &[1, 3, 1]);
    one.strides = Some(vec![-7, 1, 99]);
    one.take()?;
    ensure_eq(&deleted(), &1)?;
    drop(x);
    ensure_eq(&deleted(), &1)
}

fn versions() -> Outcome {
    let device = CudaDevice::by_index(0)?;
    let mut foreign = Foreign::of(0x1000, &[3]);
    let mut versioned = |major: u32, flags: u64| {
        let dl_tensor = foreign.managed().dl_tensor;
        let (version, manager_ctx) = (DLPackVersion { major, minor: 7 }, std::ptr::null_mut());
        let mut managed = DLManagedTensorVersioned {
            version,
            manager_ctx,
            deleter: Some(delete_versioned),
            flags,
            dl_tensor,
        };
        // SAFETY: as in `take`.
        let taken = unsafe { DlpackTensor::from_versioned("x", &device, &mut managed) };
        let told = taken.map(|mut taken| {
            let refused = taken.output().err().map(|error| error.to_string());
            let message = "\"x\": found memory that must not be written, wanted that of an output";
            assert_eq!(refused.as_deref(), taken.is_read_only().then_some(message));
            taken.is_read_only()
        });
        (told.map_err(|error| error.to_string()), deleted())
    };
    ensure_eq(&versioned(1, 0), &(Ok(false), 1))?;
    ensure_eq(&versioned(1, 2 | DLPACK_FLAG_READ_ONLY), &(Ok(true), 1))?;
    for major in [0, 2] {
        let told = format!("\"x\": found DLPack {major}.7, wanted version 1");
        ensure_eq(&versioned(major, 0), &(Err(told), 1))?;
    }
    // SAFETY: null is allowed.
    let told = unsafe { DlpackTensor::from_versioned("x", &device, std::ptr::null_mut()) }.err();
    ensure_eq(&told, &Some(DlpackError::Null { name: "x".into() }))
}

/// An output of one session is given away, taken over, and an input of another; all memory comes back.
fn given_away() -> Outcome {
    let model = adds()?;
    let (mut first, mut second) = (model.session(), model.session());
    let x = [1.0f32, 2.0];
    let device = CudaDevice::by_index(0)?;
    let mut new = None;
    run(&mut first, &[Placed::Host(TensorView::of(&[2], &x))], &mut [Output::New(&mut new)])?;
    let managed = export("y", &device, new.take().ok_or("no output")?)?;
    // SAFETY: it was exported just now.
    let told = unsafe { managed.as_ref().dl_tensor };
    let (shape, strides) = (told.shape, told.strides);
    // SAFETY: as above; there is one axis.
    ensure_eq(
        &(told.device, told.dtype, told.ndim, unsafe { (*shape, *strides) }),
        &(DLDevice { device_type: KDL_CUDA, device_id: 0 }, F32, 1, (2, 1)),
    )?;
    // SAFETY: it was exported just now, and nobody else takes it over.
    let taken = unsafe { DlpackTensor::from_managed("x", &device, managed.as_ptr()) }?;
    run(&mut second, &[taken.input()], &mut [Output::New(&mut new)])?;
    let allocations = logged("-memory").len();
    drop(taken);
    ensure_eq(&logged("-memory").len(), &(allocations + 1))?;
    let managed = export_versioned("y", &device, new.take().ok_or("no output")?)?;
    // SAFETY: as above.
    let taken = unsafe { DlpackTensor::from_versioned("x", &device, managed.as_ptr()) }?;
    let mut y = [0.0f32; 2];
    let mut outputs = [Output::Host(TensorViewMut::of(&[2], &mut y))];
    run(&mut first, &[taken.input()], &mut outputs)?;
    ensure_eq(&y, &[13.0, 14.0])?;
    // What cannot be given away goes back to its device.
    let narrow = TensorView::new("u4".parse().map_err(|_| "no type")?, &[1], &[3]);
    let told = export("y", &device, OwnedDeviceTensor::upload(&model, &narrow)?).err();
    let wanted = "\"y\": found elements of u4, wanted a type that DLPack has, of whole bytes";
    ensure_eq(&told.map(|error| error.to_string()), &Some(wanted.into()))?;
    let other = CudaDevice::by_index(1)?;
    let told = export("y", &other, OwnedDeviceTensor::upload(&model, &TensorView::of(&[2], &x))?).err();
    let wanted = "\"y\": found memory of Fake GPU (CUDA device 0), wanted that of Fake GPU (CUDA device 1)";
    ensure_eq(&told.map(|error| error.to_string()), &Some(wanted.into()))?;
    // A tensor outlives model and sessions.
    drop((first, second, model));
    ensure(logged("-module").is_empty(), &log())?;
    drop(taken);
    ensure_balance()
}

/// Copies from and to the caller's memory stay outside of graphs, so that each run may name other memory.
fn graphs() -> Outcome {
    ensure(ADDS.contains("threads stay awake"), &ADDS)?;
    let model = adds()?;
    let mut session = model.session();
    for (i, replays) in [0, 1, 1, 1].into_iter().enumerate() {
        let x = OwnedDeviceTensor::upload(&model, &TensorView::of(&[2], &[i as f32, 7.0]))?;
        let (mut new, before) = (None, log().len());
        run(&mut session, &[Placed::Device(x.view())], &mut [Output::New(&mut new)])?;
        let lines = log().split_off(before);
        let replayed = lines.iter().filter(|line| line.starts_with("replay of 5")).count();
        let launched = lines.iter().filter(|line| line.starts_with("launch")).count();
        ensure_eq(&(replayed, launched), &(replays, 4 * (1 - replays)))?;
        ensure_eq(&numbers(&new.ok_or("no output")?)?, &vec![i as f32 + 4.0, 11.0])?;
    }
    drop((session, model));
    ensure_balance()
}
