//! Loading from files and from memory under an operating system.
#![allow(unsafe_code, reason = "maps memory")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{LoadError, Wanted, choose, tie};
use crate::artifact::Artifact;
use crate::device::Device;
use crate::host::{HostOps, NoHostOps};
use crate::isa::Isa;
use crate::memory::Bytes;
use crate::model::Model;

/// Why bytes may be loaded: the caller's word, without which nothing can be.
///
/// An artifact is a program. To load one puts machine code from its bytes into this process, and to run the model executes it, with all
/// that this process may do. Checksums find damage, not malice, and nothing here confines the code. So whoever loads an artifact says
/// that its origin is trusted as that of any program is that they would start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The bytes are from where the caller would execute programs from: a compiler of their own, a package they install, a file that
    /// only those can write who may run code here.
    Origin,
}

/// How models are loaded.
#[derive(Clone)]
pub struct Loader {
    host: Arc<dyn HostOps>,
    verify_weights: bool,
    isa: Isa,
    on_host: bool,
    device: Option<Arc<dyn Device>>,
}

impl Loader {
    /// A loader of artifacts that are trusted, without host operators, which does not read the weights.
    pub fn new(trust: Trust) -> Loader {
        let Trust::Origin = trust;
        Loader {
            host: Arc::new(NoHostOps),
            verify_weights: false,
            isa: Isa::native(),
            on_host: false,
            device: None,
        }
    }

    /// Gives models a registry of host operators.
    pub fn host_ops(mut self, host: Arc<dyn HostOps>) -> Loader {
        self.host = host;
        self
    }

    /// Whether the checksum of the weights is checked too, which reads all of them.
    pub fn verify_weights(mut self, verify: bool) -> Loader {
        self.verify_weights = verify;
        self
    }

    /// Loads code for a device, and for nothing else.
    pub fn device(mut self, device: Arc<dyn Device>) -> Loader {
        self.device = Some(device);
        self
    }

    /// Loads code for the processor alone, also where an artifact has code for devices too.
    pub fn on_host(mut self) -> Loader {
        self.on_host = true;
        self.device = None;
        self
    }

    /// Loads as if this machine had no more than `isa`: of an artifact's levels, the best for that machine. What
    /// this machine has not it does not get.
    pub fn as_if_on(mut self, isa: &Isa) -> Loader {
        self.isa = Isa::native().common(isa);
        self
    }

    /// Loads an artifact file. It stays mapped while the model lives; it must not be changed meanwhile.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or has no code for this machine.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Model, LoadError> {
        let path = path.as_ref();
        let map = File::open(path).and_then(|file| Mapping::of_file(&file));
        self.from_bytes(Bytes::new(map.map_err(|error| LoadError::File { path: path.into(), error })?))
    }

    /// Loads an artifact from memory. Weights are used in place where they are aligned to
    /// [`ALIGN`](crate::plan::ALIGN) bytes.
    ///
    /// # Errors
    /// When the bytes are damaged, or have no code for this machine.
    pub fn from_bytes(&self, bytes: Bytes) -> Result<Model, LoadError> {
        let artifact = Artifact::read(&bytes)?;
        if self.verify_weights {
            artifact.verify_weights(&bytes)?;
        }
        let device = self.device.as_deref();
        let wanted = match device {
            Some(device) => Wanted::Device(device),
            None if self.on_host => Wanted::Host,
            None => Wanted::Only,
        };
        let chosen = choose(&artifact.manifest.images, &self.isa, wanted)?;
        let code = Mapping::of_code(&bytes[artifact.images[chosen].clone()]).map_err(LoadError::Code)?;
        let base = code.ptr.as_ptr().cast_const();
        // SAFETY: the code is executable, and stays so while the model has it. That it is the compiler's is what
        // the caller's trust in its origin states, and what its checksum ties to the file.
        unsafe { tie(artifact, chosen, base, Some(Arc::new(code)), &bytes, self.host.clone(), device) }
    }
}

impl Model {
    /// Loads an artifact file with [`Loader::new`].
    ///
    /// # Errors
    /// As [`Loader::load`].
    pub fn load(path: impl AsRef<Path>, trust: Trust) -> Result<Model, LoadError> {
        Loader::new(trust).load(path)
    }

    /// Loads an artifact from memory with [`Loader::new`].
    ///
    /// # Errors
    /// As [`Loader::from_bytes`].
    pub fn from_bytes(bytes: Bytes, trust: Trust) -> Result<Model, LoadError> {
        Loader::new(trust).from_bytes(bytes)
    }
}

/// Memory from `mmap`.
struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned and, once made, only read or executed.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps all of a file, read only.
    fn of_file(file: &File) -> io::Result<Mapping> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        let len = usize::try_from(metadata.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Mapping::map(len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd())
    }

    /// Copies code to memory of its own and makes it executable; it is never writable and executable at once.
    fn of_code(code: &[u8]) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let map = Mapping::map(code.len(), libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        if map.len > 0 {
            // SAFETY: the mapping is new, writable and as long as the code.
            let status = unsafe {
                std::ptr::copy_nonoverlapping(code.as_ptr(), map.ptr.as_ptr(), code.len());
                flush_instructions(map.ptr.as_ptr(), map.len);
                libc::mprotect(map.ptr.as_ptr().cast(), map.len, libc::PROT_READ | libc::PROT_EXEC)
            };
            if status != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(map)
    }

    fn map(len: usize, protection: i32, flags: i32, file: i32) -> io::Result<Mapping> {
        if len == 0 {
            return Ok(Mapping { ptr: NonNull::dangling(), len });
        }
        // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
        let ptr = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) };
        if ptr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ptr = NonNull::new(ptr.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { ptr, len })
    }
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: readable for `len` bytes while the mapping lives, and never written through.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: made by `mmap` with this length, and unmapped once.
            unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
        }
    }
}

/// Makes code that was written visible to instruction fetch.
///
/// # Safety
/// The range is mapped.
#[cfg(target_arch = "aarch64")]
unsafe fn flush_instructions(start: *mut u8, len: usize) {
    // The smallest line that the architecture allows; a step too small costs only time.
    const LINE: usize = 16;
    let lines = || (start.addr() & !(LINE - 1)..start.addr() + len).step_by(LINE);
    // SAFETY: cache maintenance by address changes no memory; the range is mapped.
    unsafe {
        for line in lines() {
            std::arch::asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags));
        }
        std::arch::asm!("dsb ish", options(nostack, preserves_flags));
        for line in lines() {
            std::arch::asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags));
        }
        std::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags));
    }
}

/// Instruction fetch is coherent with stores on x86; elsewhere `mprotect` synchronises the new pages.
///
/// # Safety
/// None needed; unsafe like its namesake.
#[cfg(not(target_arch = "aarch64"))]
unsafe fn flush_instructions(_start: *mut u8, _len: usize) {}
