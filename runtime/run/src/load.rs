//! How models are loaded.

use std::sync::Arc;

use tilewright_runtime::device::Device;
use tilewright_runtime::isa::Isa;
use tilewright_runtime::plan::Plan;
use tilewright_runtime::pool::Pool;
use tilewright_runtime::threads::{ThreadPool, available_threads};
use tilewright_runtime::{Allocator, Loader, SessionOptions, Trust};

use crate::ranges::InRanges;

/// How a [`Model`](crate::Model) is loaded and run.
#[derive(Clone)]
pub struct LoadOptions {
    verify_weights: bool,
    isa: Option<Isa>,
    device: Wanted,
    /// The threads; those that the process shares where none are said, which are made when they are first needed.
    pool: Option<Arc<dyn Pool>>,
    memory_limit: u64,
    allocator: Option<Arc<dyn Allocator>>,
    sessions: Option<usize>,
    pub(crate) seed: u64,
}

/// What runs the kernels.
#[derive(Clone)]
enum Wanted {
    /// The only thing that there is code for.
    Only,
    /// The processor.
    Host,
    Device(Arc<dyn Device>),
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions::new()
    }
}

impl LoadOptions {
    /// On the threads that the process shares, without a limit of memory, and the seed 0. Weights are not verified.
    pub fn new() -> LoadOptions {
        LoadOptions {
            verify_weights: false,
            isa: None,
            device: Wanted::Only,
            pool: None,
            memory_limit: u64::MAX,
            allocator: None,
            sessions: None,
            seed: 0,
        }
    }

    /// Runs share so many threads of their own, the caller's included.
    pub fn threads(self, threads: usize) -> LoadOptions {
        self.pool(Arc::new(ThreadPool::new(threads)))
    }

    /// Runs share these threads.
    pub fn pool(mut self, pool: Arc<dyn Pool>) -> LoadOptions {
        self.pool = Some(pool);
        self
    }

    /// Most bytes that one session may hold, as [`SessionOptions::memory_limit`]; what it is for all of them together is that
    /// times [`LoadOptions::sessions`]. Outputs are not counted: they are the caller's.
    pub fn memory_limit(mut self, bytes: u64) -> LoadOptions {
        self.memory_limit = bytes;
        self
    }

    /// Where memory of sessions and of outputs comes from, in place of Rust's allocator.
    pub fn allocator(mut self, allocator: Arc<dyn Allocator>) -> LoadOptions {
        self.allocator = Some(allocator);
        self
    }

    /// Most sessions that a model makes for its runs, at least 1. Where all are at work, the next run waits for one. Where it is not said, a
    /// model makes as many as runs ever happen at the same time, and keeps them; on a device, which has less memory and runs one kernel
    /// after the other, at most as many as there are processors.
    pub fn sessions(mut self, max: usize) -> LoadOptions {
        self.sessions = Some(max.max(1));
        self
    }

    /// What nodes without a seed of their own draw random numbers by.
    pub fn seed(mut self, seed: u64) -> LoadOptions {
        self.seed = seed;
        self
    }

    /// Whether the checksum of the weights is checked too, which reads all of them.
    pub fn verify_weights(mut self, verify: bool) -> LoadOptions {
        self.verify_weights = verify;
        self
    }

    /// Takes code for a device, and no other.
    pub fn device(mut self, device: Arc<dyn Device>) -> LoadOptions {
        self.device = Wanted::Device(device);
        self
    }

    /// Cuts the tasks of each kernel on the device asked for by [`LoadOptions::device`] into up to four ranges, launched one after the other, at
    /// places that a seed decides and that are others in each run. For checks: results do not depend on it.
    pub fn in_ranges(mut self, seed: u64) -> LoadOptions {
        if let Wanted::Device(device) = self.device {
            self.device = Wanted::Device(Arc::new(InRanges::new(device, seed)));
        }
        self
    }

    /// Takes code for the processor alone, also of an artifact that has code for devices too.
    pub fn on_host(mut self) -> LoadOptions {
        self.device = Wanted::Host;
        self
    }

    /// Whether a device was asked for.
    pub fn is_for_device(&self) -> bool {
        matches!(self.device, Wanted::Device(_))
    }

    /// Whether it is left to the artifact what runs the kernels: neither a device nor the processor alone was asked for.
    pub fn takes_any(&self) -> bool {
        matches!(self.device, Wanted::Only)
    }

    /// Loads as if this machine had no more than `isa`.
    pub fn as_if_on(mut self, isa: Isa) -> LoadOptions {
        self.isa = Some(isa);
        self
    }

    pub(crate) fn loader(&self, trust: Trust) -> Loader {
        let loader = Loader::new(trust).verify_weights(self.verify_weights);
        #[cfg(feature = "host-operators")]
        let loader = loader.host_ops(Arc::new(tilewright_host::Registry));
        let loader = match &self.isa {
            Some(isa) => loader.as_if_on(isa),
            None => loader,
        };
        match &self.device {
            Wanted::Only => loader,
            Wanted::Host => loader.on_host(),
            Wanted::Device(device) => loader.device(device.clone()),
        }
    }

    pub(crate) fn session(&self) -> SessionOptions {
        let pool = self.pool.clone().unwrap_or_else(|| ThreadPool::global());
        SessionOptions { pool, memory_limit: self.memory_limit, allocator: self.allocator.clone() }
    }

    /// Most sessions of a model with this plan.
    pub(crate) fn most_sessions(&self, plan: &Plan) -> usize {
        self.sessions.unwrap_or_else(|| if plan.needs_device() { available_threads() } else { usize::MAX })
    }

    pub(crate) fn own_allocator(&self) -> Option<&Arc<dyn Allocator>> {
        self.allocator.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use tilewright_runtime::plan::{KernelDef, Space};

    use super::*;

    #[test]
    fn sessions_have_a_limit_where_one_is_said_and_on_devices() {
        let kernel = KernelDef { name: "k".into(), params: Vec::new(), n_sizes: 0, space: Space::Device };
        let (host, device) = (Plan::default(), Plan { kernels: vec![kernel], ..Plan::default() });
        let options = LoadOptions::new();
        assert_eq!(options.most_sessions(&host), usize::MAX);
        assert_eq!(options.most_sessions(&device), available_threads());
        let three = LoadOptions::new().sessions(3);
        assert_eq!((three.most_sessions(&host), three.most_sessions(&device)), (3, 3));
        assert_eq!(LoadOptions::new().sessions(0).most_sessions(&host), 1);
    }
}
