//! File tests: each file under `filetests` holds a kernel, what to do with it, and what comes of it.
//!
//! After the kernel and a line `----` comes a transcript: lines at the margin are commands, the indented ones after them are what
//! comes of it; `BLESS=1` rewrites these.
//!
//! - `run N tasks, NAME = V V .., ..` runs the kernel on buffers and sizes (`V*N` is a value repeated) by the evaluator, and gives the
//!   buffers that it writes. Every code generator must give the same bits on every machine that this one can be; those for
//!   processors are not asked for kernels with threads.
//! - `verify` gives what is wrong with the kernel.
//! - `compile MACHINE` gives what every code generator says, also one for a GPU (`sm_80`); its name is shown as `*`.
//!
//! A kernel that does not parse answers every command with where and why. One that does must print to the text it came from, but
//! for comments and space.

#[path = "../../../tools/golden_files.rs"]
mod golden_files;

use std::fmt::Write;

use tilewright_dtype::DType;
use tilewright_llvm::ir::{self, Isa};
use tilewright_machine::{CodegenKind, Machine, Target};
use tilewright_target_suite::{Case, CompileKernel, cases, check, eval};
use tilewright_te::kernel::{Access, Kernel, Threads};
use tilewright_te::text::ParseError;

/// The code generators of this build.
fn generators() -> Vec<(CodegenKind, CompileKernel)> {
    let mut all: Vec<(CodegenKind, CompileKernel)> =
        vec![(CodegenKind::Cranelift, tilewright_cranelift::compile_kernel)];
    if tilewright_llvm::is_available() {
        all.push((CodegenKind::Llvm, tilewright_llvm::compile_kernel));
    }
    all
}

/// Text without comments and space.
fn bare(text: &str) -> String {
    text.lines()
        .map(|line| {
            line.split("//").next().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
                + "\n"
        })
        .filter(|line| line != "\n")
        .collect()
}

fn parse(text: &str) -> Result<Kernel, String> {
    let kernel: Kernel = text.parse().map_err(|error: ParseError| error.to_string())?;
    assert_eq!(bare(&kernel.to_string()), bare(text), "the text form does not come back");
    Ok(kernel)
}

/// What comes of a command.
fn obey(kernel: &str, command: &str) -> String {
    let kernel = match parse(kernel) {
        Ok(kernel) => kernel,
        Err(error) => return error,
    };
    let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
    match word {
        "verify" => kernel.verify().map_or_else(|faults| faults.join("\n"), |()| "sound".into()),
        "compile" => compile(&kernel, rest),
        "run" => run(kernel, rest),
        _ => panic!("`{command}` is no command"),
    }
}

fn compile(kernel: &Kernel, machine: &str) -> String {
    if let Ok(gpu) = machine.parse() {
        let text = ir::translate(std::slice::from_ref(kernel), Isa::Gpu(&gpu));
        return text.map_or_else(|error| error.to_string().replace("llvm", "*"), |_| "compiles".into());
    }
    let of_objects = generators().into_iter().map(|(kind, compile)| {
        let target = Target::parse(machine, kind).expect("a known machine");
        (kind, compile(kernel, &target).map(drop))
    });
    let mut answers: Vec<String> = Vec::new();
    for (kind, answer) in of_objects.chain([(CodegenKind::C, tilewright_c::check_kernel(kernel))]) {
        let answer = answer.map_or_else(|error| error.to_string(), |()| "compiles".into());
        let answer = match answer.strip_prefix(kind.name()) {
            Some(rest) => format!("*{rest}"),
            None => answer,
        };
        if !answers.contains(&answer) {
            answers.push(answer);
        }
    }
    answers.join("\n")
}

fn run(kernel: Kernel, rest: &str) -> String {
    let mut parts = rest.split(", ");
    let tasks = parts.next().and_then(|part| part.strip_suffix(" tasks")).expect("`N tasks`");
    let given: Vec<(&str, &str)> =
        parts.map(|part| part.split_once(" =").expect("`NAME = V V ..`")).collect();
    let values = |name: &str| {
        let of = given.iter().find(|(given, _)| *given == name);
        of.unwrap_or_else(|| panic!("nothing is said of `{name}`")).1
    };
    let size = |name: &str| values(name).trim().parse::<i64>().expect("an integer");
    let case = Case {
        buffers: kernel.buffers.iter().map(|buffer| bytes(values(&buffer.name), buffer.dtype)).collect(),
        sizes: kernel.sizes.iter().map(|known| size(&known.name)).collect(),
        tasks: tasks.parse().expect("a number of tasks"),
        regions: Vec::new(),
        kernel,
    };
    if let Err(faults) = case.kernel.verify() {
        return faults.join("\n");
    }
    let mut after = case.buffers.clone();
    if let Err(error) = eval::run(&case.kernel, &mut after, &case.sizes, 0..case.tasks) {
        return format!("error: {error}");
    }
    let mut out = String::new();
    for (buffer, bytes) in case.kernel.buffers.iter().zip(&after) {
        if buffer.access != Access::Read {
            let elements =
                bytes.chunks_exact(buffer.dtype.bytes()).map(|element| eval::show(buffer.dtype, element));
            let elements: Vec<String> =
                elements.map(|element| element.split(' ').next().unwrap_or_default().to_string()).collect();
            writeln!(out, "{}: {}", buffer.name, elements.join(" ")).expect("a string");
        }
    }
    // Processors have no threads.
    let takes = case.kernel.threads == Threads::ONE && case.kernel.shared.is_empty();
    for (kind, compile) in generators().into_iter().filter(|_| takes) {
        for machine in ["cpu", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"] {
            let target = Target::parse(machine, kind).expect("a known machine");
            if Machine::host().runs_code_for(&target.machine) {
                let failures = check(std::slice::from_ref(&case), compile, &target);
                failures
                    .iter()
                    .for_each(|failure| writeln!(out, "{kind} for {machine}: {failure}").expect("a string"));
            }
        }
    }
    out
}

/// Elements of a buffer: `V V ..`, `V*N` for a value repeated.
fn bytes(text: &str, dtype: DType) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in text.split_whitespace() {
        let (value, count) = value.split_once('*').unwrap_or((value, "1"));
        let bits = match dtype.is_float() {
            true => eval::from_float(dtype, value.parse().expect("a number")),
            false => eval::from_int(dtype, value.parse().expect("an integer")),
        };
        for _ in 0..count.parse().expect("how often") {
            bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.bytes()]);
        }
    }
    bytes
}

/// The transcript with what comes of each of its commands now.
fn replay(kernel: &str, transcript: &str) -> String {
    let mut out = String::new();
    for command in transcript.lines().filter(|line| !line.starts_with(' ') && !line.is_empty()) {
        writeln!(out, "{command}").expect("a string");
        if !command.starts_with("//") {
            obey(kernel, command).lines().for_each(|line| writeln!(out, "  {line}").expect("a string"));
        }
    }
    out
}

#[test]
fn files() {
    golden_files::check("filetests", 10, replay);
}

/// Every kernel of the suite comes back from its text, and means the same: to the evaluator, and to a code generator bit for bit.
#[test]
fn kernels_of_the_suite_come_back_from_text() {
    let target = Target::parse("x86-64-v3", CodegenKind::Cranelift).expect("a known machine");
    for (i, case) in cases::all(true).into_iter().enumerate() {
        let text = case.kernel.to_string();
        let again: Kernel = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again.to_string(), text);
        let results = [&case.kernel, &again].map(|kernel| {
            let mut buffers = case.buffers.clone();
            eval::run(kernel, &mut buffers, &case.sizes, 0..case.tasks).map(|()| buffers)
        });
        assert_eq!(results[0], results[1], "{text}");
        if i % 37 == 0 {
            let objects =
                [&case.kernel, &again].map(|kernel| tilewright_cranelift::compile_kernel(kernel, &target));
            assert_eq!(objects[0], objects[1], "{text}");
        }
    }
}
