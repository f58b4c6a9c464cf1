//! Kernels and runs printed as C, by the C compilers of the machine: they must give the evaluator's bits, and no warning.
//!
//! Needs `cc`, and for some of the tests `clang` or the sanitizer of undefined behaviour; where one is lacking, its tests count as ignored.

mod compiler;
#[path = "../../../../tools/conditional_tests.rs"]
mod conditional;
mod program;
mod scheduled;

use std::path::Path;
use std::process::ExitCode;

use compiler::Compiler;
use conditional::Conditional;
use tilewright_dtype::DType;
use tilewright_machine::CodegenError;
use tilewright_target_suite::build::KernelBuilder;
use tilewright_target_suite::kernels::Convolution;
use tilewright_target_suite::{Case, cases, eval};
use tilewright_te::BinaryOp;
use tilewright_te::kernel::{Access, Kernel, Threads, Type};

const CC: Compiler = Compiler { program: "cc", options: &["-std=c99", "-O2"] };
/// A dialect in which GCC contracts products and sums, if it may.
const DIALECT: Compiler = Compiler { program: "cc", options: &["-std=gnu11", "-O3", "-march=native"] };
const CLANG: Compiler = Compiler { program: "clang", options: &["-std=c99", "-O2", "-march=native"] };
/// Undefined behaviour ends the process, with a message.
const SANITIZED: Compiler = Compiler {
    program: "cc",
    options: &["-std=c99", "-O0", "-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"],
};

fn main() -> ExitCode {
    let [cc, dialect, clang, sanitized] = [CC, DIALECT, CLANG, SANITIZED].map(Compiler::lacking);
    type Test = fn() -> Result<(), String>;
    let tests: [(&str, Option<String>, Test); 10] = [
        ("every_case_gives_the_evaluators_bits", cc.clone(), every_case_gives_the_evaluators_bits),
        ("cases_do_in_the_dialect_of_gcc", dialect, cases_do_in_the_dialect_of_gcc),
        ("cases_do_by_clang", clang, cases_do_by_clang),
        ("cases_do_nothing_undefined", sanitized, cases_do_nothing_undefined),
        ("file_tests_give_the_evaluators_bits", cc.clone(), file_tests_give_the_evaluators_bits),
        (
            "scheduled_functions_give_the_evaluators_bits",
            cc.clone(),
            scheduled_functions_give_the_evaluators_bits,
        ),
        ("nests_carry_their_sums", cc.clone(), nests_carry_their_sums),
        ("a_run_calls_kernels_and_copies", cc.clone(), program::a_run_calls_kernels_and_copies),
        ("fast_math_is_refused", cc, fast_math_is_refused),
        ("what_c_cannot_say_is_refused", None, what_c_cannot_say_is_refused),
    ];
    conditional::run(tests.map(|(name, lacking, test)| Conditional::new(name, lacking, test)))
}

/// Runs every `step`-th case of the suite.
fn check_cases(compiler: Compiler, step: usize) -> Result<(), String> {
    check_all(compiler, &cases::all(true).into_iter().step_by(step).collect::<Vec<Case>>())
}

fn check_all(compiler: Compiler, cases: &[Case]) -> Result<(), String> {
    let failures = compiler.check(cases)?;
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!("{} of {} cases fail:\n{}", failures.len(), cases.len(), failures.join("\n"))),
    }
}

fn every_case_gives_the_evaluators_bits() -> Result<(), String> {
    check_cases(CC, 1)
}

fn cases_do_in_the_dialect_of_gcc() -> Result<(), String> {
    check_all(DIALECT, &[product_and_sum()])?;
    check_cases(DIALECT, 11)
}

/// `x * x + y`, which rounded once is 2^-24 and rounded twice is 0.
fn product_and_sum() -> Case {
    let mut b = KernelBuilder::new("product_and_sum");
    let [from, to] = [Access::Read, Access::Write].map(|access| b.buffer("data", DType::F32, access));
    let zero = b.index(0);
    let [x, y] = [0, 1].map(|offset| b.load(Type::scalar(DType::F32), from, zero, offset));
    let product = b.binary(BinaryOp::Mul, x, x);
    let sum = b.add(product, y);
    b.store(to, zero, 0, sum);
    let [x, y] = [1.0 + 2f32.powi(-12), -1.0 - 2f32.powi(-11)];
    let numbers = [x.to_le_bytes(), y.to_le_bytes()].concat();
    Case { kernel: b.finish(), buffers: vec![numbers, vec![1; 4]], sizes: vec![], tasks: 1, regions: vec![] }
}

fn cases_do_by_clang() -> Result<(), String> {
    check_all(CLANG, &[product_and_sum()])?;
    check_cases(CLANG, 9)
}

fn cases_do_nothing_undefined() -> Result<(), String> {
    check_all(SANITIZED, &file_cases()?)?;
    check_cases(SANITIZED, 5)
}

fn file_tests_give_the_evaluators_bits() -> Result<(), String> {
    let cases = file_cases()?;
    match cases.len() {
        ..8 => Err(format!("only {} kernels were run", cases.len())),
        _ => check_all(CC, &cases),
    }
}

/// The file tests of the suite whose kernels have one thread, on numbers of our own.
fn file_cases() -> Result<Vec<Case>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("filetests");
    let mut cases = Vec::new();
    for file in std::fs::read_dir(folder).map_err(|error| error.to_string())?.flatten() {
        let text = std::fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
        let Some(mut kernel) = text.split("\n----").next().and_then(|text| text.parse::<Kernel>().ok())
        else {
            continue;
        };
        if tilewright_c::check_kernel(&kernel).is_err() {
            continue;
        }
        let bytes = |n: usize, size: usize| (0..512 * size).map(|i| (i / size * 7 + n) as u8 % 64).collect();
        let buffers: Vec<Vec<u8>> =
            kernel.buffers.iter().enumerate().map(|(n, buffer)| bytes(n, buffer.dtype.bytes())).collect();
        let sizes = vec![5; kernel.sizes.len()];
        if eval::run(&kernel, &mut buffers.clone(), &sizes, 0..2).is_ok() {
            // Names are those of the files' subjects, some of which are alike.
            kernel.name = format!("{}_{}", kernel.name, cases.len());
            cases.push(Case { kernel, buffers, sizes, tasks: 2, regions: Vec::new() });
        }
    }
    Ok(cases)
}

fn scheduled_functions_give_the_evaluators_bits() -> Result<(), String> {
    check_all(CC, &scheduled::cases()?)
}

/// Five loops, which carry a tile of sums in the same variables.
fn nests_carry_their_sums() -> Result<(), String> {
    let shape = Convolution { c: 32, k: 16, h: 3, w: 4, r: 3, tile: 2, vectors: 2, lanes: 4 };
    let numbers =
        |n: usize| (0..n).flat_map(|i| ((i * 37 % 101) as f32 / 50.0 - 1.0).to_le_bytes()).collect();
    let buffers = shape.elements().map(numbers).to_vec();
    let case = Case { kernel: shape.kernel(), buffers, sizes: vec![], tasks: shape.tasks(), regions: vec![] };
    check_all(CC, &[case, loops_with_variables_of_their_own()])
}

/// Loops that must not take the variables of what they begin with: it is read after them, or by their next run, or each is given the
/// other's.
fn loops_with_variables_of_their_own() -> Case {
    let mut b = KernelBuilder::new("loops");
    let [from, to] = [Access::Read, Access::Write].map(|access| b.buffer("data", DType::F32, access));
    let (zero, n) = (b.index(0), b.size("n"));
    let [kept, repeated, left, right] =
        [0, 1, 2, 3].map(|offset| b.load(Type::scalar(DType::F32), from, zero, offset));
    let doubled = b.loop_(zero, n, &[kept], |b, _, sums| vec![b.add(sums[0], sums[0])]);
    b.store(to, zero, 0, doubled[0]);
    b.store(to, zero, 1, kept);
    let sums = b.loop_(zero, n, &[doubled[0]], |b, _, sums| {
        let inner = b.loop_(zero, n, &[repeated], |b, _, sums| vec![b.add(sums[0], sums[0])]);
        vec![b.add(sums[0], inner[0])]
    });
    b.store(to, zero, 2, sums[0]);
    let turned = b.loop_(zero, n, &[left, right], |_, _, pair| vec![pair[1], pair[0]]);
    b.store(to, zero, 3, turned[0]);
    b.store(to, zero, 4, turned[1]);
    let numbers = [1.0f32, 3.0, 5.0, 7.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    Case {
        kernel: b.finish(),
        buffers: vec![numbers, vec![1; 20]],
        sizes: vec![3],
        tasks: 1,
        regions: vec![],
    }
}

/// The prelude stops compilers that are told to be inexact.
fn fast_math_is_refused() -> Result<(), String> {
    let program = tilewright_c::prelude([]) + "int nothing(void);\nint nothing(void) { return 0; }\n";
    CC.library(&program).map(drop)?;
    let fast = Compiler { program: "cc", options: &["-std=c99", "-O2", "-ffast-math"] };
    match fast.library(&program) {
        Err(message) if message.contains("must not be compiled with -ffast-math") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

const THREADS: &str = "kernel many(x: write i64 align 8) tasks 1 threads 2 x 32 task %0 {
  %1: i64 = lane
  x[%1] = %1
}
";

fn what_c_cannot_say_is_refused() -> Result<(), String> {
    let kernel: Kernel = THREADS.parse().map_err(|error| format!("{error}"))?;
    let error = tilewright_c::check_kernel(&kernel).expect_err("no code");
    if error.to_string() != "c cannot compile kernel `many`: a task of several threads" {
        return Err(error.to_string());
    }
    let mut written = cases::all(true).remove(0).kernel;
    if written.threads != Threads::ONE {
        return Err("the first case has threads".to_owned());
    }
    written.buffers.iter_mut().for_each(|buffer| buffer.access = Access::Read);
    match tilewright_c::check_kernel(&written) {
        Err(CodegenError::InvalidKernel { .. }) => Ok(()),
        other => Err(format!("{other:?}")),
    }
}
