//! A device and what it can do.
#![allow(unsafe_code, reason = "calls a C library")]

use opencl_sys::{
    CL_DEVICE_AVAILABLE, CL_DEVICE_COMPILER_AVAILABLE, CL_DEVICE_EXTENSIONS, CL_DEVICE_GLOBAL_MEM_SIZE,
    CL_DEVICE_LOCAL_MEM_SIZE, CL_DEVICE_MAX_MEM_ALLOC_SIZE, CL_DEVICE_MAX_WORK_GROUP_SIZE,
    CL_DEVICE_MAX_WORK_ITEM_SIZES, CL_DEVICE_NAME, CL_DEVICE_SINGLE_FP_CONFIG, CL_DEVICE_SVM_CAPABILITIES,
    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT, CL_FP_DENORM, cl_device_id,
    cl_device_info,
};
use tilewright_runtime::artifact::DeviceDef;
use tilewright_runtime::device::DeviceError;

use crate::api::{Api, info, numbers, text};
use crate::error::Unusable;
use crate::status::Status;

/// The kind of code.
pub(crate) const KIND: &str = "opencl";

/// The format of code that is taken.
pub(crate) const FORMAT: &str = "opencl-c";

/// The most that a device takes.
pub(crate) struct Limits {
    /// Work-items of a work-group.
    group: u64,
    /// Those in its first two dimensions.
    items: [u64; 2],
    /// Bytes of local memory.
    pub(crate) local: u64,
    /// Bytes of one allocation.
    allocation: u64,
    /// Bytes of all of them.
    memory: u64,
}

/// A device that can be used.
pub(crate) struct Found {
    pub(crate) api: &'static Api,
    id: cl_device_id,
    name: String,
    pub(crate) limits: Limits,
}

// SAFETY: a device that a platform lists is an address that means the same in every thread and lives as long as the process.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

impl Found {
    /// Asks a device what it can do; gives it up where that is not enough.
    pub(crate) fn new(api: &'static Api, id: cl_device_id, platform: &str) -> Result<Found, Unusable> {
        let name = ask(api, id, CL_DEVICE_NAME).map_or_else(|_| "a device".to_owned(), |bytes| text(&bytes));
        let name = format!("{name} ({platform})");
        match Found::lacks(api, id) {
            Ok(None) => {}
            Ok(Some(reason)) => return Err(Unusable { name, reason: reason.to_owned() }),
            Err(status) => return Err(Unusable { name, reason: status.to_string() }),
        }
        match Limits::of(api, id) {
            Ok(limits) => Ok(Found { api, id, name, limits }),
            Err(status) => Err(Unusable { name, reason: status.to_string() }),
        }
    }

    /// What the device lacks that code takes for granted.
    fn lacks(api: &Api, id: cl_device_id) -> Result<Option<&'static str>, Status> {
        let single = number(api, id, CL_DEVICE_SINGLE_FP_CONFIG)?;
        // Before OpenCL 2.0 the question is an error.
        let shared = number(api, id, CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0);
        let extensions = text(&ask(api, id, CL_DEVICE_EXTENSIONS)?);
        let offers = [
            (number(api, id, CL_DEVICE_AVAILABLE)? != 0, "it is not available"),
            (number(api, id, CL_DEVICE_COMPILER_AVAILABLE)? != 0, "it has no compiler"),
            (
                extensions.split_whitespace().any(|name| name == "cl_khr_fp64"),
                "it has no binary64 (cl_khr_fp64)",
            ),
            (
                single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0,
                "it does not round division and roots correctly (CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)",
            ),
            (single & CL_FP_DENORM != 0, "it does not keep subnormal numbers (CL_FP_DENORM)"),
            (
                shared & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0,
                "it has no shared virtual memory (CL_DEVICE_SVM_COARSE_GRAIN_BUFFER of OpenCL 2.0)",
            ),
        ];
        Ok(offers.into_iter().find_map(|(offered, reason)| (!offered).then_some(reason)))
    }

    /// The device.
    pub(crate) fn id(&self) -> cl_device_id {
        self.id
    }

    /// Its name, for people.
    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    /// That code cannot run here.
    pub(crate) fn unfit(&self, def: &DeviceDef, reason: impl Into<String>) -> DeviceError {
        DeviceError::Unfit { device: self.name(), code: def.target(), reason: reason.into() }
    }

    /// That code does not load.
    pub(crate) fn refused(&self, reason: impl Into<String>) -> DeviceError {
        DeviceError::Code { device: self.name(), reason: reason.into() }
    }

    /// That something failed.
    pub(crate) fn fault(&self, reason: impl Into<String>) -> DeviceError {
        DeviceError::Fault { device: self.name(), reason: reason.into() }
    }

    /// That a function failed.
    pub(crate) fn failed(&self, status: Status) -> DeviceError {
        self.fault(status.to_string())
    }

    /// Whether the device can run code, by what is said of the code.
    pub(crate) fn suits(&self, def: &DeviceDef) -> Result<(), DeviceError> {
        if def.kind != KIND {
            return Err(self.unfit(def, format!("it runs code of kind {KIND}")));
        }
        if !def.parts.iter().any(|(format, _)| format == FORMAT) {
            let formats: Vec<&str> = def.parts.iter().map(|(format, _)| format.as_str()).collect();
            let reason = format!("it takes the format {FORMAT}, there is {}", formats.join(", "));
            return Err(self.unfit(def, reason));
        }
        let Limits { group, items: [most_lanes, most_warps], .. } = self.limits;
        for kernel in &def.kernels {
            let [warps, lanes] = kernel.threads.map(u64::from);
            let symbol = &kernel.symbol;
            let threads = warps * lanes;
            if threads == 0 || threads > group {
                let reason =
                    format!("kernel `{symbol}` has {threads} threads a task, the device 1 to {group}");
                return Err(self.unfit(def, reason));
            }
            if lanes > most_lanes || warps > most_warps {
                let reason = format!(
                    "kernel `{symbol}` has {lanes} by {warps} threads a task, the device at most {most_lanes} by {most_warps}"
                );
                return Err(self.unfit(def, reason));
            }
        }
        Ok(())
    }
}

impl Limits {
    /// Whether so many bytes can be had when others are taken. Drivers give more than there is, and fail when it is used.
    pub(crate) fn allow(&self, bytes: u64, taken: u64) -> bool {
        bytes <= self.allocation && taken.checked_add(bytes).is_some_and(|all| all <= self.memory)
    }

    fn of(api: &Api, id: cl_device_id) -> Result<Limits, Status> {
        let items = numbers(&ask(api, id, CL_DEVICE_MAX_WORK_ITEM_SIZES)?, size_of::<usize>());
        let of = |dimension: usize| items.get(dimension).copied().unwrap_or(1);
        Ok(Limits {
            group: number(api, id, CL_DEVICE_MAX_WORK_GROUP_SIZE)?,
            items: [of(0), of(1)],
            local: number(api, id, CL_DEVICE_LOCAL_MEM_SIZE)?,
            allocation: number(api, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
            memory: number(api, id, CL_DEVICE_GLOBAL_MEM_SIZE)?,
        })
    }
}

fn ask(api: &Api, id: cl_device_id, what: cl_device_info) -> Result<Vec<u8>, Status> {
    // SAFETY: the device is one of a platform's; there is room for as many bytes as are asked for.
    info("clGetDeviceInfo", |room, to, size| unsafe { (api.get_device_info)(id, what, room, to, size) })
}

fn number(api: &Api, id: cl_device_id, what: cl_device_info) -> Result<u64, Status> {
    let bytes = ask(api, id, what)?;
    Ok(numbers(&bytes, bytes.len()).first().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_memory_is_given_than_there_is() {
        let limits = Limits { group: 1, items: [1, 1], local: 0, allocation: 100, memory: 250 };
        assert!(limits.allow(100, 0) && limits.allow(100, 150));
        assert!(!limits.allow(101, 0) && !limits.allow(100, 151) && !limits.allow(1, u64::MAX));
    }
}
