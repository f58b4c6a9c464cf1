//! Gives the program the artifact to embed, the file named by `MODEL_TWM`, and the features of the processor it
//! is for beyond those of every one of its architecture, from `MODEL_FEATURES` (separated by commas, none if unset).

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=MODEL_TWM");
    let model = env::var("MODEL_TWM").expect("MODEL_TWM names an artifact");
    println!("cargo::rerun-if-changed={model}");
    println!("cargo::rerun-if-env-changed=MODEL_FEATURES");
    println!("cargo::rustc-env=FEATURES={}", env::var("MODEL_FEATURES").unwrap_or_default());
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::copy(&model, out.join("model.twm")).expect("the artifact can be read");
    // The only thing linked beside the core: the C library's start code and `write`.
    println!("cargo::rustc-link-lib=c");
}
