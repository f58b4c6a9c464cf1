//! C compilers of the machine, and what they make of programs.

use std::path::Path;
use std::process::Command;

use libloading::Library;
use tilewright_target_suite::run::AlignedBytes;
use tilewright_target_suite::{Case, compare};

/// A compiler with its options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compiler {
    /// Its program.
    pub(crate) program: &'static str,
    /// Options beside those that all have.
    pub(crate) options: &'static [&'static str],
}

/// Every warning is an error, but not those that compilers do not give by `-Wall -Wextra -pedantic`.
const STRICT: [&str; 4] = ["-pedantic", "-Wall", "-Wextra", "-Werror"];

impl Compiler {
    /// What the machine lacks to compile with it and to load what comes of it, if anything.
    pub(crate) fn lacking(self) -> Option<String> {
        let error = self.library("int nothing(void);\nint nothing(void) { return 0; }\n").err()?;
        let first = error.lines().next().unwrap_or_default();
        Some(format!("`{} {}` does not work: {first}", self.program, self.options.join(" ")))
    }

    /// A program as a library, loaded.
    ///
    /// # Errors
    /// What the compiler or the loader says.
    pub(crate) fn library(self, text: &str) -> Result<Library, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = folder.path().join("program.so");
        self.compile(text, &["-shared", "-fPIC"], &path, &["-lm"])?;
        // SAFETY: loading the library runs nothing: it has no initialisers.
        #[allow(unsafe_code, reason = "compiled programs are loaded")]
        unsafe {
            Library::new(&path).map_err(|error| error.to_string())
        }
    }

    /// Compiles a program to a file.
    ///
    /// # Errors
    /// What the compiler says, warnings included.
    pub(crate) fn compile(
        self,
        text: &str,
        form: &[&str],
        to: &Path,
        libraries: &[&str],
    ) -> Result<(), String> {
        let from = to.with_extension("c");
        std::fs::write(&from, text).map_err(|error| error.to_string())?;
        let mut command = Command::new(self.program);
        command.args(STRICT).args(self.options).args(form).arg(&from).arg("-o").arg(to).args(libraries);
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Runs cases of the suite, a program for many of them; gives what is wrong.
    pub(crate) fn check(self, cases: &[Case]) -> Result<Vec<String>, String> {
        let halves = cases.split_at(cases.len() / 2);
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| self.check_programs(halves.0));
            let second = self.check_programs(halves.1);
            (first.join().map_err(|_| "a thread panicked".to_owned()), second)
        });
        Ok([first??, second?].concat())
    }

    fn check_programs(self, cases: &[Case]) -> Result<Vec<String>, String> {
        let mut failures = Vec::new();
        for cases in cases.chunks(60) {
            let kernels = cases
                .iter()
                .map(|case| tilewright_c::print_kernel(&case.kernel, tilewright_c::Linkage::External));
            let kernels = kernels.collect::<Result<Vec<String>, _>>().map_err(|error| error.to_string())?;
            let prelude = tilewright_c::prelude(kernels.iter().map(String::as_str));
            let library = self.library(&(prelude + &kernels.concat()))?;
            for case in cases {
                let found = run(&library, case)?;
                let found: Vec<&[u8]> = found.iter().map(AlignedBytes::bytes).collect();
                failures.extend(compare(case, &found).err());
            }
        }
        Ok(failures)
    }
}

type Entry = unsafe extern "C" fn(*const *mut u8, *const i64, i64, i64);

/// Runs the kernel of a case in two ranges of tasks, as threads would take them.
fn run(library: &Library, case: &Case) -> Result<Vec<AlignedBytes>, String> {
    let symbol = tilewright_c::symbol(&case.kernel.name);
    let mut buffers: Vec<AlignedBytes> = case.buffers.iter().map(|bytes| AlignedBytes::new(bytes)).collect();
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|buffer| buffer.bytes_mut().as_mut_ptr()).collect();
    // SAFETY: the function has the signature of kernels, and accesses no element outside the buffers of a legal kernel.
    #[allow(unsafe_code, reason = "compiled kernels are called")]
    unsafe {
        let entry = library.get::<Entry>(symbol.as_bytes()).map_err(|error| error.to_string())?;
        for tasks in [0..case.tasks / 2, case.tasks / 2..case.tasks] {
            entry(pointers.as_ptr(), case.sizes.as_ptr(), tasks.start, tasks.end);
        }
    }
    Ok(buffers)
}
