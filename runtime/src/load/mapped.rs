//! Loading from files and from memory under an operating system.
#![allow(unsafe_code, reason = "maps memory")]

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use memmap2::{Mmap, MmapMut, MmapOptions};

use super::{LoadError, Wanted, choose, tie};
use crate::artifact::{Artifact, Plans};
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
        let map = map_file(path).map_err(|error| LoadError::File { path: path.into(), error })?;
        self.from_bytes(Bytes::new(map))
    }

    /// Loads an artifact from memory. Weights are used in place where they are aligned to
    /// [`ALIGN`](crate::plan::ALIGN) bytes.
    ///
    /// # Errors
    /// When the bytes are damaged, or have no code for this machine.
    pub fn from_bytes(&self, bytes: Bytes) -> Result<Model, LoadError> {
        self.checked(Artifact::read(&bytes)?, &bytes)
    }

    /// Loads an artifact from memory with other plans than it holds, which call its kernels: `change` makes them of those, level by level.
    ///
    /// # Errors
    /// As [`Loader::from_bytes`], those of `change`, and plans that do not fit the artifact.
    pub fn from_changed<T, E: From<LoadError>>(
        &self,
        bytes: &Bytes,
        change: impl FnOnce(&mut [Plans]) -> Result<T, E>,
    ) -> Result<(Model, T), E> {
        let mut artifact = Artifact::read(bytes).map_err(LoadError::from)?;
        let made = change(&mut artifact.plans)?;
        artifact.check().map_err(LoadError::from)?;
        Ok((self.checked(artifact, bytes)?, made))
    }

    /// Loads an artifact whose parts fit `bytes` and each other.
    fn checked(&self, artifact: Artifact, bytes: &Bytes) -> Result<Model, LoadError> {
        if self.verify_weights {
            artifact.verify_weights(bytes)?;
        }
        let device = self.device.as_deref();
        let wanted = match device {
            Some(device) => Wanted::Device(device),
            None if self.on_host => Wanted::Host,
            None => Wanted::Only,
        };
        let chosen = choose(&artifact.manifest.images, &self.isa, wanted)?;
        let code = map_code(&bytes[artifact.images[chosen].clone()]).map_err(LoadError::Code)?;
        let base = code.as_ptr();
        // SAFETY: the code is executable, and stays so while the model has it. That it is the compiler's is what
        // the caller's trust in its origin states, and what its checksum ties to the file.
        unsafe { tie(artifact, chosen, base, Some(Arc::new(code)), bytes, self.host.clone(), device) }
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

/// Maps all of a file, read only.
fn map_file(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    // SAFETY: the pages are this process's own, and read only. Whoever loads a file promises not to change it while the model lives.
    unsafe { MmapOptions::new().map_copy_read_only(&file) }
}

/// Copies code to memory of its own and makes it executable; it is never writable and executable at once.
fn map_code(code: &[u8]) -> io::Result<Mmap> {
    let mut map = MmapMut::map_anon(code.len())?;
    map.copy_from_slice(code);
    // SAFETY: the range is mapped.
    unsafe { flush_instructions(map.as_mut_ptr(), map.len()) };
    map.make_exec()
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

/// Makes code that was written visible to instruction fetch, on all cores: each has a fence of its own, so Linux is asked.
///
/// # Safety
/// The range is mapped.
#[cfg(all(target_arch = "riscv64", target_os = "linux"))]
unsafe fn flush_instructions(start: *mut u8, len: usize) {
    const RISCV_FLUSH_ICACHE: usize = 259;
    const ALL_CORES: usize = 0;
    // SAFETY: the call changes no memory. An error leaves what `mprotect` does.
    unsafe {
        std::arch::asm!(
            "ecall",
            in("a7") RISCV_FLUSH_ICACHE,
            inlateout("a0") start => _,
            in("a1") start.addr() + len,
            in("a2") ALL_CORES,
            options(nostack),
        );
    }
}

/// Instruction fetch is coherent with stores on x86; elsewhere `mprotect` synchronises the new pages.
///
/// # Safety
/// None needed; unsafe like its namesake.
#[cfg(not(any(target_arch = "aarch64", all(target_arch = "riscv64", target_os = "linux"))))]
unsafe fn flush_instructions(_start: *mut u8, _len: usize) {}
