//! What OpenCL's functions return, by the names of its headers.

use std::fmt;

use opencl_sys::cl_int;

/// A function failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// The function.
    pub(crate) call: &'static str,
    /// What it returned.
    pub(crate) code: cl_int,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, Name(self.code))
    }
}

/// Turns what a function returned into a result.
pub(crate) fn check(call: &'static str, code: cl_int) -> Result<(), Status> {
    match code {
        opencl_sys::CL_SUCCESS => Ok(()),
        code => Err(Status { call, code }),
    }
}

/// An error code, shown by its name.
pub(crate) struct Name(pub(crate) cl_int);

macro_rules! names {
    ($($name:ident)*) => {
        impl fmt::Display for Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $(opencl_sys::$name => f.write_str(stringify!($name)),)*
                    // Of an extension.
                    code => write!(f, "error {code}"),
                }
            }
        }
    };
}

names! {
    CL_DEVICE_NOT_FOUND
    CL_DEVICE_NOT_AVAILABLE
    CL_COMPILER_NOT_AVAILABLE
    CL_MEM_OBJECT_ALLOCATION_FAILURE
    CL_OUT_OF_RESOURCES
    CL_OUT_OF_HOST_MEMORY
    CL_PROFILING_INFO_NOT_AVAILABLE
    CL_MEM_COPY_OVERLAP
    CL_BUILD_PROGRAM_FAILURE
    CL_MAP_FAILURE
    CL_MISALIGNED_SUB_BUFFER_OFFSET
    CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    CL_COMPILE_PROGRAM_FAILURE
    CL_LINKER_NOT_AVAILABLE
    CL_LINK_PROGRAM_FAILURE
    CL_KERNEL_ARG_INFO_NOT_AVAILABLE
    CL_INVALID_VALUE
    CL_INVALID_DEVICE_TYPE
    CL_INVALID_PLATFORM
    CL_INVALID_DEVICE
    CL_INVALID_CONTEXT
    CL_INVALID_QUEUE_PROPERTIES
    CL_INVALID_COMMAND_QUEUE
    CL_INVALID_HOST_PTR
    CL_INVALID_MEM_OBJECT
    CL_INVALID_BINARY
    CL_INVALID_BUILD_OPTIONS
    CL_INVALID_PROGRAM
    CL_INVALID_PROGRAM_EXECUTABLE
    CL_INVALID_KERNEL_NAME
    CL_INVALID_KERNEL_DEFINITION
    CL_INVALID_KERNEL
    CL_INVALID_ARG_INDEX
    CL_INVALID_ARG_VALUE
    CL_INVALID_ARG_SIZE
    CL_INVALID_KERNEL_ARGS
    CL_INVALID_WORK_DIMENSION
    CL_INVALID_WORK_GROUP_SIZE
    CL_INVALID_WORK_ITEM_SIZE
    CL_INVALID_GLOBAL_OFFSET
    CL_INVALID_EVENT_WAIT_LIST
    CL_INVALID_EVENT
    CL_INVALID_OPERATION
    CL_INVALID_BUFFER_SIZE
    CL_INVALID_GLOBAL_WORK_SIZE
    CL_INVALID_PROPERTY
    CL_INVALID_COMPILER_OPTIONS
    CL_INVALID_LINKER_OPTIONS
    CL_MAX_SIZE_RESTRICTION_EXCEEDED
    CL_PLATFORM_NOT_FOUND_KHR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_names_of_the_headers() {
        assert_eq!(check("clFinish", 0), Ok(()));
        let told = check("clFinish", -5).map_err(|status| status.to_string());
        assert_eq!(told, Err("clFinish: CL_OUT_OF_RESOURCES".to_owned()));
        assert_eq!(Name(-9999).to_string(), "error -9999");
    }
}
