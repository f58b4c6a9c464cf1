//! Compiled kernels in this process.
#![allow(unsafe_code, reason = "machine code is mapped and called, in a crate that only tests use")]

use std::ops::Range;

use memmap2::{Mmap, MmapMut};
use tilewright_machine::ObjectCode;

/// Linked code, mapped for execution.
#[derive(Debug)]
pub struct Loaded {
    code: Mmap,
    entries: Vec<usize>,
}

type Entry = unsafe extern "C" fn(*const *mut u8, *const i64, i64, i64);

impl Loaded {
    /// Links an object and maps its code.
    pub fn new(code: &ObjectCode) -> Result<Loaded, String> {
        let image =
            tilewright_image::link(&[&code.object], &code.symbols).map_err(|error| error.to_string())?;
        let mut map = MmapMut::map_anon(image.bytes.len()).map_err(|error| error.to_string())?;
        map.copy_from_slice(&image.bytes);
        let code = map.make_exec().map_err(|error| error.to_string())?;
        Ok(Loaded { code, entries: image.entries.iter().map(|entry| *entry as usize).collect() })
    }

    /// Runs the tasks of the `entry`-th kernel.
    pub fn call(&self, entry: usize, buffers: &mut [AlignedBytes], sizes: &[i64], tasks: Range<i64>) {
        let pointers: Vec<*mut u8> =
            buffers.iter_mut().map(|buffer| buffer.bytes_mut().as_mut_ptr()).collect();
        let address = self.code[self.entries[entry]..].as_ptr();
        // SAFETY: the bytes are the kernel's function, in executable memory that `self` keeps; it has the
        // signature of the kernel ABI, and accesses no element outside the buffers of a legal kernel.
        unsafe {
            let function: Entry = std::mem::transmute(address);
            function(pointers.as_ptr(), sizes.as_ptr(), tasks.start, tasks.end);
        }
    }
}

/// Bytes that begin at a multiple of 64.
#[derive(Clone, Debug)]
pub struct AlignedBytes {
    blocks: Vec<Block>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Block([u8; 64]);

impl AlignedBytes {
    /// A copy.
    pub fn new(bytes: &[u8]) -> AlignedBytes {
        let blocks = bytes
            .chunks(64)
            .map(|chunk| {
                let mut block = Block([0; 64]);
                block.0[..chunk.len()].copy_from_slice(chunk);
                block
            })
            .collect();
        AlignedBytes { blocks, len: bytes.len() }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: blocks are arrays of 64 initialised bytes without padding, at least `len` in all.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; any byte is a valid value.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.len) }
    }
}
