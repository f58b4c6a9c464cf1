//! Finding LLVM 22: what decides whether cargo is asked for the feature `llvm`.

use std::path::{Path, PathBuf};

use crate::project;

/// The variable by which the `llvm-sys` crate learns where LLVM 22.1 lies.
pub(crate) const PREFIX_VARIABLE: &str = "LLVM_SYS_221_PREFIX";

/// Set to anything, hides LLVM from every task: to try a machine that has only Rust.
pub(crate) const HIDE_VARIABLE: &str = "TILEWRIGHT_NO_LLVM";

const MAJOR: &str = "22";

/// An LLVM that the code generator can be linked with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Llvm {
    /// The installation's root, with `bin/llvm-config` below it.
    pub(crate) prefix: PathBuf,
    /// The full version, as in `22.1.8`.
    pub(crate) version: String,
}

/// The first usable LLVM 22 among the places where distributions put it.
pub(crate) fn detect() -> Option<Llvm> {
    if std::env::var_os(HIDE_VARIABLE).is_some() {
        return None;
    }
    let named = std::env::var_os(PREFIX_VARIABLE).map(|prefix| PathBuf::from(prefix).join("bin/llvm-config"));
    let usual = [
        "llvm-config-22",
        "/usr/lib/llvm-22/bin/llvm-config",
        "/opt/homebrew/opt/llvm@22/bin/llvm-config",
        "/usr/local/opt/llvm@22/bin/llvm-config",
        "llvm-config",
    ];
    named.into_iter().chain(usual.into_iter().map(PathBuf::from)).find_map(|config| probe(&config))
}

/// Asks one `llvm-config`; a runtime without its headers does not count.
fn probe(config: &Path) -> Option<Llvm> {
    let ask = |question: &str| project::output_of(project::command(config).arg(question));
    let version = ask("--version")?;
    let headers = PathBuf::from(ask("--includedir")?);
    let usable = is_wanted(&version) && headers.join("llvm-c/Core.h").exists();
    usable.then_some(Llvm { prefix: PathBuf::from(ask("--prefix")?), version })
}

fn is_wanted(version: &str) -> bool {
    version.split('.').next() == Some(MAJOR)
}

/// What a build without LLVM lacks, and how to get it.
pub(crate) const WITHOUT: &str = "LLVM 22 not found: building with Cranelift only (128-bit vectors on x86-64, slower \
     models).\n`cargo xtask setup` installs LLVM 22 where the system's package manager has it.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wanted_major_version_counts() {
        assert!(is_wanted("22.1.8"));
        assert!(is_wanted("22.1.0git"));
        for other in ["21.1.0", "2.2", "220.0.0", ""] {
            assert!(!is_wanted(other), "{other}");
        }
    }

    #[test]
    fn a_program_that_does_not_exist_is_no_llvm() {
        assert_eq!(probe(Path::new("/nonexistent/llvm-config")), None);
    }
}
