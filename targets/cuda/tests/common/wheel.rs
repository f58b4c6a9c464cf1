//! NVIDIA's programs, where the tests find them.

use std::path::{Path, PathBuf};

use tilewright_cuda::Ptxas;

/// A program of the wheels that `cargo xtask setup` installs.
pub(crate) fn wheel_program(name: &str) -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    let of_wheel = |python: PathBuf| python.join("site-packages/nvidia/cu13/bin").join(name);
    let pythons = std::fs::read_dir(target.join("venv/lib")).ok()?;
    pythons.flatten().map(|python| of_wheel(python.path())).find(|path| path.exists())
}

/// The ptxas that is installed, else that of `cargo xtask setup`.
pub(crate) fn ptxas() -> Option<Ptxas> {
    Ptxas::find().ok().flatten().or_else(|| Ptxas::at(&wheel_program("ptxas")?).ok())
}
