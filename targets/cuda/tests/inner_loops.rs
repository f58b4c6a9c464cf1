//! What the inner loops of products reach on GPUs: the table of `docs/gpu-inner-loops.md`, made of machine code.
//!
//! Needs LLVM, ptxas and nvdisasm (`cargo xtask setup` installs them); without them the tests count as ignored. `BLESS=1` rewrites the table.
//! What must hold is checked whatever their versions; the table is compared where they are those that it was made by.

mod common;
#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{disassemble, ptxas, wheel_program};
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
    /// Loads from memory and copies from there, and their bytes.
    memory_loads: usize,
    memory_bytes: usize,
    /// Bytes of the most loads from memory that no multiply-add comes between, so that they wait for memory together.
    at_once: usize,
}

impl HotLoop {
    fn of(operations: &[&str]) -> HotLoop {
        let count = |name: &str| operations.iter().filter(|op| op.starts_with(name)).count();
        // `LDGDEPBAR` ends a group of copies.
        let is_load = |op: &str| op.starts_with("LDG") && op != "LDGDEPBAR";
        let bytes = |op: &&str| match op {
            op if !is_load(op) => 0,
            op if op.contains(".128") => 16,
            op if op.contains(".64") => 8,
            _ => 4,
        };
        let runs = operations.split(|op| op.starts_with("FFMA"));
        HotLoop {
            instructions: operations.len(),
            multiply_adds: count("FFMA"),
            shared_loads: count("LDS"),
            memory_loads: operations.iter().filter(|op| is_load(op)).count(),
            memory_bytes: operations.iter().map(bytes).sum(),
            at_once: runs.map(|run| run.iter().map(bytes).sum()).max().unwrap_or(0),
        }
    }
}

/// The loop with the most multiply-adds in what nvdisasm prints, from a label to a branch back to it; all of it if none has any.
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
        // Some instructions are there to be never done.
        operations.push(if text.starts_with("@!PT") { "NOP" } else { operation });
        let begin = labels.iter().find(|(label, _)| text.contains(&format!("`({label})")));
        let Some(&(_, begin)) = begin.filter(|_| operation.starts_with("BRA")) else { continue };
        let own = HotLoop::of(&operations[begin..]);
        if own.multiply_adds > found.multiply_adds {
            found = own;
        }
    }
    if found.multiply_adds > 0 { found } else { HotLoop::of(&operations) }
}

/// What a function's kernel becomes.
struct Reached {
    usage: Usage,
    threads: u32,
    hot: HotLoop,
    /// Bytes of a task that are under way: what it copies ahead of what it computes, or else loads at once.
    under_way: u64,
    tasks: u64,
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

fn reach(tools: &Tools, subject: &Subject, gpu: &Gpu) -> Result<Reached, String> {
    let (scheduled, _) = by_rules(&subject.func, &gpu.to_string(), true);
    let options = FlattenOptions { lanes: Some(Gpu::LANES), ..FlattenOptions::PLAIN };
    let flat = flatten(&scheduled, &options).map_err(|error| error.to_string())?;
    // A sum of parts is a kernel after them.
    let reached = flat.into_iter().map(|flat| reach_kernel(tools, flat.kernel, gpu));
    let reached: Vec<Reached> = reached.collect::<Result<_, _>>()?;
    reached.into_iter().max_by_key(|kernel| kernel.hot.multiply_adds).ok_or_else(|| "no kernel".to_owned())
}

fn reach_kernel(tools: &Tools, kernel: Kernel, gpu: &Gpu) -> Result<Reached, String> {
    let kernels = [kernel];
    let module = compile(&kernels, gpu).map_err(|error| error.to_string())?;
    let [kernel] = kernels;
    let cubin = tools.ptxas.assemble(&module.ptx, gpu, &|| false).map_err(|error| error.to_string())?;
    let [usage] = &cubin.usage[..] else { return Err("no usage".into()) };
    if usage.stack + usage.spill_stores + usage.spill_loads > 0 {
        return Err(format!("{}: {usage:?}", kernel.name));
    }
    let groups = pending_groups(&kernel.body);
    let threads = kernel.threads.warps * kernel.threads.lanes;
    let hot = hot_loop(&disassemble(&tools.nvdisasm, &cubin.bytes)?);
    let under_way = match groups {
        0 => hot.at_once as u64 * u64::from(threads),
        // Of `groups + 1` versions of the shared arrays one is computed from.
        _ => u64::from(usage.shared) * groups / (groups + 1),
    };
    let tasks = kernel.grid.rounds.as_int().zip(kernel.grid.per_round.as_int());
    let tasks = tasks.map(|(rounds, tasks)| (rounds * tasks) as u64).ok_or("an open number of tasks")?;
    Ok(Reached { threads, hot, under_way, tasks, usage: usage.clone() })
}

/// What an inner loop is held to.
enum Bound {
    /// [`LEAST_PART`] of its instructions multiply and add.
    Instructions,
    /// It has as much of the matrix under way as memory moves until it answers, by 16 bytes a load; of what it loads at least one in so many
    /// bytes is of the matrix, and the rest of the vectors.
    Memory { one_in: u64 },
    /// Nothing.
    None,
}

/// A function, whose second input is a constant, and what its loop is held to.
struct Subject {
    name: String,
    func: Func,
    bound: Bound,
}

fn subjects() -> Vec<Subject> {
    let product = |[m, n, k]: [i64; 3], bound| Subject {
        name: format!("product {m} x {n} x {k}"),
        func: product_func(m, n, k),
        bound,
    };
    let convolution = |channels: i64, size: i64| Subject {
        name: format!("convolution {channels} to {channels}, 3 x 3, at {size} x {size}"),
        func: convolution(channels, channels, size),
        bound: Bound::None,
    };
    let mut subjects = vec![product([256, 256, 256], Bound::None)];
    subjects.extend([1024, 2048, 4096, 8192].map(|n| product([n, n, n], Bound::Instructions)));
    subjects.push(product([128, 768, 3072], Bound::None));
    // A warp loads a row of the matrix and all vectors; a team of warps as many rows as there are vectors, or more.
    let skinny = |rows: i64, columns: i64, one_in: i64| {
        product([rows, columns, 4096], Bound::Memory { one_in: one_in as u64 })
    };
    subjects.extend([1, 4].map(|rows| skinny(rows, 4096, 1 + rows)));
    subjects.extend(
        [[8, 4096], [8, 8192], [16, 4096], [16, 8192]].map(|[rows, columns]| skinny(rows, columns, 2)),
    );
    subjects.extend([(64, 56), (128, 28), (256, 14), (512, 7)].map(|(n, size)| convolution(n, size)));
    subjects
}

/// Bytes that memory moves for each multiprocessor until it answers.
fn bytes_until_memory_answers(gpu: &Gpu) -> u64 {
    let in_latency = f64::from(Gpu::LATENCY) / gpu.cycles_of_bytes(1.0);
    (in_latency / f64::from(gpu.multiprocessors)) as u64
}

const HEAD: &str = "\
| | | multiply-adds of the inner loop's instructions | multiply-adds a load from shared memory | bytes a load from memory | registers | shared bytes | tasks | warps at a time, of | bytes under way a multiprocessor |
|---|---|---|---|---|---|---|---|---|---|
";

fn line(tools: &Tools, subject: &Subject, gpu: &Gpu) -> Result<String, String> {
    let Reached { usage, threads, hot, under_way, tasks } = reach(tools, subject, gpu)?;
    let part = hot.multiply_adds as f64 / hot.instructions.max(1) as f64;
    let a_memory_load = hot.memory_bytes as f64 / hot.memory_loads.max(1) as f64;
    // A multiprocessor has no more tasks at a time than there are for it.
    let blocks = gpu.resident_blocks(threads, usage.registers, usage.shared);
    let own = u64::from(blocks).min(tasks.div_ceil(u64::from(gpu.multiprocessors)));
    let under_way = own * under_way;
    let under_way = match subject.bound {
        Bound::Memory { one_in } => under_way / one_in,
        Bound::Instructions | Bound::None => under_way,
    };
    let needed = bytes_until_memory_answers(gpu);
    match subject.bound {
        Bound::Instructions if part < LEAST_PART => {
            return Err(format!("{} of {}", hot.multiply_adds, hot.instructions));
        }
        Bound::Memory { .. } if a_memory_load < 16.0 || under_way < needed => {
            return Err(format!("{under_way} bytes under way of {needed}, {a_memory_load} a load"));
        }
        Bound::Instructions | Bound::Memory { .. } | Bound::None => {}
    }
    let (warps, most) = (blocks * threads / Gpu::LANES, gpu.threads_per_multiprocessor / Gpu::LANES);
    let a_load = hot.multiply_adds as f64 / hot.shared_loads.max(1) as f64;
    let a_load = if hot.shared_loads > 0 { format!("{a_load:.1}") } else { "none".to_owned() };
    Ok(format!(
        "| {} | {gpu} | {part:.3} ({} of {}) | {a_load} | {a_memory_load:.1} | {} | {} | {tasks} | {warps} of {most} | {under_way} |",
        subject.name, hot.multiply_adds, hot.instructions, usage.registers, usage.shared,
    ))
}

fn table(tools: &Tools) -> Result<String, String> {
    let mut table = HEAD.to_owned();
    for subject in subjects() {
        for gpu in ["sm_80", "sm_90"] {
            let gpu: Gpu = gpu.parse().map_err(|_| "no GPU".to_owned())?;
            let line = line(tools, &subject, &gpu);
            let line = line.map_err(|error| format!("{}, {gpu}: {error}", subject.name))?;
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
