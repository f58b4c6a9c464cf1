//! What a server says of its machine and of who uses it.

use serde::{Deserialize, Serialize};

/// A server's machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// What its owner calls it.
    pub name: String,
    /// Architecture: the first part of a target triple.
    pub arch: String,
    /// Instruction set extensions that artifacts may need.
    pub features: Vec<String>,
    /// Processors that a job may use.
    pub cores: u32,
    /// Devices beside the processor.
    pub devices: Vec<String>,
    /// Kinds of jobs that it runs.
    pub kinds: Vec<String>,
}

/// Who uses a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The machine.
    pub machine: Machine,
    /// Whether a client has it.
    pub is_leased: bool,
    /// Whether a job runs.
    pub is_busy: bool,
    /// Clients that wait for it.
    pub waiting: u32,
    /// Jobs that it has begun since it was started.
    pub jobs: u64,
    /// Bytes of blobs that it keeps.
    pub stored: u64,
}
