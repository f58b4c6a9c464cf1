//! NVIDIA's assembler as a child process, with caps on its time and memory: some inputs make it run without end.
#![allow(unsafe_code, reason = "the limit of memory is set in the child before ptxas runs")]

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tilewright_machine::Gpu;

/// A ptxas on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ptxas {
    path: PathBuf,
    version: String,
    limits: Limits,
}

/// What a run of ptxas may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processor time until it is killed; on the clock where it sleeps instead, and four times as much on a busy machine.
    pub time: Duration,
    /// Bytes of address space.
    pub memory: u64,
}

impl Default for Limits {
    /// Those of a MiB of PTX.
    fn default() -> Limits {
        Limits::of(1 << 20)
    }
}

impl Limits {
    /// For so many bytes of PTX: 8 seconds, and as much for each MiB, which takes about one; and 8 GiB, where less than one is taken.
    pub fn of(bytes: usize) -> Limits {
        let mib = bytes.div_ceil(1 << 20).max(1);
        Limits { time: Duration::from_secs(8 * mib as u64), memory: 8 << 30 }
    }
}

/// Machine code of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The file, an ELF image for the driver.
    pub bytes: Vec<u8>,
    /// What each kernel takes, in the order in which ptxas names them.
    pub usage: Vec<Usage>,
}

/// What a kernel takes of the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Its symbol.
    pub symbol: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of local memory of a thread: arrays that are no registers.
    pub stack: u32,
    /// Bytes that a thread stores because registers do not suffice.
    pub spill_stores: u32,
    /// Bytes that it loads again.
    pub spill_loads: u32,
    /// Bytes of shared memory of a block, without those that the launch asks for.
    pub shared: u32,
}

/// Why there is no cubin.
#[derive(Debug, thiserror::Error)]
pub enum PtxasError {
    /// No such program, or it does not run.
    #[error("{}: {source}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It does not say its version.
    #[error("{} is no ptxas: `--version` gives no release", path.display())]
    NoVersion {
        /// The program.
        path: PathBuf,
    },
    /// It refused the text, or failed.
    #[error("ptxas {version} for {gpu} failed ({status}): {message}")]
    Failed {
        /// Its version.
        version: String,
        /// The GPU it assembled for.
        gpu: Gpu,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        message: String,
    },
    /// It took too long.
    #[error("ptxas {version} for {gpu} was stopped after {} s: try another one, or none, by `TILEWRIGHT_PTXAS` and `PATH`", time.as_secs_f64())]
    TimedOut {
        /// Its version.
        version: String,
        /// The GPU it assembled for.
        gpu: Gpu,
        /// The limit.
        time: Duration,
    },
    /// It was stopped because its result is not wanted any more.
    #[error("ptxas was stopped")]
    Stopped,
    /// Its files could not be written or read.
    #[error("files for ptxas: {0}")]
    Files(#[from] io::Error),
}

/// Variable of the environment that names the program.
const VARIABLE: &str = "TILEWRIGHT_PTXAS";

impl Ptxas {
    /// Looks for the program: where the variable `TILEWRIGHT_PTXAS` says, in `PATH`, and where CUDA's toolkit is. None where there is none.
    ///
    /// # Errors
    /// The variable names something that is no ptxas.
    pub fn find() -> Result<Option<Ptxas>, PtxasError> {
        if let Some(path) = std::env::var_os(VARIABLE) {
            return Ptxas::at(Path::new(&path)).map(Some);
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let toolkit = [PathBuf::from("/usr/local/cuda/bin")];
        let found = std::env::split_paths(&folders).chain(toolkit).map(|folder| folder.join("ptxas"));
        Ok(found.filter(|path| path.is_file()).find_map(|path| Ptxas::at(&path).ok()))
    }

    /// The program at a path.
    ///
    /// # Errors
    /// It does not run, or is no ptxas.
    pub fn at(path: &Path) -> Result<Ptxas, PtxasError> {
        let limits = Limits { time: Duration::from_secs(3), ..Limits::default() };
        let folder = tempfile::tempdir()?;
        let mut command = Command::new(path);
        command.arg("--version");
        let start = |source| PtxasError::Start { path: path.to_owned(), source };
        let run = run(&mut command, folder.path(), limits, &|| false).map_err(start)?;
        let version = run.output.lines().find_map(|line| line.split_once("release ")?.1.split(',').next());
        match version.filter(|_| run.status.is_some_and(|status| status.success())) {
            Some(version) => Ok(Ptxas {
                path: path.to_owned(),
                version: version.trim().to_owned(),
                limits: Limits::default(),
            }),
            None => Err(PtxasError::NoVersion { path: path.to_owned() }),
        }
    }

    /// The same with other limits.
    pub fn with_limits(self, limits: Limits) -> Ptxas {
        Ptxas { limits, ..self }
    }

    /// Its release, such as `13.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Assembles a PTX module for one generation, unless `stop` says so meanwhile.
    ///
    /// # Errors
    /// ptxas refuses the text, takes too long or too much memory, or is stopped.
    pub fn assemble(&self, ptx: &str, gpu: &Gpu, stop: &dyn Fn() -> bool) -> Result<Cubin, PtxasError> {
        let folder = tempfile::tempdir()?;
        let [source, target] = ["module.ptx", "module.cubin"].map(|name| folder.path().join(name));
        fs::write(&source, ptx)?;
        let mut command = Command::new(&self.path);
        command.args(["--verbose", &format!("--gpu-name={gpu}"), "--output-file"]).arg(&target).arg(&source);
        let start = |error| PtxasError::Start { path: self.path.clone(), source: error };
        let run = run(&mut command, folder.path(), self.limits, stop).map_err(start)?;
        let version = self.version.clone();
        match run.status {
            None if stop() => Err(PtxasError::Stopped),
            None => Err(PtxasError::TimedOut { version, gpu: *gpu, time: self.limits.time }),
            Some(status) if !status.success() => {
                let message = run.output.lines().filter(|line| !line.contains("ptxas info"));
                let message = message.take(MESSAGES).collect::<Vec<_>>().join("\n");
                Err(PtxasError::Failed { version, gpu: *gpu, status, message })
            }
            Some(_) => Ok(Cubin { bytes: fs::read(&target)?, usage: usage(&run.output) }),
        }
    }
}

/// Most lines of an error.
const MESSAGES: usize = 20;

/// How a run ended.
struct Run {
    /// None if it was killed.
    status: Option<ExitStatus>,
    /// What it wrote to both of its outputs.
    output: String,
}

/// Runs a command within limits, or until `stop` says so; its output goes through a file in `folder`.
fn run(command: &mut Command, folder: &Path, limits: Limits, stop: &dyn Fn() -> bool) -> io::Result<Run> {
    let path = folder.join("output.txt");
    let file = File::create(&path)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let most = libc::rlimit { rlim_cur: limits.memory, rlim_max: limits.memory };
    let limit = move || {
        // SAFETY: `setrlimit` is safe to call between fork and exec, and reads a struct that this closure owns.
        match unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const most) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(limit) };
    let mut child = command.spawn()?;
    let (start, mut pause) = (Instant::now(), Duration::from_micros(500));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        let elapsed = start.elapsed();
        let is_due =
            || elapsed < limits.time || is_still_due(processor_time(child.id()), elapsed, limits.time);
        if stop() || !is_due() {
            // That it has ended meanwhile is no error.
            _ = child.kill();
            child.wait()?;
            break None;
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(10));
    };
    Ok(Run { status, output: String::from_utf8_lossy(&fs::read(&path)?).into_owned() })
}

/// Whether a process has time left although as much has gone by: it works, and others keep the processors busy.
fn is_still_due(used: Option<Duration>, elapsed: Duration, time: Duration) -> bool {
    used.is_some_and(|used| used < time && used >= elapsed / 8 && elapsed < 4 * time)
}

/// Processor time that a process has used, where the system tells it (`proc_pid_stat(5)`: fields 14 and 15, in ticks).
fn processor_time(process: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = |field: usize| fields.split_whitespace().nth(field - 3)?.parse::<u64>().ok();
    // SAFETY: `sysconf` takes a number and has no other effect.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok().filter(|&n| n > 0)?;
    Some(Duration::from_millis((ticks(14)? + ticks(15)?) * 1000 / per_second))
}

/// What `--verbose` says of each kernel.
fn usage(output: &str) -> Vec<Usage> {
    let mut all: Vec<Usage> = Vec::new();
    for line in output.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let symbol = rest.split('\'').next().unwrap_or_default().to_owned();
            all.push(Usage { symbol, ..Usage::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        // `NUMBER what` in the lines of the kernel named last, separated by commas.
        let list = line.rsplit_once(" : Used ").map_or(line, |(_, list)| list);
        for item in list.split(',') {
            let words: Vec<&str> = item.trim().trim_start_matches("used ").splitn(2, ' ').collect();
            let [number, what] = words[..] else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            match what.trim() {
                "registers" => last.registers = number,
                "bytes stack frame" => last.stack = number,
                "bytes spill stores" => last.spill_stores = number,
                "bytes spill loads" => last.spill_loads = number,
                "bytes smem" => last.shared = number,
                _ => {}
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const SAID: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'product' for 'sm_80'
ptxas info    : Function properties for product
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 54 registers, used 1 barriers, 8192 bytes smem, 388 bytes cmem[0]
ptxas info    : Compiling entry function 'add' for 'sm_80'
ptxas info    : Function properties for add
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 376 bytes cmem[0]
";

    #[test]
    fn usage_is_read_from_what_is_said() {
        let product = Usage {
            symbol: "product".into(),
            registers: 54,
            stack: 16,
            spill_stores: 4,
            spill_loads: 8,
            shared: 8192,
        };
        let add = Usage { symbol: "add".into(), registers: 8, ..Usage::default() };
        assert_eq!(usage(SAID), [product, add]);
    }

    /// A program of our own in place of ptxas: it says a version, and then does what `body` says.
    fn impostor(folder: &Path, body: &str) -> PathBuf {
        let path = folder.join("ptxas");
        let version = "if [ \"$1\" = --version ]; then echo 'tools, release 99.1, V99.1.2'; exit; fi";
        fs::write(&path, format!("#!/bin/sh\n{version}\n{body}\n")).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("rights");
        path
    }

    #[track_caller]
    fn assembled(body: &str, limits: Limits) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let ptxas = Ptxas::at(&impostor(folder.path(), body)).expect("a version").with_limits(limits);
        assert_eq!(ptxas.version(), "99.1");
        ptxas.assemble("", &Gpu::ALL[0], &|| false).expect_err("no cubin").to_string()
    }

    #[test]
    fn a_ptxas_that_fails_or_hangs_is_an_error() {
        let error = assembled("echo 'module.ptx, line 3; error : no'; exit 2", Limits::default());
        let expect = "ptxas 99.1 for sm_80 failed (exit status: 2): module.ptx, line 3; error : no";
        assert_eq!(error, expect);
        let short = Limits { time: Duration::from_millis(200), ..Limits::default() };
        assert_eq!(
            assembled("exec sleep 600", short),
            "ptxas 99.1 for sm_80 was stopped after 0.2 s: try another one, or none, by `TILEWRIGHT_PTXAS` and `PATH`"
        );
        // One that works has its time of the processor, whoever else has it too; one that sleeps has none.
        let second = Duration::from_secs(1);
        assert!(is_still_due(Some(second), 2 * second, 2 * second));
        assert!(!is_still_due(Some(2 * second), 3 * second, 2 * second));
        assert!(!is_still_due(Some(Duration::ZERO), 2 * second, 2 * second));
        assert!(!is_still_due(Some(second), 8 * second, 2 * second));
        assert!(processor_time(std::process::id()).is_some());
        // Memory that it may not have.
        let little = Limits { memory: 64 << 20, ..Limits::default() };
        let error = assembled("ulimit -v | grep -qx 65536 && exit 7; exit 8", little);
        assert!(error.contains("exit status: 7"), "{error}");
        // It says that all is well, and leaves nothing.
        let error = assembled("exit 0", Limits::default());
        assert!(error.starts_with("files for ptxas: No such file"), "{error}");
    }

    #[test]
    fn what_is_no_ptxas_is_told() {
        let error = Ptxas::at(Path::new("/nowhere/ptxas")).expect_err("nothing").to_string();
        assert!(error.starts_with("/nowhere/ptxas: No such file"), "{error}");
        let error = Ptxas::at(Path::new("/bin/true")).expect_err("another program").to_string();
        assert_eq!(error, "/bin/true is no ptxas: `--version` gives no release");
    }
}
