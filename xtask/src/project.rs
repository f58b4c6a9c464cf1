//! Where things lie in the repository, and how tasks run other programs.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// What a task that ran to its end found: `false` is a failed check (exit code 1), not an error.
pub(crate) type Verdict = anyhow::Result<bool>;

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository's root")
}

/// A path given relative to the repository's root.
pub(crate) fn path(relative: impl AsRef<Path>) -> PathBuf {
    root().join(relative)
}

/// Cargo's output folder, which `CARGO_TARGET_DIR` may have moved.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// What all clones of a user share: the folder that the compiler has in the user's cache, or the build's folder where there is no cache.
pub(crate) fn cache_dir() -> PathBuf {
    let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let shared = path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let shared = shared.or_else(|| Some(path("HOME")?.join(".cache"))).map(|cache| cache.join("tilewright"));
    shared.unwrap_or_else(target_dir)
}

/// Waits until nobody else makes what lies at a path, which all clones of a user share; the file that is given keeps others waiting.
pub(crate) fn lock(path: &Path) -> anyhow::Result<File> {
    let folder = path.parent().context("what is shared lies in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock = File::create(&name).with_context(|| format!("{}.lock", path.display()))?;
    lock.lock()?;
    Ok(lock)
}

/// The Python of the project's own environment, made by `setup`.
pub(crate) fn venv_python() -> PathBuf {
    target_dir().join("venv/bin/python")
}

/// A command that runs in the repository's root and never waits for a terminal.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

/// Runs a command to its end with its output shown; an exit status other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", describe(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", describe(command));
    }
    Ok(())
}

/// Standard output of a command, or `None` where it cannot start or fails.
pub(crate) fn output_of(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Whether a program of this name can be started.
pub(crate) fn have(program: &str) -> bool {
    let mut probe = command(program);
    probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok()
}

/// The command as a user would type it.
pub(crate) fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
