//! How tasks call cargo: with the feature `llvm` exactly where LLVM 22 is there.

use std::process::Command;

use crate::llvm::{self, Llvm};
use crate::project;

/// The packages that have a feature `llvm`.
pub(crate) const LLVM_PACKAGES: [&str; 9] = [
    "tilewright-cli",
    "tilewright",
    "tilewright-capi-compiler",
    "tilewright-driver",
    "tilewright-benches",
    "tilewright-llvm",
    "tilewright-cuda",
    "tilewright-target-suite",
    "tilewright-kernel-suite",
];

/// Packages whose tests run kernels, through the interpreter or compiled, which is too slow without optimisation; and what else depends on
/// the whole compiler. Cargo builds a package anew where other packages that are named with it want other features of it: what names
/// all of these shares one build.
pub(crate) const KERNEL_PACKAGES: [&str; 12] = [
    "tilewright-te",
    "tilewright-cranelift",
    "tilewright-llvm",
    "tilewright-cuda",
    "tilewright-opencl",
    "tilewright-target-suite",
    "tilewright-driver",
    "tilewright",
    "tilewright-cli",
    "tilewright-capi-compiler",
    "tilewright-kernel-suite",
    "tilewright-benches",
];

/// Which packages one cargo call is about.
#[derive(Clone, Copy)]
pub(crate) enum Packages<'a> {
    /// Every package of the workspace.
    All,
    /// Every package of the workspace but the named ones.
    AllBut(&'a [&'a str]),
    /// The named ones.
    These(&'a [&'a str]),
}

/// Cargo on this machine.
pub(crate) struct Cargo {
    /// The LLVM to link with, if any.
    pub(crate) llvm: Option<Llvm>,
}

impl Cargo {
    /// Looks for LLVM once; says what is missed where there is none.
    pub(crate) fn detect() -> Cargo {
        let llvm = llvm::detect();
        if llvm.is_none() {
            eprintln!("{}", llvm::WITHOUT);
        }
        Cargo { llvm }
    }

    /// `cargo VERB` over some packages, with the features that this machine can link.
    pub(crate) fn command(&self, verb: &str, packages: Packages<'_>) -> Command {
        let mut command = plain(verb);
        if let Some(llvm) = &self.llvm {
            command.env(llvm::PREFIX_VARIABLE, &llvm.prefix);
            let features = llvm_features(packages);
            if !features.is_empty() {
                command.arg("--features").arg(features.join(","));
            }
        }
        match packages {
            Packages::All => {
                command.arg("--workspace");
            }
            Packages::AllBut(names) => {
                command.arg("--workspace").args(names.iter().flat_map(|name| ["--exclude", name]));
            }
            Packages::These(names) => {
                command.args(names.iter().flat_map(|name| ["--package", name]));
            }
        }
        command
    }

    /// The code generator that a build on this machine uses unless told otherwise.
    pub(crate) fn default_codegen(&self) -> &'static str {
        if self.llvm.is_some() { "llvm" } else { "cranelift" }
    }

    /// Every code generator that a build on this machine has.
    pub(crate) fn codegens(&self) -> &'static [&'static str] {
        if self.llvm.is_some() { &["llvm", "cranelift"] } else { &["cranelift"] }
    }
}

/// `cargo VERB` with no packages or features chosen.
pub(crate) fn plain(verb: &str) -> Command {
    let mut command = project::command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(verb);
    command
}

/// Cargo refuses a feature of a package that is not selected, hence the intersection.
fn llvm_features(packages: Packages<'_>) -> Vec<String> {
    let selected = |name: &&str| match packages {
        Packages::All => true,
        Packages::AllBut(names) => !names.contains(name),
        Packages::These(names) => names.contains(name),
    };
    LLVM_PACKAGES.iter().filter(|name| selected(name)).map(|name| format!("{name}/llvm")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(llvm: bool, packages: Packages<'_>) -> String {
        let llvm = llvm.then(|| Llvm { prefix: "/usr/lib/llvm-22".into(), version: "22.1.8".into() });
        let command = Cargo { llvm }.command("test", packages);
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
        words.join(" ")
    }

    #[test]
    fn the_feature_goes_only_to_selected_packages_that_have_it() {
        assert_eq!(
            arguments(true, Packages::These(&["tilewright", "tilewright-te"])),
            "test --features tilewright/llvm --package tilewright --package tilewright-te"
        );
        assert_eq!(arguments(true, Packages::These(&["tilewright-te"])), "test --package tilewright-te");
        assert_eq!(
            arguments(true, Packages::All),
            "test --features tilewright-cli/llvm,tilewright/llvm,tilewright-capi-compiler/llvm,tilewright-driver/llvm,\
             tilewright-benches/llvm,tilewright-llvm/llvm,tilewright-cuda/llvm,tilewright-target-suite/llvm,tilewright-kernel-suite/llvm --workspace"
        );
        assert_eq!(
            arguments(true, Packages::AllBut(&["tilewright", "tilewright-cli", "tilewright-target-suite"])),
            "test --features tilewright-capi-compiler/llvm,tilewright-driver/llvm,tilewright-benches/llvm,tilewright-llvm/llvm,\
             tilewright-cuda/llvm,tilewright-kernel-suite/llvm --workspace \
             --exclude tilewright --exclude tilewright-cli --exclude tilewright-target-suite"
        );
    }

    #[test]
    fn without_llvm_no_feature_is_asked_for() {
        assert_eq!(arguments(false, Packages::All), "test --workspace");
    }
}
