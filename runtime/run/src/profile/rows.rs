//! Times of instructions summed up to rows: by node, by kernel or by type of operator.

use std::collections::BTreeMap;
use std::ops::Range;

use tilewright_runtime::Program;
use tilewright_runtime::artifact::StepDef;
use tilewright_runtime::plan::{BufferId, Plan, PlanOp, Space};

use super::measure::{Amount, Profile};

/// What a row of the table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "remote", derive(serde::Serialize, serde::Deserialize))]
pub enum By {
    /// Nodes of the model that are computed together.
    Node,
    /// A kernel, wherever it is called.
    Kernel,
    /// A type of operator: that of the node which decides how its group is computed.
    Op,
}

/// What belongs together: figures of one run.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "remote", derive(serde::Serialize, serde::Deserialize))]
pub struct Row {
    /// Time, in milliseconds.
    pub ms: f64,
    /// What of it the device's events told, in milliseconds.
    pub device_ms: f64,
    /// Part of the time of all rows.
    pub share: f64,
    /// Instructions run.
    pub calls: f64,
    /// Arithmetic operations, where known.
    pub flops: Option<f64>,
    /// Bytes read and written, where known.
    pub bytes: Option<f64>,
    /// The least time that these take on the machine, in milliseconds.
    pub least_ms: Option<f64>,
    /// The time on one core of the target by the compiler's model, in milliseconds; known where that of every kernel is.
    pub estimate_ms: Option<f64>,
    /// Operators, the one first that decides how the others are computed.
    pub operators: Vec<String>,
    /// Kernels, or what kinds of instruction they are.
    pub kernels: Vec<String>,
    /// Rules that scheduled them.
    pub rules: Vec<String>,
    /// Layouts of the results.
    pub layouts: Vec<String>,
    /// Nodes of the model, those together that are computed together.
    pub nodes: Vec<String>,
    /// The first instruction.
    pub first: usize,
}

impl Row {
    /// Operations a second, in units of 10^9.
    pub fn gflops(&self) -> Option<f64> {
        rate(self.flops, self.ms)
    }

    /// Bytes a second, in units of 10^9.
    pub fn gbps(&self) -> Option<f64> {
        rate(self.bytes, self.ms)
    }

    /// The least time as a part of the time taken.
    pub fn roofline(&self) -> Option<f64> {
        self.least_ms.filter(|_| self.ms > 0.0).map(|least| least / self.ms)
    }
}

fn rate(amount: Option<f64>, ms: f64) -> Option<f64> {
    amount.filter(|&amount| amount > 0.0 && ms > 0.0).map(|amount| amount / ms / 1e6)
}

/// The least seconds that so many operations on so many bytes take on the host.
pub type LeastSeconds<'a> = &'a dyn Fn(f64, f64) -> f64;

/// The rows of a profile that took time, the longest first. Without `least` nothing is said of how fast they could be.
pub fn rows(program: &Program, profile: &Profile, least: Option<LeastSeconds<'_>>, by: By) -> Vec<Row> {
    let mut rows = grouped(program, profile, least, by).rows;
    rows.retain(|row| row.ms > 0.0);
    rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    rows
}

/// Rows in the order of the plan.
pub struct Grouped {
    /// The rows.
    pub rows: Vec<Row>,
    /// The row of each instruction.
    pub row_of: Vec<usize>,
}

/// Sums up instructions and steps, as [`rows`], but for all rows.
pub fn grouped(program: &Program, profile: &Profile, least: Option<LeastSeconds<'_>>, by: By) -> Grouped {
    let (plan, steps) = (program.plan(), program.steps());
    let mut step_of: Vec<Option<usize>> = vec![None; plan.instrs.len()];
    for (step, def) in steps.iter().enumerate() {
        step_of[instrs(plan, def)].fill(Some(step));
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut estimates: Vec<Estimate> = Vec::new();
    let mut row_of = Vec::with_capacity(plan.instrs.len());
    for (index, instr) in plan.instrs.iter().enumerate() {
        let kernel = kind(plan, &instr.op);
        let operators = step_of[index].map_or(&[][..], |step| &steps[step].operators);
        let nodes = plan.text(instr.provenance);
        let key = match by {
            // What moves between host and device is none of the time of the node that reads it.
            By::Node | By::Op if is_transfer(plan, &instr.op) => kernel,
            By::Node if nodes.is_empty() => kernel,
            By::Node => nodes,
            By::Kernel => kernel,
            By::Op => operators.first().map_or(kernel, String::as_str),
        };
        let at = *known.entry(key).or_insert_with(|| {
            rows.push(Row { first: index, ..Row::default() });
            estimates.push(Estimate::default());
            rows.len() - 1
        });
        row_of.push(at);
        let row = &mut rows[at];
        row.ms += profile.instr_ms[index];
        row.device_ms += profile.device_ms.as_ref().map_or(0.0, |times| times[index]);
        row.calls += profile.calls[index];
        add(&mut row.kernels, [kernel]);
        add(&mut row.nodes, Some(nodes).filter(|names| !names.is_empty()));
        add(&mut row.operators, operators.iter().map(String::as_str));
        if let PlanOp::Call { kernel, .. } = &instr.op {
            let schedule = program.schedules().get(kernel.index());
            estimates[at].add(profile.calls[index], schedule.and_then(|schedule| schedule.estimate_ns));
            if let Some(schedule) = schedule {
                add(&mut row.rules, schedule.rules.split(' ').filter(|rule| !rule.is_empty()));
                add(&mut row.layouts, schedule.layout.split(' ').filter(|layout| !layout.is_empty()));
            }
        }
    }
    for (def, amount) in steps.iter().zip(&profile.steps) {
        // The work of several kernels counts for the one that takes longest.
        let own = instrs(plan, def).filter(|&index| !is_transfer(plan, &plan.instrs[index].op));
        let longest = own.max_by(|&a, &b| profile.instr_ms[a].total_cmp(&profile.instr_ms[b]));
        if let Some(index) = longest.filter(|_| amount.times > 0.0) {
            // The least times are the host's.
            let is_host = |op: &PlanOp| !matches!(op, PlanOp::Call { kernel, .. } if plan.kernels[kernel.index()].space == Space::Device);
            let least = least.filter(|_| is_host(&plan.instrs[index].op));
            count(&mut rows[row_of[index]], amount, least);
        }
    }
    for (row, estimate) in rows.iter_mut().zip(&estimates) {
        row.estimate_ms = estimate.ms();
    }
    let total: f64 = rows.iter().map(|row| row.ms).sum();
    rows.iter_mut().for_each(|row| row.share = row.ms / total);
    Grouped { rows, row_of }
}

/// What the compiler expects of the kernels of a row.
#[derive(Default)]
struct Estimate {
    ns: f64,
    calls: f64,
    is_unknown: bool,
}

impl Estimate {
    /// Adds so many calls of a kernel.
    fn add(&mut self, calls: f64, ns: Option<u64>) {
        if calls > 0.0 {
            self.calls += calls;
            self.ns += calls * ns.unwrap_or(0) as f64;
            self.is_unknown |= ns.is_none();
        }
    }

    fn ms(&self) -> Option<f64> {
        (self.calls > 0.0 && !self.is_unknown).then_some(self.ns / 1e6)
    }
}

/// Whether an instruction copies from one memory to another.
fn is_transfer(plan: &Plan, op: &PlanOp) -> bool {
    let space = |id: &BufferId| plan.buffers[id.index()].space;
    matches!(op, PlanOp::Copy { from, to } if space(from) != space(to))
}

/// The instructions of a step, as far as the plan has them.
fn instrs(plan: &Plan, step: &StepDef) -> Range<usize> {
    let within = |index: u32| (index as usize).min(plan.instrs.len());
    let start = within(step.instrs.start);
    start..within(step.instrs.end).max(start)
}

/// Adds what a step amounts to.
fn count(row: &mut Row, amount: &Amount, least: Option<LeastSeconds<'_>>) {
    let sum = |to: &mut Option<f64>, more: Option<f64>| {
        if let Some(more) = more {
            *to = Some(to.unwrap_or(0.0) + more);
        }
    };
    sum(&mut row.flops, amount.flops);
    sum(&mut row.bytes, amount.bytes);
    let least = amount.flops.zip(amount.bytes).zip(least).map(|((flops, bytes), least)| {
        amount.times * 1e3 * least(flops / amount.times, bytes / amount.times)
    });
    sum(&mut row.least_ms, least);
}

fn add<'a>(list: &mut Vec<String>, items: impl IntoIterator<Item = &'a str>) {
    for item in items {
        if !list.iter().any(|known| known == item) {
            list.push(item.to_string());
        }
    }
}

/// The kernel, or what kind of instruction it is.
pub fn kind<'p>(plan: &'p Plan, op: &PlanOp) -> &'p str {
    match op {
        PlanOp::Call { kernel, .. } => &plan.kernels[kernel.index()].name,
        PlanOp::Host { .. } => "host operator",
        PlanOp::Copy { .. } | PlanOp::CopyValue { .. } => "copy",
        PlanOp::Alloc { .. } | PlanOp::Grow { .. } | PlanOp::Free { .. } => "memory",
        PlanOp::ReadSize { .. }
        | PlanOp::ReadDim { .. }
        | PlanOp::ScaleSize { .. }
        | PlanOp::WriteSize { .. }
        | PlanOp::SetSize { .. }
        | PlanOp::Guard { .. }
        | PlanOp::BranchIfZero { .. }
        | PlanOp::Jump { .. } => "control",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_the_time() {
        let row = Row { ms: 2.0, flops: Some(4e9), bytes: Some(1e6), least_ms: Some(0.5), ..Row::default() };
        assert_eq!((row.gflops(), row.gbps(), row.roofline()), (Some(2000.0), Some(0.5), Some(0.25)));
        assert_eq!(Row::default().gflops(), None);
    }

    #[test]
    fn an_estimate_is_of_all_kernels_that_run() {
        let of = |calls: &[(f64, Option<u64>)]| {
            let mut estimate = Estimate::default();
            calls.iter().for_each(|&(calls, ns)| estimate.add(calls, ns));
            estimate.ms()
        };
        assert_eq!(of(&[(2.0, Some(1_500_000)), (2.0, Some(0)), (0.0, None)]), Some(3.0));
        assert_eq!((of(&[(1.0, Some(1)), (1.0, None)]), of(&[])), (None, None));
    }
}
