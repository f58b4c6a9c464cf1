//! GPUs: what their generations offer, and the kinds of code for them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::TargetError;

/// A generation of NVIDIA GPUs, by what a kernel may ask of it. Numbers are those of the table "Technical Specifications per Compute
/// Capability" in NVIDIA's CUDA C++ Programming Guide; those of multiprocessors, caches, memory and clocks are of the whitepapers and data
/// sheets of A100 (40 GB), RTX 3090 Ti, L40, H100 SXM and B200.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gpu {
    /// Compute capability, ten times the major number plus the minor one: 80 for `sm_80`.
    pub sm: u32,
    /// Most threads of a block that a multiprocessor runs at the same time.
    pub threads_per_multiprocessor: u32,
    /// Most blocks that a multiprocessor runs at the same time.
    pub blocks_per_multiprocessor: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_per_multiprocessor: u32,
    /// Multiprocessors of the largest product of the generation that is sold: schedules are to keep all of them busy.
    pub multiprocessors: u32,
    /// Bytes of its second-level cache, which all multiprocessors share.
    pub l2: u32,
    /// What its memory moves, in GB/s.
    pub bandwidth: u32,
    /// Its clock under load, in MHz.
    pub clock: u32,
}

impl Gpu {
    /// Threads of a warp.
    pub const LANES: u32 = 32;
    /// Most threads of a block.
    pub const THREADS_PER_BLOCK: u32 = 1024;
    /// 32-bit registers of a multiprocessor.
    pub const REGISTERS_PER_MULTIPROCESSOR: u32 = 64 << 10;
    /// Most registers of a thread.
    pub const REGISTERS_PER_THREAD: u32 = 255;
    /// Bytes of shared memory that the system keeps of each block.
    pub const RESERVED_SHARED: u32 = 1 << 10;
    /// Bytes of shared memory that a kernel may have without asking for them when it is launched.
    pub const STATIC_SHARED: u32 = 48 << 10;
    /// Nanoseconds that a further kernel costs between two others, which one stream launches back to back: the processor hands out a
    /// launch in 2 to 3 microseconds, which hides what the device takes to begin it (NVIDIA's blog, "Getting Started with CUDA Graphs").
    pub const LAUNCH: u32 = 2500;
    /// Cycles until memory answers under load; idle it takes 470 to 540 (Luo et al., "Dissecting the NVIDIA Hopper Architecture through
    /// Microbenchmarking and Multiple Level Analysis").
    pub const LATENCY: u32 = 600;
    /// Bytes that the second-level cache gives a multiprocessor in a cycle where all ask: 4.22 TB/s on an A100 (the benchmarks gpu-benches of
    /// RRZE-HPC, by Nsight).
    pub const L2_PER_CYCLE: f64 = 28.0;
    /// Bytes that shared memory gives or takes in a cycle (CUDA C++ Programming Guide).
    pub const SHARED_PER_CYCLE: f64 = 128.0;
    /// Registers are given to warps in so many.
    const REGISTER_UNIT: u32 = 256;
    /// Shared memory is given to blocks in so many bytes.
    const SHARED_UNIT: u32 = 128;

    /// Generations that code is made for, the oldest first.
    pub const ALL: [Gpu; 5] = [
        Gpu::new(80, [2048, 32, 164], 108, 40, [1555, 1410]),
        Gpu::new(86, [1536, 16, 100], 84, 6, [1008, 1860]),
        Gpu::new(89, [1536, 24, 100], 142, 96, [864, 2490]),
        Gpu::new(90, [2048, 32, 228], 132, 50, [3350, 1760]),
        Gpu::new(100, [2048, 32, 228], 148, 126, [8000, 1965]),
    ];

    /// Of a multiprocessor: threads, blocks and KiB of shared memory. Of the memory: GB/s, and MHz of the multiprocessors beside it.
    const fn new(
        sm: u32,
        [threads, blocks, shared_kib]: [u32; 3],
        multiprocessors: u32,
        l2_mib: u32,
        [bandwidth, clock]: [u32; 2],
    ) -> Gpu {
        Gpu {
            sm,
            threads_per_multiprocessor: threads,
            blocks_per_multiprocessor: blocks,
            shared_per_multiprocessor: shared_kib << 10,
            multiprocessors,
            l2: l2_mib << 20,
            bandwidth,
            clock,
        }
    }

    /// Cycles in which memory moves so many bytes.
    pub fn cycles_of_bytes(&self, bytes: f64) -> f64 {
        bytes * f64::from(self.clock) / (f64::from(self.bandwidth) * 1e3)
    }

    /// Cycles that a further kernel costs.
    pub fn cycles_of_launch(&self) -> f64 {
        f64::from(Gpu::LAUNCH) * f64::from(self.clock) / 1e3
    }

    /// Most bytes of shared memory that a block may have.
    pub const fn shared_per_block(&self) -> u32 {
        self.shared_per_multiprocessor - Gpu::RESERVED_SHARED
    }

    /// Blocks that a multiprocessor runs at the same time, of so many threads, registers a thread and bytes of shared memory; 0 where a
    /// block does not fit.
    pub fn resident_blocks(&self, threads: u32, registers: u32, shared: u32) -> u32 {
        let warps = threads.div_ceil(Gpu::LANES).max(1);
        if threads > Gpu::THREADS_PER_BLOCK
            || registers > Gpu::REGISTERS_PER_THREAD
            || shared > self.shared_per_block()
        {
            return 0;
        }
        let of_warp = (registers.max(1) * Gpu::LANES).next_multiple_of(Gpu::REGISTER_UNIT);
        let by_registers = Gpu::REGISTERS_PER_MULTIPROCESSOR / of_warp / warps;
        let of_block = shared.next_multiple_of(Gpu::SHARED_UNIT) + Gpu::RESERVED_SHARED;
        let by_shared = self.shared_per_multiprocessor / of_block;
        let by_threads = self.threads_per_multiprocessor / (warps * Gpu::LANES);
        by_registers.min(by_shared).min(by_threads).min(self.blocks_per_multiprocessor)
    }
}

/// A kind of device that code is generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DeviceKind {
    /// NVIDIA's GPUs, by PTX.
    Cuda,
    /// Whatever has a driver for OpenCL, by OpenCL C.
    OpenCl,
}

impl DeviceKind {
    /// Every kind.
    pub const ALL: [DeviceKind; 2] = [DeviceKind::Cuda, DeviceKind::OpenCl];

    /// The name on the command line and in artifacts.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Cuda => "cuda",
            DeviceKind::OpenCl => "opencl",
        }
    }

    /// The generation that schedules are made for where none is named.
    pub const fn default_gpu(self) -> Gpu {
        match self {
            DeviceKind::Cuda | DeviceKind::OpenCl => Gpu::ALL[0],
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm)
    }
}

impl FromStr for Gpu {
    type Err = TargetError;

    /// `sm_80` and the like.
    fn from_str(text: &str) -> Result<Gpu, TargetError> {
        let found = Gpu::ALL.iter().find(|gpu| gpu.to_string() == text);
        found.copied().ok_or_else(|| TargetError::UnknownGpu { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::GPU_NAMES;

    #[test]
    fn names_round_trip() {
        assert_eq!(Gpu::ALL.map(|gpu| gpu.to_string()), GPU_NAMES);
        for gpu in Gpu::ALL {
            assert_eq!(gpu.to_string().parse(), Ok(gpu));
        }
        assert_eq!(
            "sm_70".parse::<Gpu>().unwrap_err().to_string(),
            "unknown GPU `sm_70`; known are sm_80, sm_86, sm_89, sm_90, sm_100"
        );
    }

    #[test]
    fn memory_and_launches_take_cycles() {
        let h100: Gpu = "sm_90".parse().expect("a GPU");
        // 3350 bytes a nanosecond, which is 1.76 cycles.
        assert_eq!(h100.cycles_of_bytes(33_500_000.0), 17_600.0);
        assert_eq!(h100.cycles_of_launch(), 4400.0);
    }

    /// By hand, after the guide's rules.
    #[test]
    fn what_runs_at_the_same_time_is_limited_by_each_resource() {
        let [a100, h100] = ["sm_80", "sm_90"].map(|name| name.parse::<Gpu>().expect("a GPU"));
        // Threads: 2048 / 256.
        assert_eq!(a100.resident_blocks(256, 32, 0), 8);
        // Registers: 65536 / (128 * 256).
        assert_eq!(a100.resident_blocks(256, 128, 0), 2);
        // 33 registers of 32 lanes are given as 1280.
        assert_eq!(a100.resident_blocks(1024, 33, 0), 1);
        // Shared memory: 164 / (48 + 1), 228 / (48 + 1).
        assert_eq!(a100.resident_blocks(128, 32, 48 << 10), 3);
        assert_eq!(h100.resident_blocks(128, 32, 48 << 10), 4);
        assert_eq!(h100.resident_blocks(128, 32, 227 << 10), 1);
        assert_eq!(a100.resident_blocks(1, 16, 0), 32);
        assert_eq!(a100.resident_blocks(1, 16, 164 << 10), 0);
        assert_eq!(a100.resident_blocks(1025, 16, 0), 0);
    }
}
