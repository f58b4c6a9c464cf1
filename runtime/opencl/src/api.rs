//! OpenCL's functions, found in the system's library while the program runs.
#![allow(unsafe_code, reason = "calls a C library")]

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;
use opencl_sys::cl_function_types as types;
use opencl_sys::cl_int;

use crate::status::{Status, check};

/// Names of the library: of its first interface, so that no package for developers is needed; then without version, as Android has it.
const NAMES: &[&str] = if cfg!(target_os = "macos") {
    &["/System/Library/Frameworks/OpenCL.framework/OpenCL"]
} else if cfg!(windows) {
    &["OpenCL.dll"]
} else {
    &["libOpenCL.so.1", "libOpenCL.so"]
};

/// The function inside the type of a C function pointer, which may be null.
pub(crate) trait Pointer {
    /// It, not null.
    type Function;
}

impl<F> Pointer for Option<F> {
    type Function = F;
}

/// A function that gives up an object.
pub(crate) type Release = unsafe extern "C" fn(*mut c_void) -> cl_int;

macro_rules! api {
    ($($field:ident: $symbol:literal $ty:ident,)*) => {
        /// The functions of OpenCL 2.0 that are used here.
        pub(crate) struct Api {
            $(pub(crate) $field: <types::$ty as Pointer>::Function,)*
            /// What the functions are part of.
            _library: Library,
        }

        impl Api {
            fn of(library: Library, name: &str) -> Result<Api, String> {
                $(
                    // SAFETY: the type is the function's by OpenCL's headers; the library stays loaded beside it.
                    let $field = unsafe { library.get::<types::$ty>($symbol) };
                    let $field = $field.ok().and_then(|function| *function).ok_or_else(|| {
                        let symbol = String::from_utf8_lossy($symbol);
                        format!("{name} has no {}, which is of OpenCL 2.0", symbol.trim_end_matches('\0'))
                    })?;
                )*
                Ok(Api { $($field,)* _library: library })
            }
        }
    };
}

api! {
    get_platform_ids: b"clGetPlatformIDs\0" clGetPlatformIDs_t,
    get_platform_info: b"clGetPlatformInfo\0" clGetPlatformInfo_t,
    get_device_ids: b"clGetDeviceIDs\0" clGetDeviceIDs_t,
    get_device_info: b"clGetDeviceInfo\0" clGetDeviceInfo_t,
    create_context: b"clCreateContext\0" clCreateContext_t,
    release_context: b"clReleaseContext\0" clReleaseContext_t,
    create_program_with_source: b"clCreateProgramWithSource\0" clCreateProgramWithSource_t,
    build_program: b"clBuildProgram\0" clBuildProgram_t,
    get_program_build_info: b"clGetProgramBuildInfo\0" clGetProgramBuildInfo_t,
    release_program: b"clReleaseProgram\0" clReleaseProgram_t,
    create_kernel: b"clCreateKernel\0" clCreateKernel_t,
    get_kernel_info: b"clGetKernelInfo\0" clGetKernelInfo_t,
    get_kernel_work_group_info: b"clGetKernelWorkGroupInfo\0" clGetKernelWorkGroupInfo_t,
    set_kernel_arg: b"clSetKernelArg\0" clSetKernelArg_t,
    set_kernel_arg_svm_pointer: b"clSetKernelArgSVMPointer\0" clSetKernelArgSVMPointer_t,
    release_kernel: b"clReleaseKernel\0" clReleaseKernel_t,
    svm_alloc: b"clSVMAlloc\0" clSVMAlloc_t,
    svm_free: b"clSVMFree\0" clSVMFree_t,
    create_command_queue: b"clCreateCommandQueueWithProperties\0" clCreateCommandQueueWithProperties_t,
    enqueue_svm_memcpy: b"clEnqueueSVMMemcpy\0" clEnqueueSVMMemcpy_t,
    enqueue_nd_range_kernel: b"clEnqueueNDRangeKernel\0" clEnqueueNDRangeKernel_t,
    finish: b"clFinish\0" clFinish_t,
    release_command_queue: b"clReleaseCommandQueue\0" clReleaseCommandQueue_t,
    get_event_info: b"clGetEventInfo\0" clGetEventInfo_t,
    get_event_profiling_info: b"clGetEventProfilingInfo\0" clGetEventProfilingInfo_t,
    release_event: b"clReleaseEvent\0" clReleaseEvent_t,
}

impl Api {
    /// The system's OpenCL, or why there is none. It is loaded once and never unloaded: drivers leave threads behind.
    pub(crate) fn get() -> Result<&'static Api, String> {
        static API: OnceLock<Result<Api, String>> = OnceLock::new();
        API.get_or_init(|| Api::load(NAMES)).as_ref().map_err(Clone::clone)
    }

    /// Loads the first library of these that there is.
    fn load(names: &[&str]) -> Result<Api, String> {
        let mut reasons = Vec::new();
        for name in names {
            // SAFETY: what runs when a system's OpenCL is loaded is the system's to answer for.
            match unsafe { Library::new(name) } {
                Ok(library) => return Api::of(library, name),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(reasons.join("; "))
    }
}

/// An object of OpenCL, given up when it is dropped.
pub(crate) struct Handle {
    raw: *mut c_void,
    release: Release,
}

// SAFETY: OpenCL's functions may be called by any thread, on one object by several at once. The exception, setting arguments
// of a kernel, is made by streams only, for kernels that are theirs alone, behind `&mut`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// A new object, as `make` returns it beside the error that it writes.
    ///
    /// # Safety
    /// What `make` returns is the caller's to give up, by `release`.
    pub(crate) unsafe fn create(
        call: &'static str,
        release: Release,
        make: impl FnOnce(*mut cl_int) -> *mut c_void,
    ) -> Result<Handle, Status> {
        let mut code = opencl_sys::CL_SUCCESS;
        let raw = make(&raw mut code);
        check(call, code)?;
        // A driver that gives neither object nor error would be followed to address 0 later.
        if raw.is_null() {
            return Err(Status { call, code: opencl_sys::CL_OUT_OF_RESOURCES });
        }
        Ok(Handle { raw, release })
    }

    /// The object.
    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: owned, and given up once. There is nobody to tell of an error.
        unsafe { (self.release)(self.raw) };
    }
}

/// What one of the `clGet…Info` functions tells: `ask` takes the room there is, where it is, and where to write how much is needed.
pub(crate) fn info(
    call: &'static str,
    ask: impl Fn(usize, *mut c_void, *mut usize) -> cl_int,
) -> Result<Vec<u8>, Status> {
    let mut size = 0;
    check(call, ask(0, ptr::null_mut(), &raw mut size))?;
    // Drivers write whole numbers, which must be aligned.
    let mut words = vec![0u64; size.div_ceil(8)];
    if size > 0 {
        check(call, ask(size, words.as_mut_ptr().cast(), ptr::null_mut()))?;
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    bytes.truncate(size);
    Ok(bytes)
}

/// The numbers that a function told, each of `size` bytes.
pub(crate) fn numbers(bytes: &[u8], size: usize) -> Vec<u64> {
    let number = |bytes: &[u8]| match (<[u8; 8]>::try_from(bytes), <[u8; 4]>::try_from(bytes)) {
        (Ok(bytes), _) => Some(u64::from_ne_bytes(bytes)),
        (_, Ok(bytes)) => Some(u64::from(u32::from_ne_bytes(bytes))),
        _ => None,
    };
    bytes.chunks(size.max(1)).filter_map(number).collect()
}

/// The text that a function told, which ends with a zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error() {
        let reason =
            Api::load(&["libno-such-opencl.so.1", "libno-other-opencl.so"]).err().expect("no library");
        assert!(reason.contains("no-such-opencl") && reason.contains("no-other-opencl"), "{reason}");
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn a_library_without_the_functions_is_an_error() {
        let reason = Api::load(&["libc.so.6"]).err().expect("no OpenCL");
        assert_eq!(reason, "libc.so.6 has no clGetPlatformIDs, which is of OpenCL 2.0");
    }

    #[test]
    fn what_is_told_is_read_by_its_size() {
        let ask = |size: usize, to: *mut c_void, needed: *mut usize| {
            if to.is_null() {
                // SAFETY: the place is given where none for the answer is.
                unsafe { *needed = 12 };
            } else {
                assert_eq!(size, 12);
                // SAFETY: there is room for so much.
                unsafe { to.cast::<[u32; 3]>().write([7, 8, 9]) };
            }
            opencl_sys::CL_SUCCESS
        };
        let bytes = info("clGetNothing", ask).expect("an answer");
        assert_eq!(numbers(&bytes, 4), [7, 8, 9]);
        assert_eq!(numbers(&5u64.to_ne_bytes(), 8), [5]);
        assert!(numbers(&[1, 2, 3], 3).is_empty());
        assert_eq!(text(b"a name \0and more"), "a name");
    }
}
