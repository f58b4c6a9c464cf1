//! Kernels as PTX that ptxas takes, for two generations, and what ptxas says of them.
//!
//! Needs LLVM and ptxas (`cargo xtask setup` installs both); without them the tests count as ignored.

mod common;
#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;

use common::{disassemble, ptxas, wheel_program};
use conditional::Conditional;
use tilewright_cuda::{Cubin, Ptxas, Usage, compile};
use tilewright_machine::Gpu;
use tilewright_target_suite::by_rules::{by_rules, functions};
use tilewright_target_suite::{cases, scheduled};
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::kernel::Kernel;

fn main() -> ExitCode {
    let ptxas = ptxas();
    let lacking = match (&ptxas, wheel_program("nvdisasm"), cfg!(feature = "llvm")) {
        (Some(_), Some(_), true) => None,
        (None, ..) | (_, None, _) => {
            Some("no ptxas or no nvdisasm (installed by `cargo xtask setup`)".to_owned())
        }
        (Some(_), Some(_), false) => Some("built without LLVM".to_owned()),
    };
    type Test = fn(&Ptxas) -> Result<(), String>;
    let tests: [(&str, Test); 7] = [
        ("the_suite_assembles", the_suite_assembles),
        ("what_is_unwritten_is_found", what_is_unwritten_is_found),
        ("file_tests_assemble", file_tests_assemble),
        ("products_stay_in_registers", products_stay_in_registers),
        ("threads_work_together", threads_work_together),
        ("schedules_by_rules_assemble", schedules_by_rules_assemble),
        ("what_is_no_module_is_refused", what_is_no_module_is_refused),
    ];
    conditional::run(tests.map(|(name, test)| {
        let ptxas = ptxas.clone();
        Conditional::new(name, lacking.clone(), move || ptxas.as_ref().map_or(Ok(()), test))
    }))
}

/// The generations that artifacts are for.
fn gpus() -> [Gpu; 2] {
    ["sm_80", "sm_90"].map(|name| name.parse().expect("a GPU"))
}

/// Compiles and assembles; the same each time, and nothing is called.
fn assemble(ptxas: &Ptxas, kernels: &[Kernel], gpu: &Gpu) -> Result<(String, Cubin), String> {
    let module = compile(kernels, gpu).map_err(|error| error.to_string())?;
    if compile(kernels, gpu).as_ref() != Ok(&module) {
        return Err("compiled again, the text is another".into());
    }
    if let Some(line) =
        module.ptx.lines().find(|line| line.contains(".extern .func") || line.contains("call.uni"))
    {
        return Err(format!("calls a function: {line}"));
    }
    let cubin = ptxas.assemble(&module.ptx, gpu, &|| false).map_err(|error| error.to_string())?;
    match cubin.usage.len() == kernels.len() {
        true => Ok((module.ptx, cubin)),
        false => Err(format!("{} of {} kernels in the cubin", cubin.usage.len(), kernels.len())),
    }
}

/// Every operation on every type, whatever its lanes; of the newer generation a part. No register is read that nothing writes.
fn the_suite_assembles(ptxas: &Ptxas) -> Result<(), String> {
    let kernels: Vec<Kernel> = cases::all(true).into_iter().map(|case| case.kernel).collect();
    let [older, newer] = gpus();
    let part: Vec<Kernel> = kernels.iter().step_by(7).cloned().collect();
    // Few at a time: ptxas is given some seconds for a module, on slow machines too.
    let modules =
        kernels.chunks(25).map(|some| (some, &older)).chain(part.chunks(25).map(|some| (some, &newer)));
    let modules = Mutex::new(modules);
    let assemble_all = || {
        loop {
            let Some((some, gpu)) = modules.lock().expect("no holder panics").next() else { return Ok(()) };
            registers_are_written(&assemble(ptxas, some, gpu)?.1)?;
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(assemble_all)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a failure is returned"))
    })
}

/// ptxas has lost instructions that unpack 16-bit elements: what they should have written was read all the same.
fn registers_are_written(cubin: &Cubin) -> Result<(), String> {
    let nvdisasm = wheel_program("nvdisasm").ok_or("no nvdisasm beside the wheel's ptxas")?;
    let listing = disassemble(&nvdisasm, &cubin.bytes)?;
    for function in listing.split("//--------------------- .text.").skip(1) {
        let unwritten = unwritten(function);
        if !unwritten.is_empty() {
            let name = function.split_whitespace().next().unwrap_or_default();
            return Err(format!("{name}: nothing writes {unwritten:?}"));
        }
    }
    Ok(())
}

fn what_is_unwritten_is_found(_: &Ptxas) -> Result<(), String> {
    // What ptxas 13.0 made of `constant_i16x8`, in which only 36 to 39 are written.
    let listing = "/*00c0*/ LDG.E.128.CONSTANT R36, desc[UR34][R2.64] ;\n/*01c0*/ @!P0 IMAD.MOV.U32 R94, RZ, RZ, R39 ;
        /*01f0*/ PRMT R32, R95, 0xbb32, RZ ;\n/*0200*/ PRMT R33, R94.reuse, 0x21, R40 ;\n/*0210*/ STG.E desc[UR4][R92.64+0x10], R1 ;";
    match unwritten(listing).into_iter().collect::<Vec<_>>()[..] {
        [2, 92, 95] => Ok(()),
        ref others => Err(format!("{others:?}")),
    }
}

/// Registers of a function that an instruction reads and none writes.
fn unwritten(listing: &str) -> BTreeSet<u32> {
    let (mut written, mut read) = (BTreeSet::from([STACK]), BTreeSet::new());
    for line in listing.lines().map(str::trim).filter(|line| line.starts_with("/*")) {
        let Some((_, text)) = line.split_once("*/") else { continue };
        let text = text.split(';').next().unwrap_or_default().trim();
        let unguarded =
            if text.starts_with('@') { text.split_once(' ').map_or("", |(_, rest)| rest) } else { text };
        let Some((operation, operands)) = unguarded.trim().split_once(' ') else { continue };
        let operands: Vec<&str> = operands.split(',').map(str::trim).collect();
        let is_predicate = |operand: &&&str| operand.starts_with('P') || operand.starts_with("UP");
        let first = operands.iter().take_while(is_predicate).count();
        let target = operands.get(first).and_then(|operand| operand.strip_prefix('R')?.parse::<u32>().ok());
        if let Some(target) = target {
            // Of wide results the most registers that there may be.
            let is_wide = ["64", ".128", "WIDE", "MMA"].iter().any(|word| operation.contains(word))
                || operation.starts_with('D');
            written.extend(target..target + if is_wide { 4 } else { 1 });
        }
        let sources = operands.iter().skip(first + usize::from(target.is_some()));
        let is_used = |n: &usize| !operation.starts_with("PRMT") || takes_bytes(&operands, *n);
        let used = sources.enumerate().filter(|(n, _)| is_used(n));
        read.extend(used.flat_map(|(_, operand)| registers(operand)));
    }
    read.difference(&written).copied().collect()
}

/// Whether `PRMT to, a, selector, b` takes bytes of the first or third of its sources: 0 to 3 are those of `a`, 4 to 7 those of `b`.
fn takes_bytes(operands: &[&str], source: usize) -> bool {
    let selector = operands.get(2).and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    let of_b = |selector: u32| (0..4).map(move |n| selector >> (4 * n) & 4 != 0);
    match (selector, source) {
        (Some(selector), 0) => of_b(selector).any(|is_b| !is_b),
        (Some(selector), 2) => of_b(selector).any(|is_b| is_b),
        _ => true,
    }
}

/// The register that holds the stack's address from the beginning.
const STACK: u32 = 1;

/// The registers that an operand such as `desc[UR4][R92.64+-0x10]` names.
fn registers(operand: &str) -> Vec<u32> {
    let words = operand.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(|word| word.strip_prefix('R')?.parse().ok()).collect()
}

/// The kernels of the suite's file tests that a GPU takes: with threads, copies and shuffles.
fn file_tests_assemble(ptxas: &Ptxas) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../suite/filetests");
    for gpu in gpus() {
        let (mut assembled, mut threads) = (0, 0);
        for file in std::fs::read_dir(&folder).map_err(|error| error.to_string())?.flatten() {
            let text = std::fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
            let kernel = text.split("\n----").next().and_then(|text| text.parse::<Kernel>().ok());
            let Some(kernel) = kernel.filter(|kernel| compile(std::slice::from_ref(kernel), &gpu).is_ok())
            else {
                continue;
            };
            assemble(ptxas, std::slice::from_ref(&kernel), &gpu)
                .map_err(|error| format!("{}: {error}", file.path().display()))?;
            assembled += 1;
            threads += usize::from(kernel.threads.lanes == Gpu::LANES);
        }
        if assembled < 12 || threads < 2 {
            return Err(format!("{gpu}: only {assembled} kernels, {threads} with threads"));
        }
    }
    Ok(())
}

/// Tiles of products are registers: no local memory, nothing spilled, operands by vectors of four.
fn products_stay_in_registers(ptxas: &Ptxas) -> Result<(), String> {
    for gpu in gpus() {
        let (ptx, cubin) = assemble(ptxas, &scheduled::product(1024, 1024, 1024), &gpu)?;
        for usage in &cubin.usage {
            if usage.stack + usage.spill_stores + usage.spill_loads > 0 {
                return Err(format!("{gpu}: {usage:?}"));
            }
            // While one block waits for memory another has work.
            let resident = gpu.resident_blocks(256, usage.registers, usage.shared);
            if resident < 2 {
                return Err(format!("{gpu}: {resident} blocks at the same time by {usage:?}"));
            }
        }
        let count = |what: &str| ptx.matches(what).count();
        let (fmas, loads) = (count("fma.rn.f32"), count("ld.shared.v4"));
        if fmas != 64 * 8 || loads != 4 * 8 || count("ld.shared.f32") + count("ld.shared.b32") != 0 {
            return Err(format!("{gpu}: {fmas} multiply-adds and {loads} loads of vectors in\n{ptx}"));
        }
    }
    Ok(())
}

/// What the rules make, odd and open extents included: nothing is spilled, and nothing lies in local memory.
fn schedules_by_rules_assemble(ptxas: &Ptxas) -> Result<(), String> {
    for gpu in gpus() {
        for (rule, func, is_constant) in functions() {
            let (scheduled, _) = by_rules(&func, &gpu.to_string(), is_constant);
            let options = FlattenOptions { lanes: Some(Gpu::LANES), ..FlattenOptions::PLAIN };
            let flat = flatten(&scheduled, &options).map_err(|error| error.to_string())?;
            let kernels: Vec<Kernel> = flat.into_iter().map(|flat| flat.kernel).collect();
            let (_, cubin) = assemble(ptxas, &kernels, &gpu)?;
            let in_memory = |usage: &&Usage| usage.stack + usage.spill_stores + usage.spill_loads > 0;
            if let Some(usage) = cubin.usage.iter().find(in_memory) {
                return Err(format!("{gpu}, {rule}: {usage:?}"));
            }
        }
    }
    Ok(())
}

fn threads_work_together(ptxas: &Ptxas) -> Result<(), String> {
    for gpu in gpus() {
        let (ptx, _) = assemble(ptxas, &scheduled::row_sums(100, 960), &gpu)?;
        for what in ["shfl.sync.idx.b32", "bar.sync", ".reqntid 32, 4, 1"] {
            if !ptx.contains(what) {
                return Err(format!("{gpu}: no {what} in\n{ptx}"));
            }
        }
    }
    Ok(())
}

fn what_is_no_module_is_refused(ptxas: &Ptxas) -> Result<(), String> {
    let kernel = &cases::all(true)[0].kernel;
    let twice = compile(&[kernel.clone(), kernel.clone()], &Gpu::ALL[0]).expect_err("one name").to_string();
    if !twice.ends_with("another kernel of the module has its name") {
        return Err(twice);
    }
    let error = ptxas.assemble("this is no PTX", &Gpu::ALL[0], &|| false).expect_err("no cubin").to_string();
    match error.contains("for sm_80 failed (exit status") && error.contains("module.ptx, line 1") {
        true => Ok(()),
        false => Err(error),
    }
}
