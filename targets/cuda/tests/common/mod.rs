//! NVIDIA's programs, and what they say of machine code.

mod wheel;

use std::path::Path;
use std::process::Command;

pub(crate) use wheel::{ptxas, wheel_program};

/// Machine code as text.
pub(crate) fn disassemble(nvdisasm: &Path, cubin: &[u8]) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("kernel.cubin");
    std::fs::write(&path, cubin).map_err(|error| error.to_string())?;
    let output = Command::new(nvdisasm).arg("-c").arg(&path).output();
    let output = output.map_err(|error| format!("{}: {error}", nvdisasm.display()))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|error| error.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
