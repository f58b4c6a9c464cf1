//! The cache of compiled functions: the same bytes with it and without it, whatever happens to its folder.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{NOBODY, Run, folder, is_root, run, tilewright};

/// A folder with the model, whose cache is the folder `cache` in it.
struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { dir: folder() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command in this folder, as if nothing were known of any other cache.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.current_dir(self.dir.path()).args(args);
        for name in ["HOME", "XDG_CACHE_HOME", "TILEWRIGHT_CACHE_LIMIT"] {
            command.env_remove(name);
        }
        command.env("TILEWRIGHT_CACHE_DIR", self.path("cache"));
        command
    }

    fn succeed(&self, args: &[&str]) -> Run {
        succeed(self.command(args))
    }

    /// Compiles; gives the artifact, the number of functions, and how many of them came from the cache.
    fn compile(&self, args: &[&str]) -> (Vec<u8>, u64, u64) {
        let args = [&["compile", "digits.onnx", "-o", "out.twm", "--json"], args].concat();
        let run = self.succeed(&args);
        assert_eq!(run.err, "", "{args:?}");
        (self.artifact(), number(&run, "functions"), number(&run, "cached_functions"))
    }

    fn artifact(&self) -> Vec<u8> {
        fs::read(self.path("out.twm")).unwrap()
    }

    /// Number and bytes of the entries.
    fn stats(&self) -> (u64, u64) {
        let run = self.succeed(&["cache", "stats", "--json"]);
        (number(&run, "entries"), number(&run, "bytes"))
    }

    /// The files of the cache's functions.
    fn entries(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        collect(&self.path("cache/functions"), &mut files);
        files
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path().is_dir() {
            true => collect(&entry.path(), files),
            false => files.push(entry.path()),
        }
    }
}

fn succeed(mut command: Command) -> Run {
    let run = run(&mut command);
    assert_eq!(run.code, Some(0), "{command:?}: {}", run.err);
    run
}

fn number(run: &Run, key: &str) -> u64 {
    run.json()[key].as_u64().unwrap_or_else(|| panic!("no {key} in {}", run.out))
}

#[test]
#[cfg_attr(not(feature = "llvm"), ignore = "built without LLVM")]
fn a_module_for_a_gpu_is_assembled_once() {
    let scratch = Scratch::new();
    let ptxas = scratch.path("ptxas");
    // Notes each module that it is to assemble.
    let script = "#!/bin/sh
if [ \"$1\" = --version ]; then echo 'release 99.0, V99.0'; exit; fi
echo module >> assembled
while [ $# -gt 1 ]; do
  if [ \"$1\" = --output-file ]; then echo code > \"$2\"; fi
  shift
done
";
    fs::write(&ptxas, script).unwrap();
    fs::set_permissions(&ptxas, fs::Permissions::from_mode(0o755)).unwrap();
    let compile = || {
        let mut command =
            scratch.command(&["compile", "digits.onnx", "-o", "out.twm", "--target", "cuda:sm_80"]);
        command.env("TILEWRIGHT_PTXAS", &ptxas);
        succeed(command);
        scratch.artifact()
    };
    let first = compile();
    assert_eq!(compile(), first);
    assert_eq!(fs::read_to_string(scratch.path("assembled")).unwrap(), "module\n");
}

#[test]
fn the_bytes_are_the_same_with_and_without_a_cache() {
    let scratch = Scratch::new();
    let (expected, functions, cached) = scratch.compile(&["--no-cache"]);
    assert!(functions > 0 && cached == 0);
    assert!(!scratch.path("cache").exists());
    assert_eq!(scratch.compile(&[]), (expected.clone(), functions, 0));
    assert_eq!(scratch.compile(&[]), (expected.clone(), functions, functions));
    assert_eq!(scratch.compile(&["--no-cache"]), (expected, functions, 0));
    assert_eq!(scratch.stats().0, functions);
}

#[test]
fn a_build_without_llvm_takes_only_what_one_with_it_has_left() {
    let scratch = Scratch::new();
    let generator = scratch.path("cache/generator");
    if cfg!(feature = "llvm") {
        scratch.compile(&["--codegen", "llvm"]);
        assert!(fs::read_to_string(generator).unwrap().starts_with("22."));
        return;
    }
    let refuse = |parts: [&str; 2]| {
        let run = run(&mut scratch.command(&["compile", "digits.onnx", "--codegen", "llvm"]));
        assert_eq!(run.code, Some(3), "{}", run.err);
        parts.iter().for_each(|part| assert!(run.err.contains(part), "{}", run.err));
    };
    scratch.compile(&[]);
    assert!(!generator.exists());
    refuse(["the code generator llvm is not in this build", "TILEWRIGHT_CACHE_DIR"]);
    fs::write(generator, "22.1.8\n").unwrap();
    refuse(["function `f", "is not in the cache of compiled functions"]);
}

#[test]
fn different_options_share_nothing() {
    let scratch = Scratch::new();
    let options: [&[&str]; 6] = [
        &["--codegen", "cranelift"],
        &["--codegen", "cranelift", "--target", "x86-64-v3"],
        &["--codegen", "cranelift", "--target", "x86-64-v3;l2=262144"],
        &["--codegen", "cranelift", "--target", "aarch64"],
        &["--codegen", "cranelift", "--numerics", "strict"],
        &["--target", "x86-64-v2"],
    ];
    let mut entries = 0;
    for args in options {
        let (_, functions, cached) = scratch.compile(args);
        entries += functions;
        assert_eq!((cached, scratch.stats().0), (0, entries), "{args:?}");
    }
    for args in options {
        let (_, functions, cached) = scratch.compile(args);
        assert_eq!(cached, functions, "{args:?}");
    }
}

#[test]
fn damaged_entries_are_compiled_again() {
    let scratch = Scratch::new();
    let (expected, functions, _) = scratch.compile(&[]);
    for (i, path) in scratch.entries().iter().enumerate() {
        let mut bytes = fs::read(path).unwrap();
        let at = bytes.len() * (i + 1) / (functions as usize + 1);
        match i % 3 {
            0 => bytes[at] ^= 0x10,
            1 => bytes.truncate(at),
            _ => bytes.clear(),
        }
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(scratch.compile(&[]), (expected.clone(), functions, 0));
    assert_eq!(scratch.compile(&[]), (expected, functions, functions));
}

#[test]
fn processes_share_a_cache() {
    let scratch = Scratch::new();
    let (expected, functions, _) = scratch.compile(&["--no-cache"]);
    let start = |n: usize| {
        let mut command = scratch.command(&["compile", "digits.onnx", "-o", &format!("{n}.twm")]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for child in (0..4).map(start).collect::<Vec<_>>() {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    for n in 0..4 {
        assert!(fs::read(scratch.path(&format!("{n}.twm"))).unwrap() == expected);
    }
    assert_eq!(scratch.entries().len(), functions as usize);
    assert_eq!(scratch.compile(&[]), (expected, functions, functions));
}

#[test]
fn a_killed_process_leaves_a_sound_cache() {
    let scratch = Scratch::new();
    let (expected, functions, _) = scratch.compile(&["--no-cache"]);
    let mut killed = 0;
    for n in 0..20 {
        let mut command = scratch.command(&["compile", "digits.onnx", "-o", "killed.twm"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(7 * n));
        // A process that has ended already was not killed.
        child.kill().unwrap();
        killed += u32::from(child.wait().unwrap().code().is_none());
        if n % 5 == 4 {
            let (bytes, total, _) = scratch.compile(&[]);
            assert!(bytes == expected && total == functions);
            scratch.succeed(&["cache", "clear"]);
        }
    }
    assert!(killed > 0);
    scratch.compile(&[]);
    assert_eq!(scratch.compile(&[]), (expected, functions, functions));
}

/// Compiles where the cache cannot be written: the same artifact, and one warning.
#[track_caller]
fn check_unwritable(mut command: Command, expected: &[u8], out: &Path, reason: &str) {
    let run = succeed_with(&mut command);
    assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    assert!(run.err.starts_with("warning: compiled code is not kept in "), "{}", run.err);
    assert!(run.err.contains(reason), "{}", run.err);
    assert!(fs::read(out).unwrap() == expected);
}

fn succeed_with(command: &mut Command) -> Run {
    let run = run(command);
    assert_eq!(run.code, Some(0), "{command:?}: {}", run.err);
    run
}

#[test]
fn a_folder_that_cannot_be_written_costs_a_warning() {
    let scratch = Scratch::new();
    let (expected, functions, _) = scratch.compile(&[]);
    let compile = ["compile", "digits.onnx", "-o", "out.twm"];
    for (folder, reason) in
        [("/proc/tilewright", "No such file or directory"), ("digits.onnx/cache", "Not a directory")]
    {
        let mut command = scratch.command(&compile);
        command.env("TILEWRIGHT_CACHE_DIR", folder);
        check_unwritable(command, &expected, &scratch.path("out.twm"), reason);
    }

    // Read-only: what is there is read, what is new is not kept. Root may write everywhere, so as root as nobody.
    let allow = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let program = scratch.path("tilewright");
    fs::copy(env!("CARGO_BIN_EXE_tilewright"), &program).unwrap();
    let out = scratch.path("out");
    fs::create_dir(&out).unwrap();
    allow(scratch.dir.path(), 0o755);
    allow(&scratch.path("digits.onnx"), 0o644);
    allow(&out, 0o777);
    let mut folders = vec![scratch.path("cache"), scratch.path("cache/functions")];
    folders.extend(scratch.entries().iter().filter_map(|file| file.parent()).map(Path::to_path_buf));
    folders.iter().for_each(|folder| allow(folder, 0o555));
    scratch.entries().iter().for_each(|file| allow(file, 0o444));
    let command = |args: &[&str]| {
        let mut command = Command::new(&program);
        // Nobody has a home, and may not look into that of the tests' user.
        command.env_remove("HOME").env_remove("XDG_DATA_HOME");
        command.current_dir(scratch.dir.path()).env("TILEWRIGHT_CACHE_DIR", scratch.path("cache"));
        command.args(["compile", "digits.onnx", "-o", "out/out.twm", "--json"]).args(args);
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    };
    let warm = succeed(command(&[]));
    assert_eq!((number(&warm, "cached_functions"), warm.err.as_str()), (functions, ""));
    assert!(fs::read(out.join("out.twm")).unwrap() == expected);
    let other = ["--codegen", "cranelift", "--target", "x86-64-v2;l2=262144"];
    let expected = scratch.compile(&[&other[..], &["--no-cache"]].concat()).0;
    check_unwritable(command(&other), &expected, &out.join("out.twm"), "Permission denied");
    folders.iter().for_each(|folder| allow(folder, 0o755));
    assert_eq!(scratch.entries().len(), functions as usize);
}

#[test]
fn the_cache_is_kept_to_its_size() {
    let scratch = Scratch::new();
    let compile = |target| {
        scratch.command(&[
            "compile",
            "digits.onnx",
            "--codegen",
            "cranelift",
            "--target",
            target,
            "-o",
            "out.twm",
        ])
    };
    // Code without fused products is much the larger, so that what comes after it fits the limit by itself. Named
    // targets, since what this machine's code takes is not known.
    assert_eq!(succeed(compile("x86-64-v2")).err, "");
    let (entries, limit) = scratch.stats();
    let mut command = compile("x86-64-v3");
    command.env("TILEWRIGHT_CACHE_LIMIT", limit.to_string());
    assert_eq!(succeed(command).err, "");
    let (left, left_bytes) = scratch.stats();
    assert!(left > 0 && left < 2 * entries && left_bytes <= limit, "{left} of {left_bytes} bytes");
    // What was used last is what is left.
    let mut command = compile("x86-64-v3");
    command.arg("--json");
    assert_eq!(number(&succeed(command), "cached_functions"), entries);
    let mut command = scratch.command(&["cache", "prune", "--json"]);
    command.env("TILEWRIGHT_CACHE_LIMIT", "0");
    assert_eq!(number(&succeed(command), "removed_entries"), left);
    assert_eq!(scratch.stats(), (0, 0));
}

#[test]
fn the_verb_tells_and_clears() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("cache")).unwrap();
    fs::write(scratch.path("cache/notes"), "mine").unwrap();
    let (_, functions, _) = scratch.compile(&["--codegen", "cranelift"]);
    let path = scratch.path("cache").display().to_string();
    assert_eq!(scratch.succeed(&["cache", "path"]).out.trim_end(), path);
    assert_eq!(scratch.stats().0, functions);
    let cleared = scratch.succeed(&["cache", "clear", "--json"]);
    assert_eq!((number(&cleared, "removed_entries"), number(&cleared, "entries")), (functions, 0));
    assert!(scratch.entries().is_empty() && scratch.path("cache/notes").exists());

    let mut command = scratch.command(&["cache", "path"]);
    command.env_remove("TILEWRIGHT_CACHE_DIR").env("HOME", "/home/somebody");
    assert_eq!(succeed(command).out, "/home/somebody/.cache/tilewright\n");
    let mut command = scratch.command(&["cache", "path"]);
    command.env_remove("TILEWRIGHT_CACHE_DIR").env("XDG_CACHE_HOME", "/var/tmp/kept");
    assert_eq!(succeed(command).out, "/var/tmp/kept/tilewright\n");
}

#[test]
fn no_folder_is_no_cache() {
    let scratch = Scratch::new();
    let mut command = scratch.command(&["compile", "digits.onnx", "--codegen", "cranelift"]);
    command.env_remove("TILEWRIGHT_CACHE_DIR");
    assert_eq!(succeed(command).err, "");
    let mut command = scratch.command(&["cache", "stats"]);
    assert_eq!(run(command.env_remove("TILEWRIGHT_CACHE_DIR")).code, Some(2));
    let mut command = scratch.command(&["compile", "digits.onnx"]);
    let refused = run(command.env("TILEWRIGHT_CACHE_LIMIT", "much"));
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("TILEWRIGHT_CACHE_LIMIT=much is not a number of bytes"), "{}", refused.err);
    assert_eq!(tilewright(scratch.dir.path(), &["cache"]).code, Some(2));
}
