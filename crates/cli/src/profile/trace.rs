//! A trace in Chrome's trace event format.

use std::time::Duration;

use serde_json::{Value, json};
use tilewright_driver::run::profile::{Share, Span, Trace, kind};
use tilewright_driver::runtime::Session;

/// The file of a trace.
pub(super) fn json(session: &Session, trace: &Trace) -> Value {
    let plan = session.program().plan();
    let micros = |at: Duration| at.as_secs_f64() * 1e6;
    let mut events = Vec::new();
    let name = |instr: usize| kind(plan, &plan.instrs[instr].op);
    for &Span { instr, begin, end } in &trace.spans {
        events.push(json!({
            "name": name(instr), "cat": "instruction", "ph": "X", "pid": 1, "tid": 0,
            "ts": micros(begin), "dur": micros(end) - micros(begin),
            "args": {"nodes": plan.text(plan.instrs[instr].provenance), "instruction": instr},
        }));
    }
    for &Share { instr, thread, tasks: (first, last), begin, end } in &trace.shares {
        events.push(json!({
            "name": if thread == 0 { "tasks" } else { name(instr) }, "cat": "tasks", "ph": "X", "pid": 1, "tid": thread,
            "ts": micros(begin), "dur": micros(end) - micros(begin),
            "args": {"first": first, "last": last - 1, "instruction": instr},
        }));
    }
    let process = json!({"name": session.model().manifest().model});
    events.push(json!({"name": "process_name", "ph": "M", "pid": 1, "args": process}));
    for track in 0..trace.threads {
        let thread = if track == 0 { "caller".to_string() } else { format!("worker {track}") };
        events.push(
            json!({"name": "thread_name", "ph": "M", "pid": 1, "tid": track, "args": {"name": thread}}),
        );
    }
    json!({"traceEvents": events, "displayTimeUnit": "ms"})
}
