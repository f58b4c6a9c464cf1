//! The driver of ours, compiled.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The driver as it is now, and one that has no graphs yet, each in a folder of its own.
pub(crate) struct Fake {
    folder: TempDir,
}

impl Fake {
    /// Compiles both from the folder of `fake.c`; gives what is lacking.
    pub(crate) fn build(sources: &Path) -> Result<Fake, String> {
        if !cfg!(all(target_os = "linux", target_pointer_width = "64")) {
            return Err("the fake driver is for 64-bit Linux".into());
        }
        let no_folder = |error: std::io::Error| format!("no folder for the fake driver: {error}");
        let fake = Fake { folder: tempfile::tempdir().map_err(no_folder)? };
        for (place, options) in [(fake.folder(), &[][..]), (fake.without_graphs(), &["-DWITHOUT_GRAPHS"])] {
            std::fs::create_dir(&place).map_err(no_folder)?;
            // This name comes first where libraries are looked for, even before a real `libcuda.so.1`.
            let library = place.join("libcuda.so");
            let mut compiler = Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(sources.join("fake.c"));
            let output = compiler.args(options).arg("-lpthread").output();
            let output = output.map_err(|error| format!("no C compiler `cc`: {error}"))?;
            // A compiler that is there but refuses the source is no lack of the machine.
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(fake)
    }

    /// Where the driver is.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().join("new")
    }

    /// Where that without graphs is.
    #[allow(dead_code, reason = "of use to one of the test programs that share this")]
    pub(crate) fn without_graphs(&self) -> PathBuf {
        self.folder.path().join("old")
    }
}
