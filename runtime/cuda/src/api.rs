//! The functions of the driver that are called, found in the driver's library when they are first needed.
//!
//! cudarc finds the library and has the types. Its functions are not used: each panics where the driver lacks it, and
//! gives its result as an enum, for which a code that only a newer driver knows is undefined behaviour.
#![allow(unsafe_code, reason = "the driver has a C interface")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ops::Deref;
use std::sync::OnceLock;

use cudarc::driver::sys;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream,
};

use crate::arch::{OLDEST_DRIVER, version};
use crate::error::{CudaError, Failure};

/// `cuGetErrorName` and `cuGetErrorString`.
type Told = unsafe extern "C" fn(c_uint, *mut *const c_char) -> c_uint;

/// Declares a table of functions from rows of `field = symbol(types)`; each gives a result code.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident: $($name:ident = $symbol:ident($($of:ty),*);)*) => {
        $(#[$doc])*
        pub(crate) struct $table {
            $(pub(crate) $name: Function<unsafe extern "C" fn($($of),*) -> c_uint>,)*
        }

        // A row with other types than cudarc's, which come of the driver's header, does not build.
        $(const _: unsafe fn($($of),*) -> sys::CUresult = sys::$symbol;)*

        impl $table {
            /// Finds all functions.
            fn find(library: &Library) -> Result<$table, CudaError> {
                // SAFETY: the types are those of the driver's header.
                unsafe { Ok($table { $($name: library.function(stringify!($symbol))?,)* }) }
            }
        }
    };
}

table! {
    /// Functions that every driver has, by their names without `cu`.
    Needed:
    init = cuInit(c_uint);
    device_count = cuDeviceGetCount(*mut c_int);
    device = cuDeviceGet(*mut CUdevice, c_int);
    device_name = cuDeviceGetName(*mut c_char, c_int, CUdevice);
    device_attribute = cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, CUdevice);
    context_retain = cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    context_release = cuDevicePrimaryCtxRelease_v2(CUdevice);
    context_current = cuCtxGetCurrent(*mut CUcontext);
    context_set_current = cuCtxSetCurrent(CUcontext);
    module_load = cuModuleLoadDataEx(*mut CUmodule, *const c_void, c_uint, *mut sys::CUjit_option, *mut *mut c_void);
    module_unload = cuModuleUnload(CUmodule);
    module_function = cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    function_set_attribute = cuFuncSetAttribute(CUfunction, sys::CUfunction_attribute, c_int);
    allocate = cuMemAlloc_v2(*mut CUdeviceptr, usize);
    free = cuMemFree_v2(CUdeviceptr);
    memory_info = cuMemGetInfo_v2(*mut usize, *mut usize);
    upload = cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    download = cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    copy = cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    launch = cuLaunchKernel(CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
                              *mut *mut c_void, *mut *mut c_void);
    stream_create = cuStreamCreate(*mut CUstream, c_uint);
    stream_destroy = cuStreamDestroy_v2(CUstream);
    stream_wait = cuStreamSynchronize(CUstream);
    event_create = cuEventCreate(*mut CUevent, c_uint);
    event_record = cuEventRecord(CUevent, CUstream);
    event_elapsed = cuEventElapsedTime(*mut f32, CUevent, CUevent);
    event_destroy = cuEventDestroy_v2(CUevent);
}

table! {
    /// Functions for graphs. The newest of them, to instantiate one, is of CUDA 11.4.
    Graphs:
    begin_capture = cuStreamBeginCapture_v2(CUstream, sys::CUstreamCaptureMode);
    end_capture = cuStreamEndCapture(CUstream, *mut CUgraph);
    instantiate = cuGraphInstantiateWithFlags(*mut CUgraphExec, CUgraph, c_ulonglong);
    graph_launch = cuGraphLaunch(CUgraphExec, CUstream);
    graph_destroy = cuGraphDestroy(CUgraph);
    exec_destroy = cuGraphExecDestroy(CUgraphExec);
}

/// The driver's functions.
pub(crate) struct Api {
    needed: Needed,
    /// Where the driver has all of them.
    pub(crate) graphs: Option<Graphs>,
    /// Name and text of a result: they take it as a number.
    told: [Function<Told>; 2],
}

impl Deref for Api {
    type Target = Needed;

    fn deref(&self) -> &Needed {
        &self.needed
    }
}

/// A function of the driver.
#[derive(Clone, Copy)]
pub(crate) struct Function<F> {
    /// Its address.
    pub(crate) call: F,
    /// Its name, for errors.
    pub(crate) name: &'static str,
}

/// Calls a function of the driver, or of another table than those that all have; a result other than success becomes a [`Failure`].
/// Unsafe as the function is.
macro_rules! call {
    ($api:expr, $name:ident($($of:expr),* $(,)?)) => {
        call!($api, $api => $name($($of),*))
    };
    ($api:expr, $table:expr => $name:ident($($of:expr),* $(,)?)) => {
        $api.checked($table.$name.name, ($table.$name.call)($($of),*))
    };
}
pub(crate) use call;

/// The driver's library.
struct Library;

impl Library {
    /// The library, if the machine has it.
    fn find() -> Result<Library, CudaError> {
        // SAFETY: libcuda may be loaded at any time. cudarc panics in what follows where it is not there.
        match unsafe { sys::is_culib_present() } {
            true => Ok(Library),
            false => Err(CudaError::NoDriver),
        }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` is a pointer to a function, of the type that it has.
    unsafe fn function<F: Copy>(&self, name: &'static str) -> Result<Function<F>, CudaError> {
        // SAFETY: the library is there, and the type right by the caller's word. cudarc never closes it.
        match unsafe { sys::culib().get::<F>(name) } {
            Ok(found) => Ok(Function { call: *found, name }),
            Err(_) => Err(CudaError::Driver { call: name, reason: "the driver lacks this function".into() }),
        }
    }
}

/// A driver that is ready.
pub(crate) struct Driver {
    /// Its functions.
    pub(crate) api: Api,
    /// The version of CUDA that it is made for: 12040 for 12.4.
    pub(crate) version: u32,
}

/// The driver of the machine.
pub(crate) fn driver() -> Result<&'static Driver, CudaError> {
    static DRIVER: OnceLock<Result<Driver, CudaError>> = OnceLock::new();
    let driver = DRIVER.get_or_init(Driver::open).as_ref().map_err(CudaError::clone)?;
    // A second time is no work; after a failure it may go well.
    // SAFETY: takes no pointers.
    unsafe { call!(driver.api, init(0)) }?;
    Ok(driver)
}

impl Driver {
    fn open() -> Result<Driver, CudaError> {
        let library = Library::find()?;
        type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_uint;
        // SAFETY: the type is that of the driver's header.
        let get: Function<GetVersion> = unsafe { library.function("cuDriverGetVersion") }?;
        let mut found = 0;
        // SAFETY: one number is written.
        let code = unsafe { (get.call)(&mut found) };
        if code != 0 {
            return Err(CudaError::Driver { call: get.name, reason: format!("error {code}") });
        }
        let found = u32::try_from(found).unwrap_or(0);
        if found < OLDEST_DRIVER {
            return Err(CudaError::Old { version: version(found), needed: version(OLDEST_DRIVER) });
        }
        Ok(Driver { api: Api::find(&library)?, version: found })
    }
}

impl Api {
    fn find(library: &Library) -> Result<Api, CudaError> {
        // SAFETY: the types are those of the driver's header.
        let told = unsafe { [library.function("cuGetErrorName")?, library.function("cuGetErrorString")?] };
        Ok(Api { needed: Needed::find(library)?, graphs: Graphs::find(library).ok(), told })
    }

    /// What a result code means.
    pub(crate) fn checked(&self, call: &'static str, code: c_uint) -> Result<(), Failure> {
        match code {
            0 => Ok(()),
            _ => Err(Failure { call, code, reason: self.reason(code) }),
        }
    }

    /// Name and text of a result code.
    fn reason(&self, code: c_uint) -> String {
        let told = self.told.map(|function| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: a pointer is written: to a text that stays, or null for a code that the driver does not know.
            unsafe {
                let known = (function.call)(code, &mut text) == 0 && !text.is_null();
                known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        });
        match told {
            [Some(name), Some(text)] => format!("{name}: {text}"),
            [Some(name), None] => name,
            [None, _] => format!("error {code}"),
        }
    }
}
