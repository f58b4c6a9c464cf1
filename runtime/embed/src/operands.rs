//! The structs by which a C program gives inputs and outputs.
//!
//! ```c
//! typedef struct { const void *data; uint64_t extents[RANK]; } NAME_input;
//! typedef struct { void *data; uint64_t room, bytes, extents[RANK]; } NAME_output;
//! ```
//! `RANK` is the model's, so they are read field by field. Each field begins at a multiple of 8 bytes, whatever bytes an address has.
#![allow(unsafe_code, reason = "reads and writes memory of the caller's")]

use crate::status::Status;

/// Bytes of a field.
const FIELD: usize = 8;

/// Inputs of a call.
#[derive(Clone, Copy)]
pub(crate) struct Inputs {
    start: *const u8,
    rank: usize,
}

impl Inputs {
    /// # Safety
    /// There are as many of such structs at `start` as are asked for.
    pub(crate) unsafe fn at(start: *const u8, rank: usize) -> Result<Inputs, Status> {
        check(start, FIELD)?;
        Ok(Inputs { start, rank })
    }

    fn field(self, input: usize, field: usize) -> *const u8 {
        self.start.wrapping_add(FIELD * (input * (1 + self.rank) + field))
    }

    /// Where an input's elements are.
    pub(crate) fn data(self, input: usize) -> *const u8 {
        // SAFETY: `Inputs::at` was told that the struct is there.
        unsafe { self.field(input, 0).cast::<*const u8>().read() }
    }

    /// An extent of it; `axis` is less than the rank.
    pub(crate) fn extent(self, input: usize, axis: usize) -> u64 {
        // SAFETY: as in `data`.
        unsafe { self.field(input, 1 + axis).cast::<u64>().read() }
    }
}

/// Outputs of a call.
#[derive(Clone, Copy)]
pub(crate) struct Outputs {
    start: *mut u8,
    rank: usize,
}

impl Outputs {
    /// # Safety
    /// There are as many of such structs at `start` as are asked for, and nobody else is at them.
    pub(crate) unsafe fn at(start: *mut u8, rank: usize) -> Result<Outputs, Status> {
        check(start, FIELD)?;
        Ok(Outputs { start, rank })
    }

    fn field(self, output: usize, field: usize) -> *mut u8 {
        self.start.wrapping_add(FIELD * (output * (3 + self.rank) + field))
    }

    /// Where an output's elements go, and the bytes that there is room for.
    pub(crate) fn room(self, output: usize) -> (*mut u8, u64) {
        // SAFETY: `Outputs::at` was told that the struct is there.
        unsafe {
            (self.field(output, 0).cast::<*mut u8>().read(), self.field(output, 1).cast::<u64>().read())
        }
    }

    pub(crate) fn set_bytes(self, output: usize, bytes: u64) {
        // SAFETY: as in `room`.
        unsafe { self.field(output, 2).cast::<u64>().write(bytes) }
    }

    /// `axis` is less than the rank.
    pub(crate) fn set_extent(self, output: usize, axis: usize, extent: u64) {
        // SAFETY: as in `room`.
        unsafe { self.field(output, 3 + axis).cast::<u64>().write(extent) }
    }
}

/// Whether an address is one, and a multiple of `align`.
pub(crate) fn check(address: *const u8, align: usize) -> Result<(), Status> {
    match address.addr() {
        0 => Err(Status::Null),
        address if address % align != 0 => Err(Status::Misaligned),
        _ => Ok(()),
    }
}
