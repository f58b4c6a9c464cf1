//! What the inner loops of products reach on GPUs: the table of `docs/gpu-inner-loops.md`, made of machine code.
//!
//! Needs LLVM, ptxas and nvdisasm (`cargo xtask setup` installs them); without them the tests count as ignored. `BLESS=1` rewrites the table.
//! What must hold is checked whatever their versions; the table is compared where they are those that it was made by.

mod common;
#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use common::{ptxas, wheel_program};
use conditional::Conditional;
use tilewright_cuda::{Ptxas, Usage, compile};
use tilewright_machine::Gpu;
use tilewright_target_suite::by_rules::{by_rules, convolution};
use tilewright_target_suite::scheduled::product_func;
use tilewright_te::Func;
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::kernel::{Inst, Kernel};

/// The part of the inner loop's instructions that multiply and add, at least, in products from 1024 x 1024 x 1024 on.
const LEAST_PART: f64 = 0.85;

/// The programs of NVIDIA's that are used.
#[derive(Clone)]
struct Tools {
    ptxas: Ptxas,
    nvdisasm: PathBuf,
}

fn main() -> ExitCode {
    let tools = ptxas().zip(wheel_program("nvdisasm")).map(|(ptxas, nvdisasm)| Tools { ptxas, nvdisasm });
    let lacking = match (&tools, cfg!(feature = "llvm")) {
        (Some(_), true) => None,
        (None, _) => Some("no ptxas or no nvdisasm (installed by `cargo xtask setup`)".to_owned()),
        (Some(_), false) => Some("built without LLVM".to_owned()),
    };
    let test = move || tools.as_ref().map_or(Ok(()), the_table_is_as_the_code_is);
    conditional::run([Conditional::new("the_table_is_as_the_code_is", lacking, test)])
}

/// A loop of machine code.
#[derive(Default)]
struct HotLoop {
    instructions: usize,
    multiply_adds: usize,
    shared_loads: usize,
}

/// The loop with the most multiply-adds in what nvdisasm prints: from a label to a branch back to it.
fn hot_loop(listing: &str) -> HotLoop {
    let mut labels: Vec<(&str, usize)> = Vec::new();
    let mut operations: Vec<&str> = Vec::new();
    let mut found = HotLoop::default();
    for line in listing.lines().map(str::trim) {
        if let Some(label) = line.strip_suffix(':') {
            labels.push((label, operations.len()));
            continue;
        }
        let Some((_, text)) = line.split_once("*/").filter(|_| line.starts_with("/*")) else { continue };
        let mut words = text.split_whitespace().skip_while(|word| word.starts_with('@'));
        let Some(operation) = words.next() else { continue };
        operations.push(operation);
        let begin = labels.iter().find(|(label, _)| text.contains(&format!("`({label})")));
        let Some(&(_, begin)) = begin.filter(|_| operation.starts_with("BRA")) else { continue };
        let count = |name: &str| operations[begin..].iter().filter(|op| op.starts_with(name)).count();
        let own = HotLoop {
            instructions: operations.len() - begin,
            multiply_adds: count("FFMA"),
            shared_loads: count("LDS"),
        };
        if own.multiply_adds > found.multiply_adds {
            found = own;
        }
    }
    found
}

/// What a function's kernel becomes.
struct Reached {
    usage: Usage,
    threads: u32,
    hot: HotLoop,
    /// Bytes that a task copies ahead of what it computes.
    ahead: u64,
}

fn disassemble(tools: &Tools, cubin: &[u8]) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("kernel.cubin");
    std::fs::write(&path, cubin).map_err(|error| error.to_string())?;
    let output = Command::new(&tools.nvdisasm).arg("-c").arg(&path).output();
    let output = output.map_err(|error| format!("{}: {error}", tools.nvdisasm.display()))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|error| error.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Groups of copies that are pending while a task computes, from the waits of its kernel.
fn pending_groups(insts: &[Inst]) -> u64 {
    let of = |inst: &Inst| match inst {
        Inst::WaitCopies { pending } => u64::from(*pending) + 1,
        Inst::Loop { body, .. } => pending_groups(body),
        Inst::If { then_body, else_body, .. } => pending_groups(then_body).max(pending_groups(else_body)),
        _ => 0,
    };
    insts.iter().map(of).max().unwrap_or(0)
}

fn reach(tools: &Tools, func: &Func, gpu: &Gpu) -> Result<Reached, String> {
    let (scheduled, _) = by_rules(func, &gpu.to_string());
    let options = FlattenOptions { masked_access: None, buffer_align: 64, lanes: Some(Gpu::LANES) };
    let flat = flatten(&scheduled, &options).map_err(|error| error.to_string())?;
    let kernels: Vec<Kernel> = flat.into_iter().map(|flat| flat.kernel).collect();
    let [kernel] = &kernels[..] else { return Err(format!("{} kernels", kernels.len())) };
    let module = compile(&kernels, gpu).map_err(|error| error.to_string())?;
    let cubin = tools.ptxas.assemble(&module.ptx, gpu).map_err(|error| error.to_string())?;
    let [usage] = &cubin.usage[..] else { return Err("no usage".into()) };
    if usage.stack + usage.spill_stores + usage.spill_loads > 0 {
        return Err(format!("{}: {usage:?}", func.name));
    }
    let groups = pending_groups(&kernel.body);
    Ok(Reached {
        threads: kernel.threads.warps * kernel.threads.lanes,
        hot: hot_loop(&disassemble(tools, &cubin.bytes)?),
        // Of `groups + 1` versions of the shared arrays one is computed from.
        ahead: u64::from(usage.shared) * groups / (groups + 1),
        usage: usage.clone(),
    })
}

/// The functions, and whether their loops must reach [`LEAST_PART`].
fn subjects() -> Vec<(&'static str, Func, bool)> {
    vec![
        ("product 256 x 256 x 256", product_func(256, 256, 256), false),
        ("product 1024 x 1024 x 1024", product_func(1024, 1024, 1024), true),
        ("product 2048 x 2048 x 2048", product_func(2048, 2048, 2048), true),
        ("product 4096 x 4096 x 4096", product_func(4096, 4096, 4096), true),
        ("product 8192 x 8192 x 8192", product_func(8192, 8192, 8192), true),
        ("product 128 x 768 x 3072", product_func(128, 768, 3072), false),
        ("convolution 64 to 64, 3 x 3, at 56 x 56", convolution(64, 64, 56), false),
    ]
}

const HEAD: &str = "\
| | | multiply-adds of the inner loop's instructions | multiply-adds a load from shared memory | registers | shared bytes | warps at a time, of | bytes copied ahead a multiprocessor |
|---|---|---|---|---|---|---|---|
";

fn table(tools: &Tools) -> Result<String, String> {
    let mut table = HEAD.to_owned();
    for (name, func, is_large) in subjects() {
        for gpu in ["sm_80", "sm_90"] {
            let gpu: Gpu = gpu.parse().map_err(|_| "no GPU".to_owned())?;
            let Reached { usage, threads, hot, ahead } =
                reach(tools, &func, &gpu).map_err(|error| format!("{name}, {gpu}: {error}"))?;
            let part = hot.multiply_adds as f64 / hot.instructions.max(1) as f64;
            if is_large && part < LEAST_PART {
                return Err(format!("{name}, {gpu}: {} of {}", hot.multiply_adds, hot.instructions));
            }
            let blocks = gpu.resident_blocks(threads, usage.registers, usage.shared);
            let (warps, most) = (blocks * threads / Gpu::LANES, gpu.threads_per_multiprocessor / Gpu::LANES);
            let a_load = hot.multiply_adds as f64 / hot.shared_loads.max(1) as f64;
            let line = format!(
                "| {name} | {gpu} | {part:.3} ({} of {}) | {a_load:.1} | {} | {} | {warps} of {most} | {} |",
                hot.multiply_adds,
                hot.instructions,
                usage.registers,
                usage.shared,
                u64::from(blocks) * ahead,
            );
            writeln!(table, "{line}").map_err(|error| error.to_string())?;
        }
    }
    Ok(table)
}

fn the_table_is_as_the_code_is(tools: &Tools) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gpu-inner-loops.md");
    let page = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let (text, before) = page
        .split_once("| | |")
        .map_or((&page[..], String::new()), |(text, rest)| (text, format!("| | |{rest}")));
    let made_by =
        format!("Made by LLVM {} and ptxas {}.\n\n", tilewright_llvm::version(), tools.ptxas.version());
    let table = table(tools)?;
    let text = text.split("Made by LLVM").next().unwrap_or(text);
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(&path, format!("{text}{made_by}{table}")).map_err(|error| error.to_string());
    }
    match table == before || !page.contains(&made_by) {
        true => Ok(()),
        false => Err(format!("{} has another table than\n{table}BLESS=1 rewrites it", path.display())),
    }
}
