//! Where the time of a run goes: `tilewright bench --profile`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tilewright::runtime::plan::{Instr, Op, Plan};
use tilewright::runtime::{Inspect, Observer};

/// Sums the time of each instruction over some runs.
pub(crate) struct Profiler {
    spent: Vec<Duration>,
    begun: Instant,
}

impl Profiler {
    /// A profiler of runs of this plan.
    pub(crate) fn new(plan: &Plan) -> Profiler {
        Profiler { spent: vec![Duration::ZERO; plan.instrs.len()], begun: Instant::now() }
    }

    /// The instructions that took time, the longest first; times are means over `runs`.
    pub(crate) fn rows(&self, plan: &Plan, runs: usize) -> Vec<Row> {
        let mut rows: Vec<Row> =
            plan.instrs.iter().zip(&self.spent).map(|(i, t)| row(plan, i, *t, runs)).collect();
        rows.retain(|row| row.ms > 0.0);
        rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        rows
    }
}

impl Observer for Profiler {
    fn begin(&mut self, _index: usize, _instr: &Instr) {
        self.begun = Instant::now();
    }

    fn end(&mut self, index: usize, _instr: &Instr, _state: &Inspect<'_>) {
        self.spent[index] += self.begun.elapsed();
    }
}

/// One instruction of the plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// Mean time of a run spent in it, in milliseconds.
    pub(crate) ms: f64,
    /// The kernel, or what kind of instruction it is.
    pub(crate) kernel: String,
    /// The nodes of the model it comes from.
    pub(crate) nodes: String,
}

impl Row {
    /// For other programs.
    pub(crate) fn json(&self) -> Value {
        json!({ "ms": self.ms, "kernel": self.kernel, "nodes": self.nodes })
    }

    /// Reads what [`Row::json`] wrote.
    pub(crate) fn parse(value: &Value) -> Option<Row> {
        let text = |key: &str| Some(value.get(key)?.as_str()?.to_string());
        Some(Row { ms: value.get("ms")?.as_f64()?, kernel: text("kernel")?, nodes: text("nodes")? })
    }
}

fn row(plan: &Plan, instr: &Instr, spent: Duration, runs: usize) -> Row {
    let kernel = match &instr.op {
        Op::Call { kernel, .. } => plan.kernels[kernel.index()].name.as_str(),
        Op::Host { .. } => "host operator",
        Op::Copy { .. } | Op::CopyValue { .. } => "copy",
        Op::Alloc { .. } | Op::Grow { .. } | Op::Free { .. } => "memory",
        Op::ReadSize { .. }
        | Op::ReadDim { .. }
        | Op::ScaleSize { .. }
        | Op::WriteSize { .. }
        | Op::SetSize { .. }
        | Op::Guard { .. }
        | Op::BranchIfZero { .. }
        | Op::Jump { .. } => "control",
    };
    let ms = spent.as_secs_f64() * 1e3 / runs.max(1) as f64;
    Row { ms, kernel: kernel.to_string(), nodes: plan.text(instr.provenance).to_string() }
}

/// A table of the rows that matter, for people.
pub(crate) fn text(rows: &[Row]) -> String {
    /// Rows worth a line.
    const SHOWN: usize = 25;
    /// Characters of the nodes' names that fit on a line.
    const WIDTH: usize = 80;
    let total: f64 = rows.iter().map(|row| row.ms).sum();
    let mut text = String::new();
    for Row { ms, kernel, nodes } in rows.iter().take(SHOWN) {
        let nodes = match nodes.char_indices().nth(WIDTH) {
            Some((end, _)) => format!("{}..", &nodes[..end]),
            None => nodes.clone(),
        };
        text += &format!("{ms:>10.3} ms {:>5.1} %  {kernel:<28} {nodes}\n", 100.0 * ms / total);
    }
    if let Some(rest) = rows.get(SHOWN..).filter(|rest| !rest.is_empty()) {
        let ms: f64 = rest.iter().map(|row| row.ms).sum();
        text += &format!("{ms:>10.3} ms {:>5.1} %  {} more\n", 100.0 * ms / total, rest.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_survive_the_way_between_processes() {
        let row = Row { ms: 1.5, kernel: "f0_conv_0".into(), nodes: "Conv_0".into() };
        assert_eq!(Row::parse(&row.json()), Some(row));
        assert_eq!(Row::parse(&json!({})), None);
    }

    #[test]
    fn what_does_not_fit_is_summed_up() {
        let row = |n: usize| Row { ms: 1.0, kernel: format!("k{n}"), nodes: String::new() };
        let text = text(&(0..40).map(row).collect::<Vec<_>>());
        assert_eq!(text.lines().count(), 26);
        assert!(text.ends_with("15.000 ms  37.5 %  15 more\n"), "{text}");
    }
}
