//! Functions as the rules for processors schedule them for C, kernel by kernel.

use tilewright_autosched::{Decisions, flatten_options, schedule};
use tilewright_dtype::DType;
use tilewright_machine::Target;
use tilewright_target_suite::{Case, by_rules};
use tilewright_te::flatten::flatten;
use tilewright_te::interp::evaluate_index;
use tilewright_te::math::expand_func;
use tilewright_te::{Buffer, Computation, Expr, Func};

/// What stands for every open extent: neither few vectors nor a multiple of any.
const OPEN: i64 = 21;

/// The kernels, each on numbers of its own.
pub(crate) fn cases() -> Result<Vec<Case>, String> {
    let target: Target = "x86-64-v3@c".parse().map_err(|error| format!("{error}"))?;
    let mut cases = Vec::new();
    for (_, func, is_constant) in by_rules::functions() {
        let computation = Computation { constant_inputs: vec![false, is_constant], ..Computation::of(func) };
        let scheduled = schedule(&computation, &target, &Decisions::default());
        let mut func = scheduled.map_err(|error| error.to_string())?.func;
        expand_func(&mut func);
        let kernels = flatten(&func, &flatten_options(&target)).map_err(|error| error.to_string())?;
        for flat in kernels {
            let mut kernel = flat.kernel;
            kernel.name = format!("{}_{}", kernel.name, cases.len());
            let index = |e| extent(e).ok_or("an extent that is none of the function's");
            let tasks = index(&kernel.grid.rounds)? * index(&kernel.grid.per_round)?;
            let buffers = flat.buffers.iter().map(|buffer| numbers(&func, *buffer)).collect::<Option<_>>();
            let buffers = buffers.ok_or_else(|| format!("{}: buffers of other types", kernel.name))?;
            let sizes = vec![OPEN; kernel.sizes.len()];
            cases.push(Case { kernel, buffers, sizes, tasks, regions: Vec::new() });
        }
    }
    Ok(cases)
}

fn extent(expr: &Expr) -> Option<i64> {
    evaluate_index(expr, &|_| Some(OPEN)).ok()
}

/// Contents of a buffer of binary32.
fn numbers(func: &Func, buffer: Buffer) -> Option<Vec<u8>> {
    let data = &func.buffers[buffer];
    // A guarded load may read the first element of a buffer that has none.
    let elements = data.shape.iter().map(extent).product::<Option<i64>>()?.max(1);
    let number = |i: i64| ((i * 37 + i64::from(buffer.as_u32())) % 101) as f32 / 50.0 - 1.0;
    (data.dtype == DType::F32).then(|| (0..elements).flat_map(|i| number(i).to_le_bytes()).collect())
}
