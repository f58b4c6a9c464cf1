//! `tilewright doctor`: what the machine and this build offer, with advice where something is lacking.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tilewright_driver::device_code::ptxas_version;
use tilewright_driver::devices::{self, Listed};
use tilewright_driver::machine::measure::timing::{Measured, measure};
use tilewright_driver::machine::{Ceilings, Feature, TimingFile};
use tilewright_driver::runtime::threads::{NUM_THREADS, available_threads};
use tilewright_driver::{CodegenKind, Machine};

use crate::calibrate;
use crate::failure::Failure;
use crate::output;
use crate::proc_files::value_of;
use crate::profile;
use crate::targets::is_built;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Also measure what the machine can do at most, on one thread and on all, and the numbers that the cost model goes by
    #[arg(long)]
    measure: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was found, and what to do about it.
struct Findings {
    machine: Machine,
    /// What the processor has and no code is made for.
    unused: Vec<Feature>,
    processor: Option<String>,
    memory_bytes: Option<u64>,
    /// Processors of the machine.
    processors: Option<usize>,
    /// Processors that the affinity mask or cpuset allows.
    allowed: Option<usize>,
    /// Processors' worth of time that a cgroup grants.
    quota: Option<f64>,
    threads: usize,
    llvm: Llvm,
    /// Version of the program that makes machine code for CUDA devices.
    ptxas: Option<String>,
    /// Devices beside the processor, and what stands in the way of others.
    devices: Vec<Listed>,
    /// Measured, if asked for.
    ceilings: Vec<Ceilings>,
    /// The numbers of the cost model, if asked for.
    timing: Option<Measured>,
    advice: Vec<String>,
}

/// What there is of LLVM.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Llvm {
    /// In this build.
    Built,
    /// On the machine, but not in this build.
    Installed(String),
    /// Nowhere.
    Missing,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let mut findings = Findings::gather();
    if args.measure {
        findings.ceilings = [1, findings.threads].map(Ceilings::measure).into();
        findings.timing = Some(measure(&findings.machine.timing.numbers));
    }
    if args.json { output::print_json(&findings.json()) } else { output::print(&findings.text()) }
}

impl Findings {
    fn gather() -> Findings {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let mut findings = Findings {
            machine: Machine::host(),
            unused: Machine::unused_features(),
            processor: value_of(&cpuinfo, "model name"),
            memory_bytes: read("/proc/meminfo").and_then(|text| kib_of(&text, "MemTotal")),
            processors: Some(cpuinfo.lines().filter(|line| line.starts_with("processor")).count())
                .filter(|&n| n > 0),
            allowed: read("/proc/self/status")
                .and_then(|text| list_len(&value_of(&text, "Cpus_allowed_list")?)),
            quota: read("/proc/self/cgroup").and_then(|own| quota(Path::new("/sys/fs/cgroup"), &own)),
            threads: available_threads(),
            llvm: find_llvm(),
            ptxas: ptxas_version(),
            devices: devices::list(),
            ceilings: Vec::new(),
            timing: None,
            advice: Vec::new(),
        };
        findings.advise();
        findings
    }

    fn advise(&mut self) {
        let mut advise = |advice: &str| self.advice.push(advice.to_string());
        match &self.llvm {
            Llvm::Built => {}
            Llvm::Installed(_) => advise(
                "LLVM 22 is installed but not in this build: build with `cargo xtask build`, or with the feature `llvm`",
            ),
            Llvm::Missing => {
                advise(
                    "without LLVM 22 models run on Cranelift's code, which is slower: `cargo xtask setup` installs it",
                );
            }
        }
        if cfg!(debug_assertions) {
            advise(
                "this is a debug build: compiling takes several times as long as with `cargo build --release`",
            );
        }
        if let Ok(value) = std::env::var(NUM_THREADS) {
            advise(&format!("{NUM_THREADS}={value} overrides the number of threads"));
        }
        if !self.machine.has_fma() {
            advise("the processor has no fused multiply-add: expect a small part of the speed of newer ones");
        }
        if let (Some(quota), Some(allowed)) = (self.quota, self.allowed)
            && quota < allowed as f64
        {
            advise(&format!("a cgroup grants the time of {quota} processors out of {allowed}"));
        }
    }

    fn text(&self) -> String {
        let caches = &self.machine.caches;
        let row = |name: &str, value: String| (name.to_string(), value);
        let number = |n: Option<usize>| n.map_or("unknown".to_string(), |n| n.to_string());
        let build = format!(
            "{} {}, {}",
            env!("CARGO_PKG_VERSION"),
            if cfg!(debug_assertions) { "debug" } else { "release" },
            CodegenKind::ALL
                .into_iter()
                .filter(|&c| is_built(c))
                .map(CodegenKind::name)
                .collect::<Vec<_>>()
                .join(" and "),
        );
        let mut rows = vec![
            row("tilewright", build),
            row("system", format!("{} on {}", std::env::consts::OS, self.machine.arch)),
            row("processor", self.processor.clone().unwrap_or_else(|| "unknown".to_string())),
            row("features", names(&self.machine.features.iter().collect::<Vec<_>>())),
            row("features unused", names(&self.unused)),
            row(
                "vectors",
                format!("{} of {} bits", self.machine.n_vector_registers, self.machine.vector_bits),
            ),
            row(
                "caches",
                format!(
                    "L1 {}, L2 {}, L3 {}, lines of {} bytes",
                    output::bytes(caches.l1d),
                    output::bytes(caches.l2),
                    output::bytes(caches.l3),
                    caches.line
                ),
            ),
            row("timing", self.timing_text()),
            row("memory", self.memory_bytes.map_or("unknown".to_string(), output::bytes)),
            row(
                "processors",
                format!("{}, {} of them allowed", number(self.processors), number(self.allowed)),
            ),
            row("cgroup quota", self.quota.map_or("none".to_string(), |quota| format!("{quota} processors"))),
            row("threads", format!("{} by default", self.threads)),
        ];
        rows.push(row(
            "LLVM 22",
            match &self.llvm {
                Llvm::Built => "in this build".to_string(),
                Llvm::Installed(version) => format!("{version} installed, not in this build"),
                Llvm::Missing => "not found".to_string(),
            },
        ));
        let without = "not found: what a CUDA driver has to assemble takes it time when a model is loaded";
        rows.push(row("ptxas", self.ptxas.clone().unwrap_or_else(|| without.to_string())));
        for Listed { name, description } in &self.devices {
            rows.push(row(name.as_deref().unwrap_or("no device"), description.clone()));
        }
        for ceilings in &self.ceilings {
            let threads = if ceilings.threads == 1 { "thread" } else { "threads" };
            rows.push(row(
                &format!("{} {threads} at most", ceilings.threads),
                profile::ceilings_text(ceilings),
            ));
        }
        let mut text = output::table(&rows);
        if let Some(timing) = &self.timing {
            text += "Numbers of the cost model (cycles but where the name says otherwise; `tilewright calibrate` writes them down):\n";
            text += &calibrate::table(timing, &self.machine.timing);
        }
        text += if self.advice.is_empty() { "Nothing is lacking.\n" } else { "Advice:\n" };
        for advice in &self.advice {
            text += &format!("  - {advice}\n");
        }
        text
    }

    /// What schedules for this machine go by.
    fn timing_text(&self) -> String {
        let timing = &self.machine.timing;
        let file = TimingFile::committed(&timing.name);
        let of = file
            .map_or(String::new(), |file| format!(": {}, {}", file.provenance.machine, file.provenance.date));
        format!("{}{of}", timing.name)
    }

    fn json(&self) -> serde_json::Value {
        let caches = &self.machine.caches;
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "debug": cfg!(debug_assertions),
            "codegens": CodegenKind::ALL.into_iter().filter(|&c| is_built(c)).map(CodegenKind::name).collect::<Vec<_>>(),
            "machine": self.machine.to_string(),
            "unused_features": self.unused.iter().map(|feature| feature.name()).collect::<Vec<_>>(),
            "processor": self.processor,
            "caches": {"l1d": caches.l1d, "l2": caches.l2, "l3": caches.l3, "line": caches.line},
            "memory_bytes": self.memory_bytes,
            "processors": self.processors,
            "allowed": self.allowed,
            "quota": self.quota,
            "threads": self.threads,
            "ptxas": self.ptxas,
            "devices": self.devices.iter().map(|device| json!({"name": device.name, "description": device.description})).collect::<Vec<_>>(),
            "timing": self.timing.as_ref().map(|timing| calibrate::json(timing, &self.machine.timing)),
            "ceilings": self.ceilings.iter().map(profile::ceilings_json).collect::<Vec<_>>(),
            "advice": self.advice,
        })
    }
}

fn names(features: &[Feature]) -> String {
    let names: Vec<&str> = features.iter().map(|feature| feature.name()).collect();
    if names.is_empty() { "none".to_string() } else { names.join(" ") }
}

/// The bytes of a line `KEY: N kB`.
fn kib_of(text: &str, key: &str) -> Option<u64> {
    value_of(text, key)?.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// How many numbers a list such as `0-3,8` holds.
fn list_len(list: &str) -> Option<usize> {
    let range_len = |range: &str| match range.split_once('-') {
        None => range.parse::<usize>().ok().map(|_| 1),
        Some((first, last)) => last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?).map(|n| n + 1),
    };
    list.split(',').map(range_len).sum()
}

/// Processors' worth of time that the cgroups of a process grant, the least of its own and those above; none where they set
/// no limit. `root` is where cgroups are mounted, `own` says which are the process's, as `/proc/self/cgroup`.
fn quota(root: &Path, own: &str) -> Option<f64> {
    let read = |path: PathBuf| std::fs::read_to_string(path).ok();
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|&number| number > 0.0);
    let of_group = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
        let limits = Path::new(path).ancestors().filter_map(|group| {
            if controllers.is_empty() {
                let text = read(root.join(group).join("cpu.max"))?;
                let (quota, period) = text.split_once(' ')?;
                return Some(number(quota)? / number(period)?);
            }
            // Version 1 mounts each list of controllers apart.
            let value = |name: &str| number(&read(root.join(controllers).join(group).join(name))?);
            Some(value("cpu.cfs_quota_us")? / value("cpu.cfs_period_us")?)
        });
        limits.min_by(f64::total_cmp)
    };
    own.lines().filter_map(of_group).min_by(f64::total_cmp)
}

fn find_llvm() -> Llvm {
    if is_built(CodegenKind::Llvm) {
        return Llvm::Built;
    }
    let ask = |program: &Path| {
        let output = Command::new(program).arg("--version").output().ok()?;
        let version = String::from_utf8(output.stdout).ok()?.trim().to_string();
        (output.status.success() && version.starts_with("22.")).then_some(version)
    };
    let places =
        ["llvm-config-22", "/usr/lib/llvm-22/bin/llvm-config", "/opt/homebrew/opt/llvm@22/bin/llvm-config"];
    places.into_iter().find_map(|place| ask(Path::new(place))).map_or(Llvm::Missing, Llvm::Installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_sizes_of_the_kernel() {
        assert_eq!(["0", "0-3", "0-3,8", "x", "3-1"].map(list_len), [Some(1), Some(4), Some(5), None, None]);
        assert_eq!(kib_of("MemFree: 1 kB\nMemTotal:   8 kB\n", "MemTotal"), Some(8192));
    }

    #[test]
    fn the_least_quota_of_a_group_and_those_above_counts() {
        let root = tempfile::tempdir().unwrap();
        let set = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        set("a/cpu.max", "150000 100000\n");
        set("a/b/cpu.max", "max 100000\n");
        set("cpu,cpuacct/c/cpu.cfs_quota_us", "100000\n");
        set("cpu,cpuacct/c/cpu.cfs_period_us", "200000\n");
        set("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
        set("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        let check = |own: &str, expect: Option<f64>| assert_eq!(quota(root.path(), own), expect, "{own}");
        check("0::/a/b\n", Some(1.5));
        check("0::/\n", None);
        check("3:cpuset:/c\n1:cpu,cpuacct:/c\n", Some(0.5));
        check("1:cpu,cpuacct:/\n", None);
    }

    #[test]
    fn every_finding_is_in_both_forms() {
        let findings = Findings::gather();
        assert!(findings.threads >= 1);
        assert!(findings.text().contains("threads"));
        assert_eq!(findings.json()["threads"], findings.threads);
    }
}
