//! A whole program: kernels, weights, and the function that runs them.

use libloading::Library;
use tilewright_c::Linkage;
use tilewright_dtype::DType;
use tilewright_machine::{Address, Base, Check, RunFunction, RunStep};
use tilewright_target_suite::build::KernelBuilder;
use tilewright_te::kernel::{Access, Kernel, Type};

use crate::CC;

/// Numbers of the program's input, and of what it makes of each task.
const ROWS: i64 = 3;
const COLUMNS: i64 = 4;

/// `to[i] = from[i] + weight[i]` for the elements of a row, where each task is a row; the number of columns is an extent.
fn add_row(name: &str) -> Kernel {
    let mut b = KernelBuilder::new(name);
    let from = b.buffer("from", DType::F32, Access::Read);
    let weight = b.buffer("weight", DType::F32, Access::Read);
    let to = b.buffer("to", DType::F32, Access::Write);
    let (zero, columns, task) = (b.index(0), b.size("columns"), b.task());
    let start = b.binary(tilewright_te::BinaryOp::Mul, task, columns);
    b.loop_(zero, columns, &[], |b, column, _| {
        let at = b.add(start, column);
        let scalar = Type::scalar(DType::F32);
        let (x, w) = (b.load(scalar, from, at, 0), b.load(scalar, weight, column, 0));
        let sum = b.add(x, w);
        b.store(to, at, 0, sum);
        Vec::new()
    });
    b.finish()
}

/// Adds one row of weights, then another, and copies what is between to a second output.
fn function() -> RunFunction {
    let at = |base, offset| Address { base, offset };
    let bytes = (ROWS * COLUMNS) as u64 * 4;
    let call = |kernel: &str, buffers: [Address; 3]| RunStep::Call {
        kernel: kernel.to_owned(),
        buffers: buffers.to_vec(),
        sizes: vec![COLUMNS],
        tasks: ROWS,
    };
    let checked = |base, align| Check { base, align };
    RunFunction {
        symbol: "two_sums".to_owned(),
        weights: "two_sums_weights".to_owned(),
        checks: vec![
            checked(Base::Input(0), 4),
            checked(Base::Output(0), 4),
            checked(Base::Output(1), 1),
            checked(Base::Workspace, 64),
        ],
        steps: vec![
            call("first.0", [at(Base::Input(0), 0), at(Base::Weights, 0), at(Base::Workspace, 64)]),
            call("second.0", [at(Base::Workspace, 64), at(Base::Weights, 16), at(Base::Output(0), 0)]),
            RunStep::Copy { from: at(Base::Workspace, 64), to: at(Base::Output(1), 0), bytes },
        ],
    }
}

/// Floats that begin at a multiple of 64 bytes.
#[repr(align(64))]
struct Aligned([f32; 32]);

type Run = unsafe extern "C" fn(*const *const u8, *const *mut u8, *mut u8) -> i32;

/// Calls the function with addresses that are so many bytes from where they should be, or null.
fn call(
    library: &Library,
    input: *const u8,
    outputs: [*mut u8; 2],
    workspace: *mut u8,
) -> Result<i32, String> {
    // SAFETY: the function has this signature, and the memory is as large as its steps demand wherever it does not refuse an address.
    #[allow(unsafe_code, reason = "the compiled program is called")]
    unsafe {
        let run = library.get::<Run>(b"two_sums").map_err(|error| error.to_string())?;
        Ok(run([input].as_ptr(), outputs.as_ptr(), workspace))
    }
}

pub(crate) fn a_run_calls_kernels_and_copies() -> Result<(), String> {
    let kernels = ["first.0", "second.0"].map(|name| {
        tilewright_c::print_kernel(&add_row(name), Linkage::Internal).map_err(|error| error.to_string())
    });
    let kernels = kernels.into_iter().collect::<Result<Vec<String>, String>>()?;
    let weights: Vec<u8> = (1..=8u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    let run = tilewright_c::run_function(&function());
    let prelude = tilewright_c::prelude(kernels.iter().map(String::as_str).chain([run.as_str()]));
    let program = prelude + &kernels.concat() + &tilewright_c::weights("two_sums_weights", &weights) + &run;
    let library = CC.library(&program).map_err(|error| format!("{error}\n{program}"))?;

    let mut input = Aligned([0.0; 32]);
    (0..12).for_each(|i| input.0[i] = i as f32 * 0.5);
    let between: Vec<f32> = (0..12).map(|i| input.0[i] + (i % 4 + 1) as f32).collect();
    let after: Vec<f32> = (0..12).map(|i| between[i] + (i % 4 + 5) as f32).collect();
    let mut memory = [(); 3].map(|()| Aligned([-1.0; 32]));
    let from = input.0.as_ptr().cast::<u8>();
    let [sums, copy, workspace] = memory.each_mut().map(|part| part.0.as_mut_ptr().cast::<u8>());
    let null = std::ptr::null_mut();
    let refused = [
        call(&library, std::ptr::null(), [sums, copy], workspace)?,
        call(&library, from.wrapping_add(2), [sums, copy], workspace)?,
        call(&library, from, [null, copy], workspace)?,
        call(&library, from, [sums.wrapping_add(1), copy], workspace)?,
        call(&library, from, [sums, null], workspace)?,
        call(&library, from, [sums, copy], workspace.wrapping_add(32))?,
        call(&library, from, [sums, copy], null)?,
    ];
    if refused != [1; 7] || memory.iter().any(|part| part.0 != [-1.0; 32]) {
        return Err(format!("{refused:?}, or something was written"));
    }
    let [sums, copy, workspace] = memory.each_mut().map(|part| part.0.as_mut_ptr().cast::<u8>());
    let result = call(&library, from, [sums, copy], workspace)?;
    let [sums, copy, _] = &memory;
    match result == 0 && sums.0[..12] == after && copy.0[..12] == between && sums.0[12] == -1.0 {
        true => Ok(()),
        false => Err(format!("{result}: {:?} and {:?}", sums.0, copy.0)),
    }
}
