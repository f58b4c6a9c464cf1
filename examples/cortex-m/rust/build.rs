//! Gives the program what it embeds: the artifact named by `MODEL_TWM`, the features of the core that it is for, from `MODEL_FEATURES`
//! (separated by commas), and the bytes of memory that `tilewright compile` said it needs, from `MODEL_MEMORY`.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let variable = |name: &str| {
        println!("cargo::rerun-if-env-changed={name}");
        env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask firmware`"))
    };
    let model = variable("MODEL_TWM");
    println!("cargo::rerun-if-changed={model}");
    println!("cargo::rustc-env=FEATURES={}", variable("MODEL_FEATURES"));
    let memory: usize = variable("MODEL_MEMORY").parse().expect("MODEL_MEMORY is a number");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::copy(&model, out.join("model.twm")).expect("the artifact can be read");
    fs::write(out.join("memory.rs"), format!("{memory}")).expect("the folder is cargo's");
    let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let script = Path::new(&folder).join("../c/board.ld");
    println!("cargo::rerun-if-changed={}", script.display());
    println!("cargo::rustc-link-arg=-T{}", script.display());
}
