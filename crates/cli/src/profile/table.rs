//! Rows of a profile for other programs.

use clap::ValueEnum;
use serde_json::{Value, json};
use tilewright_driver::run::profile::{self, Row};

/// What a row of the table stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// Nodes of the model that are computed together
    Node,
    /// A kernel, wherever it is called
    Kernel,
    /// A type of operator: that of the node which decides how its group is computed
    Op,
}

impl From<By> for profile::By {
    fn from(by: By) -> profile::By {
        match by {
            By::Node => profile::By::Node,
            By::Kernel => profile::By::Kernel,
            By::Op => profile::By::Op,
        }
    }
}

/// A row for other programs.
pub(super) fn json(row: &Row) -> Value {
    json!({
        "ms": row.ms, "device_ms": row.device_ms, "estimate_ms": row.estimate_ms, "share": row.share, "calls": row.calls, "flops": row.flops, "bytes": row.bytes,
        "gflops": row.gflops(), "gbps": row.gbps(), "roofline": row.roofline(),
        "operators": row.operators, "kernels": row.kernels, "rules": row.rules, "layouts": row.layouts,
        "nodes": row.nodes,
    })
}
