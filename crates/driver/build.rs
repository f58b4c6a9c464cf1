//! The fingerprint of this compiler: a digest of the sources of the packages below the command line and of the
//! versions of their dependencies. Whatever is kept on disk is kept under it, so that a changed compiler never reads
//! what another one wrote.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn main() -> io::Result<()> {
    // Asked when it runs: a build folder may have been moved or copied along with its tree.
    let package = env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| io::Error::other("cargo runs this"))?;
    let root = Path::new(&package).join("../..");
    let mut files = vec![root.join("Cargo.lock")];
    let packages = fs::read_dir(root.join("crates"))?.map(|entry| entry.map(|entry| entry.path()));
    for folder in packages.chain([Ok(root.join("targets")), Ok(root.join("runtime"))]) {
        let folder = folder?;
        // The command line and the face decide nothing about code.
        if !["cli", "tilewright"].iter().any(|name| folder.file_name() == Some(name.as_ref())) {
            println!("cargo::rerun-if-changed={}", folder.display());
            collect(&folder, &mut files)?;
        }
    }
    println!("cargo::rerun-if-changed={}", root.join("Cargo.lock").display());
    files.sort();
    let mut hash = Sha256::new();
    for file in &files {
        let text = fs::read(file)?;
        let name = file.strip_prefix(&root).unwrap_or(file).display().to_string();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=TILEWRIGHT_FINGERPRINT={digest}");
    Ok(())
}

/// The sources, manifests and timings of machines below a folder; not its tests, which no compiler contains.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name() != Some("tests".as_ref()) || path.parent().is_some_and(|p| p.ends_with("src"))
            {
                collect(&path, files)?;
            }
        } else if path.extension() == Some("rs".as_ref()) || path.extension() == Some("toml".as_ref()) {
            files.push(path);
        }
    }
    Ok(())
}
