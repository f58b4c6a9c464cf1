//! A model's run as a function, and the weights that it reads.

use std::fmt::Write;

use tilewright_machine::{Address, Base, Check, RunFunction, RunStep};

use crate::types::symbol;

/// The function that calls kernels one after the other, as [`RunFunction`] tells.
pub(crate) fn function(function: &RunFunction) -> String {
    let mut out = String::new();
    let parameters = "const void *const *inputs, void *const *outputs, void *workspace";
    let name = &function.symbol;
    let _ = writeln!(out, "int32_t {name}({parameters});\nint32_t {name}({parameters}) {{");
    let bases = bases(function);
    for (is_used, parameter) in [
        (bases.iter().any(|base| matches!(base, Base::Input(_))), "inputs"),
        (bases.iter().any(|base| matches!(base, Base::Output(_))), "outputs"),
        (bases.contains(&Base::Workspace), "workspace"),
    ] {
        if !is_used {
            let _ = writeln!(out, "  (void){parameter};");
        }
    }
    for check in &function.checks {
        if let Some(fails) = fails(check) {
            let _ = writeln!(out, "  if ({fails}) return 1;");
        }
    }
    function.steps.iter().for_each(|step| self::step(step, &function.weights, &mut out));
    out.push_str("  return 0;\n}\n");
    out
}

/// Every base that the function names.
fn bases(function: &RunFunction) -> Vec<Base> {
    let of_step = |step: &RunStep| match step {
        RunStep::Call { buffers, .. } => buffers.iter().map(|address| address.base).collect(),
        RunStep::Copy { from, to, .. } => vec![from.base, to.base],
    };
    let checked = function.checks.iter().map(|check| check.base);
    checked.chain(function.steps.iter().flat_map(of_step)).collect()
}

/// The condition under which an address is not what is demanded. Those of weights are.
fn fails(check: &Check) -> Option<String> {
    let pointer = match check.base {
        Base::Input(i) => format!("inputs[{i}]"),
        Base::Output(i) => format!("outputs[{i}]"),
        Base::Workspace => "workspace".to_owned(),
        Base::Weights => return None,
    };
    Some(match check.align {
        0 | 1 => format!("{pointer} == NULL"),
        align => format!("{pointer} == NULL || (uintptr_t){pointer} % {align} != 0"),
    })
}

fn step(step: &RunStep, weights: &str, out: &mut String) {
    match step {
        RunStep::Call { kernel, buffers, sizes, tasks } => {
            let name = symbol(kernel);
            let addresses: Vec<String> =
                buffers.iter().map(|address| format!("      {},\n", pointer(*address, weights))).collect();
            out.push_str("  {\n");
            if !addresses.is_empty() {
                let _ = writeln!(out, "    void *const buffers[] = {{\n{}    }};", addresses.concat());
            }
            if !sizes.is_empty() {
                let sizes: Vec<String> = sizes.iter().map(|size| format!("INT64_C({size})")).collect();
                let _ = writeln!(out, "    static const int64_t sizes[] = {{{}}};", sizes.join(", "));
            }
            let or_null = |is_empty: bool, name: &'static str| if is_empty { "NULL" } else { name };
            let (buffers, sizes) =
                (or_null(buffers.is_empty(), "buffers"), or_null(sizes.is_empty(), "sizes"));
            let _ = writeln!(out, "    {name}({buffers}, {sizes}, 0, {tasks});\n  }}");
        }
        RunStep::Copy { from, to, bytes } => {
            let [to, from] = [to, from].map(|address| pointer(*address, weights));
            let _ = writeln!(out, "  memcpy({to}, {from}, {bytes});");
        }
    }
}

/// An address as a pointer that a kernel takes. What kernels only read they read by pointers to constants; an integer on the way keeps compilers
/// from warning that a cast takes the `const` away.
fn pointer(address: Address, weights: &str) -> String {
    let base = match address.base {
        Base::Input(i) => format!("(uintptr_t)inputs[{i}]"),
        Base::Output(i) => format!("outputs[{i}]"),
        Base::Workspace => "workspace".to_owned(),
        Base::Weights => format!("(uintptr_t){weights}"),
    };
    match (address.offset, address.base) {
        (0, Base::Output(_) | Base::Workspace) => base,
        (0, Base::Input(_) | Base::Weights) => format!("(void *){base}"),
        (offset, _) => format!("(unsigned char *){base} + {offset}"),
    }
}

/// Weights as an array. Compilers read words of 64 bits several times faster than bytes, and align them for every element type.
///
/// Kernels read them by pointers to their own element types. No other type is ever stored there, so there is nothing that a
/// compiler could reorder.
pub(crate) fn weights(symbol: &str, bytes: &[u8]) -> String {
    let mut out = format!("static const uint64_t {symbol}[] = {{");
    for (i, chunk) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        out.push_str(if i % 5 == 0 { "\n  " } else { " " });
        let _ = write!(out, "0x{:x}u,", u64::from_le_bytes(word));
    }
    if bytes.is_empty() {
        // C has no arrays of nothing.
        out.push('0');
    }
    out.push_str("\n};\n\n");
    out
}
