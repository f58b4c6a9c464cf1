//! The structs of DLPack 1.0, as `dlpack.h` has them: how tensors go from one library of a process to another.

use alloc::vec::Vec;
use core::ffi::c_void;
use core::fmt;

use tilewright_dtype::DType;

/// The version of DLPack that these structs are of.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };

/// The type of the processor's memory: `kDLCPU`.
pub const KDL_CPU: i32 = 1;

/// The type of devices that are CUDA's: `kDLCUDA`.
pub const KDL_CUDA: i32 = 2;

/// The flag of a tensor that must not be written: `DLPACK_FLAG_BITMASK_READ_ONLY`.
pub const DLPACK_FLAG_READ_ONLY: u64 = 1;

/// A version of DLPack. Within a major one structs stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Which structs there are.
    pub major: u32,
    /// Which values their fields may have.
    pub minor: u32,
}

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// Its type: an enum of C.
    pub device_type: i32,
    /// Its place among those of the type.
    pub device_id: i32,
}

impl fmt::Display for DLDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.device_type {
            KDL_CPU => "the processor",
            KDL_CUDA => return write!(f, "CUDA device {}", self.device_id),
            3 => "the host, pinned by CUDA",
            4 => "OpenCL device",
            7 => "Vulkan device",
            8 => "Metal device",
            10 => "ROCm device",
            13 => "CUDA, managed",
            14 => "oneAPI device",
            other => return write!(f, "a device of type {other} ({})", self.device_id),
        };
        write!(f, "{kind} ({})", self.device_id)
    }
}

/// A type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// What kind of number.
    pub code: u8,
    /// Bits of a lane.
    pub bits: u8,
    /// Lanes of an element.
    pub lanes: u16,
}

/// The codes of element types that ONNX has too, by which both directions go. The narrow floats have codes from DLPack 1.1 on. Types of
/// less than a byte are absent: DLPack packs them, and models do not.
const DTYPES: [(u8, u8, DType); 18] = [
    (6, 8, DType::Bool),
    (0, 8, DType::I8),
    (0, 16, DType::I16),
    (0, 32, DType::I32),
    (0, 64, DType::I64),
    (1, 8, DType::U8),
    (1, 16, DType::U16),
    (1, 32, DType::U32),
    (1, 64, DType::U64),
    (2, 16, DType::F16),
    (4, 16, DType::BF16),
    (2, 32, DType::F32),
    (2, 64, DType::F64),
    (10, 8, DType::F8E4M3FN),
    (11, 8, DType::F8E4M3FNUZ),
    (12, 8, DType::F8E5M2),
    (13, 8, DType::F8E5M2FNUZ),
    (14, 8, DType::F8E8M0),
];

impl DLDataType {
    /// The element type of models that it is.
    pub fn to_dtype(self) -> Option<DType> {
        let is_it =
            |(code, bits, _): &&(u8, u8, DType)| (*code, *bits, 1) == (self.code, self.bits, self.lanes);
        DTYPES.iter().find(is_it).map(|row| row.2)
    }

    /// What DLPack calls an element type of models.
    pub fn of(dtype: DType) -> Option<DLDataType> {
        let row = DTYPES.iter().find(|row| row.2 == dtype);
        row.map(|&(code, bits, _)| DLDataType { code, bits, lanes: 1 })
    }
}

impl fmt::Display for DLDataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.code {
            0 => "int",
            1 => "uint",
            2 => "float",
            3 => "handle",
            4 => "bfloat",
            5 => "complex",
            6 => "bool",
            other => return write!(f, "type {other} of {} bits with {} lanes", self.bits, self.lanes),
        };
        match self.lanes {
            1 => write!(f, "{kind}{}", self.bits),
            lanes => write!(f, "{kind}{} with {lanes} lanes", self.bits),
        }
    }
}

/// A tensor, which somebody else keeps.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// Where it lies, by the device.
    pub data: *mut c_void,
    /// Whose memory that is.
    pub device: DLDevice,
    /// Number of axes.
    pub ndim: i32,
    /// Element type.
    pub dtype: DLDataType,
    /// Extents, outermost first.
    pub shape: *mut i64,
    /// Strides in elements; null for row-major order.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// A tensor that is given away, as before DLPack 1.0.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// What the deleter wants to know.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back; null where there is nothing to give.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A tensor that is given away, from DLPack 1.0 on.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of the struct. Of another major one only this, the context and the deleter are where they are here.
    pub version: DLPackVersion,
    /// What the deleter wants to know.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back; null where there is nothing to give.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// Bits that say more of the tensor, as [`DLPACK_FLAG_READ_ONLY`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// Strides in elements of row-major order; they may be of any size where there are no elements.
pub fn compact_strides(shape: &[i64]) -> Vec<i64> {
    let mut stride = 1i64;
    let mut strides: Vec<i64> = shape
        .iter()
        .rev()
        .map(|extent| {
            let own = stride;
            stride = stride.saturating_mul(*extent);
            own
        })
        .collect();
    strides.reverse();
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a compiler of C for 64-bit machines lays `dlpack.h` out.
    #[test]
    fn structs_are_laid_out_as_in_c() {
        if cfg!(target_pointer_width = "64") {
            assert_eq!((size_of::<DLTensor>(), size_of::<DLManagedTensor>()), (48, 64));
            assert_eq!(size_of::<DLManagedTensorVersioned>(), 80);
            assert_eq!(core::mem::offset_of!(DLTensor, dtype), 20);
            assert_eq!(core::mem::offset_of!(DLTensor, byte_offset), 40);
            assert_eq!(core::mem::offset_of!(DLManagedTensorVersioned, dl_tensor), 32);
        }
    }

    #[test]
    fn strides_of_row_major_order() {
        assert_eq!(compact_strides(&[2, 3, 4]), [12, 4, 1]);
        assert_eq!(compact_strides(&[5]), [1]);
        assert_eq!(compact_strides(&[]), []);
    }

    #[test]
    fn element_types_go_both_ways() {
        for (_, _, dtype) in DTYPES {
            let there = DLDataType::of(dtype).expect("a code");
            assert_eq!(there.to_dtype(), Some(dtype));
            assert_eq!(usize::from(there.bits), 8 * dtype.bytes());
        }
        assert_eq!(DLDataType::of(DType::I4), None);
        for (code, bits, lanes) in [(2, 32, 2), (2, 32, 0), (5, 64, 1), (0, 4, 1), (2, 128, 1), (99, 8, 1)] {
            assert_eq!(DLDataType { code, bits, lanes }.to_dtype(), None);
        }
    }
}
