//! Rust's library for other machines: built from its source once for each compiler, target and flags, and kept beside what else the user's
//! cache has, for all builds and clones. A build that makes it along needs a minute for it each time.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::{cargo, project};

/// Debian's compiler, and the library's source of its version.
const RUSTC: &str = "/usr/bin/rustc";
const SOURCE: &str = "/usr/lib/rustlib/src/rust/library";

/// The file of a finished sysroot that tells what it was made of.
const RECORD: &str = "made-of.txt";

/// What is built of Rust's library, and how.
pub(crate) struct Library<'a> {
    /// As `-Z build-std` takes them.
    pub(crate) crates: &'static str,
    /// As `-Z build-std-features` takes them.
    pub(crate) features: &'static str,
    pub(crate) target: &'a str,
    /// One of this workspace's.
    pub(crate) profile: &'static str,
    /// Flags of the compiler.
    pub(crate) flags: &'a [String],
}

/// Whether the source is here, and the compiler that it belongs to.
pub(crate) fn has_source() -> bool {
    Path::new(RUSTC).exists() && Path::new(SOURCE).exists()
}

/// The compiler, and its version: sizes depend on it.
pub(crate) fn compiler() -> anyhow::Result<String> {
    let version = project::output_of(project::command(RUSTC).arg("--version"));
    let version = version.with_context(|| format!("{RUSTC} tells no version"))?;
    Ok(version.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

/// Has a build use Rust's library as `library` says, built now where no build before has used it, with the same flags and some more.
pub(crate) fn apply(build: &mut Command, library: &Library<'_>, more: Vec<String>) -> anyhow::Result<()> {
    ensure!(has_source(), "no source of Rust's library: run `cargo xtask setup --boards` on Debian");
    let sysroot = ["--sysroot".to_string(), library.made()?.display().to_string()];
    let flags = [library.flags, &more, &sysroot].concat();
    build.env("RUSTC", RUSTC).env("RUSTC_BOOTSTRAP", "1").env("CARGO_ENCODED_RUSTFLAGS", encoded(&flags));
    Ok(())
}

/// Flags in Cargo's own form: names of folders may have spaces in them.
fn encoded(flags: &[String]) -> String {
    flags.join("\u{1f}")
}

impl Library<'_> {
    /// The folder that the compiler takes for `--sysroot`.
    fn made(&self) -> anyhow::Result<PathBuf> {
        let (compiler, profiles) = (compiler()?, profiles(self.profile)?);
        let made_of = format!(
            "{}\n{} [{}] for {}\n{:?}\n{profiles}",
            compiler, self.crates, self.features, self.target, self.flags
        );
        let mut hash = DefaultHasher::new();
        made_of.hash(&mut hash);
        let all = project::cache_dir().join("sysroots");
        let sysroot = all.join(format!("{}-{:016x}", self.target, hash.finish()));
        // Others wait for it who need the same.
        let _lock = project::lock(&sysroot)?;
        let record = sysroot.join(RECORD);
        if fs::read_to_string(&record).is_ok_and(|text| text == made_of) {
            return Ok(sysroot);
        }
        println!("Rust's library for {}, into {}", self.target, sysroot.display());
        remove_of_others(&all, &compiler)?;
        if sysroot.exists() {
            fs::remove_dir_all(&sysroot)?;
        }
        let work = sysroot.join("build");
        let crates = self.build(&work, &profiles)?;
        let libraries = sysroot.join("lib/rustlib").join(self.target).join("lib");
        fs::create_dir_all(&libraries)?;
        for path in crates {
            fs::rename(&path, libraries.join(path.file_name().context("a file has a name")?))?;
        }
        fs::remove_dir_all(&work)?;
        // Last: what has it is whole.
        fs::write(record, made_of)?;
        Ok(sysroot)
    }

    /// Builds the library along with an empty crate; gives the files of its crates.
    fn build(&self, work: &Path, profiles: &str) -> anyhow::Result<Vec<PathBuf>> {
        fs::create_dir_all(work)?;
        let package =
            "[package]\nname = \"nothing\"\nedition = \"2024\"\n[lib]\npath = \"nothing.rs\"\n[workspace]\n";
        fs::write(work.join("Cargo.toml"), format!("{package}{profiles}"))?;
        fs::write(work.join("nothing.rs"), "#![no_std]\n")?;
        let mut build = cargo::plain("build");
        build.arg("--manifest-path").arg(work.join("Cargo.toml")).args(["--profile", self.profile]);
        build.args(["--target", self.target, "-Z", &format!("build-std={}", self.crates)]);
        build.args(["-Z", &format!("build-std-features={}", self.features)]);
        build.env("RUSTC", RUSTC).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", work.join("target"));
        build.env("CARGO_ENCODED_RUSTFLAGS", encoded(self.flags));
        project::run(&mut build)?;
        let built = work.join("target").join(self.target).join(self.profile).join("deps");
        let files = fs::read_dir(&built).with_context(|| built.display().to_string())?;
        let files = files.map(|file| Ok(file?.path())).collect::<anyhow::Result<Vec<PathBuf>>>()?;
        let is_library = |path: &PathBuf| {
            let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
            path.extension().is_some_and(|ending| ending == "rlib") && !name.starts_with("libnothing-")
        };
        Ok(files.into_iter().filter(is_library).collect())
    }
}

/// A profile of the workspace and those that it inherits from, as a manifest states them, without what they say of single packages.
fn profiles(of: &str) -> anyhow::Result<String> {
    let manifest: toml::Table = fs::read_to_string(project::path("Cargo.toml"))?.parse()?;
    let all =
        manifest.get("profile").and_then(toml::Value::as_table).context("the workspace has no profiles")?;
    let mut kept = toml::Table::new();
    let mut next = Some(of.to_string());
    while let Some((name, profile)) = next.and_then(|name| all.get_key_value(&name)) {
        let mut profile =
            profile.as_table().cloned().with_context(|| format!("profile {name} is no table"))?;
        profile.remove("package");
        next = profile.get("inherits").and_then(toml::Value::as_str).map(String::from);
        kept.insert(name.clone(), profile.into());
    }
    Ok(toml::to_string(&toml::Table::from_iter([("profile".to_string(), kept.into())]))?)
}

/// Removes what other versions of the compiler have built: nobody has these any more.
fn remove_of_others(all: &Path, compiler: &str) -> anyhow::Result<()> {
    for entry in fs::read_dir(all)? {
        let sysroot = entry?.path();
        let Ok(made_of) = fs::read_to_string(sysroot.join(RECORD)) else { continue };
        if made_of.lines().next() != Some(compiler) {
            fs::remove_dir_all(&sysroot).with_context(|| sysroot.display().to_string())?;
        }
    }
    Ok(())
}
