//! Runs under an observer that stops the time of each instruction: by the device's events what a device does, else by the host's clock.

use std::time::{Duration, Instant};

use tilewright_runtime::artifact::StepDef;
use tilewright_runtime::plan::{Instr, PlanOp, SizeId, Space};
use tilewright_runtime::{Inputs, Inspect, Program, RunError, RunObserver, Session};

/// Runs that are not measured: memory is laid out and touched, threads start.
const WARM_UP: usize = 2;

/// Fewest runs measured.
const MIN_RUNS: usize = 5;

/// Most runs that are measured: more say nothing new.
const MAX_RUNS: usize = 300;

/// What a run is made of: means over the faster half of the profiled runs, which other work on the machine disturbed least.
pub struct Profile {
    /// Time of a run, in milliseconds.
    pub wall_ms: f64,
    /// Time of each instruction of the plan in a run, in milliseconds.
    pub instr_ms: Vec<f64>,
    /// What of it the device's events told, by instruction; nothing where they told nothing.
    pub device_ms: Option<Vec<f64>>,
    /// How often each instruction runs.
    pub calls: Vec<f64>,
    /// What each step of the plan amounts to in a run.
    pub steps: Vec<Amount>,
    /// The extents that the program which runs is specialised for; none where it is the one for all.
    pub extents: Vec<(String, u64)>,
    /// Runs with a profile.
    pub runs: usize,
    /// Of these, the ones that the means are of.
    pub used: usize,
    /// Median time of the runs with a profile, in milliseconds.
    pub profiled_ms: f64,
    /// Median time of the runs without, in milliseconds.
    pub plain_ms: f64,
}

impl Profile {
    /// The time of all instructions.
    pub fn sum_ms(&self) -> f64 {
        self.instr_ms.iter().sum()
    }

    /// The device's time for kernels and for copies, in milliseconds, where its events told it.
    pub fn of_device(&self, program: &Program) -> Option<OfDevice> {
        let times = self.device_ms.as_ref()?;
        let mut sums = OfDevice { kernels_ms: 0.0, copies_ms: 0.0 };
        for (instr, ms) in program.plan().instrs.iter().zip(times) {
            match instr.op {
                PlanOp::Call { .. } => sums.kernels_ms += ms,
                _ => sums.copies_ms += ms,
            }
        }
        Some(sums)
    }

    /// How much longer a run takes with the profile.
    pub fn overhead(&self) -> f64 {
        self.profiled_ms / self.plain_ms - 1.0
    }
}

/// What the device's events told of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "remote", derive(serde::Serialize, serde::Deserialize))]
pub struct OfDevice {
    /// Time of kernels, in milliseconds.
    pub kernels_ms: f64,
    /// Time of copies to, from and within the device, in milliseconds.
    pub copies_ms: f64,
}

/// What a step amounts to in a run; `None` where an extent is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount {
    /// How often it runs.
    pub times: f64,
    /// Arithmetic operations.
    pub flops: Option<f64>,
    /// Bytes read and written.
    pub bytes: Option<f64>,
}

/// Runs for some seconds, by turns with and without a profile; at least five times each.
///
/// # Errors
/// As any run.
pub fn measure(session: &mut Session, inputs: &Inputs<'_>, seconds: f64) -> Result<Profile, RunError> {
    for _ in 0..WARM_UP {
        session.run_values(inputs.tensors(), inputs.values())?;
    }
    // The inputs stay, and with them the program.
    let program = session.program().clone();
    let (n_instrs, steps) = (program.plan().instrs.len(), program.steps());
    let leads = leads(n_instrs, steps);
    let has_device = program.plan().kernels.iter().any(|kernel| kernel.space == Space::Device);
    let mut plain = Vec::new();
    let mut runs: Vec<Recorder<'_>> = Vec::new();
    let start = Instant::now();
    while runs.len() < MIN_RUNS || (start.elapsed().as_secs_f64() < seconds && runs.len() < MAX_RUNS) {
        let begin = Instant::now();
        session.run_values(inputs.tensors(), inputs.values())?;
        plain.push(begin.elapsed());
        let mut recorder = Recorder::new(&leads, steps.len(), has_device);
        let begin = Instant::now();
        session.run_observed(inputs.tensors(), inputs.values(), &mut recorder)?;
        recorder.wall = begin.elapsed();
        runs.push(recorder);
    }
    plain.sort_unstable();
    runs.sort_by_key(|run| run.wall);
    let profiled_ms = ms(runs[runs.len() / 2].wall);
    let used = runs.len().div_ceil(2);
    let half = &runs[..used];
    let mean = |value: &dyn Fn(&Recorder<'_>) -> f64| half.iter().map(value).sum::<f64>() / used as f64;
    Ok(Profile {
        wall_ms: mean(&|run| ms(run.wall)),
        instr_ms: (0..n_instrs).map(|i| mean(&|run| run.instr_ms(i))).collect(),
        device_ms: half
            .iter()
            .all(|run| run.is_by_events)
            .then(|| (0..n_instrs).map(|i| mean(&|run| run.device_ms[i])).collect()),
        calls: (0..n_instrs).map(|i| mean(&|run| f64::from(run.calls[i]))).collect(),
        // What is computed follows from the inputs, and those are the same in every run.
        steps: half[0].amounts.clone(),
        extents: program.extents().to_vec(),
        runs: runs.len(),
        used,
        profiled_ms,
        plain_ms: ms(plain[plain.len() / 2]),
    })
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A step and the sizes that say what it amounts to.
#[derive(Clone, Copy)]
struct Lead {
    step: usize,
    flops: Option<SizeId>,
    bytes: Option<SizeId>,
}

/// The step that each instruction is the first of.
fn leads(n_instrs: usize, steps: &[StepDef]) -> Vec<Option<Lead>> {
    let mut leads = vec![None; n_instrs];
    for (step, def) in steps.iter().enumerate().filter(|(_, def)| !def.instrs.is_empty()) {
        if let Some(lead) = leads.get_mut(def.instrs.start as usize) {
            *lead = Some(Lead { step, flops: def.flops, bytes: def.bytes });
        }
    }
    leads
}

/// One run under observation.
struct Recorder<'l> {
    leads: &'l [Option<Lead>],
    wall: Duration,
    spent: Vec<Duration>,
    /// What the device's events told, by instruction.
    device_ms: Vec<f64>,
    /// Whether they told anything.
    is_by_events: bool,
    has_device: bool,
    calls: Vec<u32>,
    /// When the last instruction ended: one look at the clock serves its end and the next one's begin.
    last: Option<Instant>,
    amounts: Vec<Amount>,
}

impl<'l> Recorder<'l> {
    fn new(leads: &'l [Option<Lead>], n_steps: usize, has_device: bool) -> Recorder<'l> {
        Recorder {
            leads,
            wall: Duration::ZERO,
            spent: vec![Duration::ZERO; leads.len()],
            device_ms: vec![0.0; leads.len()],
            is_by_events: false,
            has_device,
            calls: vec![0; leads.len()],
            last: None,
            amounts: vec![Amount { times: 0.0, flops: Some(0.0), bytes: Some(0.0) }; n_steps],
        }
    }
}

impl Recorder<'_> {
    /// The time of an instruction: the device's where its events told it, for the host only asks for its work.
    fn instr_ms(&self, index: usize) -> f64 {
        match self.device_ms[index] {
            0.0 => ms(self.spent[index]),
            device_ms => device_ms,
        }
    }
}

impl RunObserver for Recorder<'_> {
    fn times_device(&self) -> bool {
        self.has_device
    }

    fn begin(&mut self, _index: usize, _instr: &Instr) {
        // What a run waits for on a device comes before an instruction and is not part of it.
        match self.has_device {
            true => self.last = Some(Instant::now()),
            false => _ = self.last.get_or_insert_with(Instant::now),
        }
    }

    fn device_time(&mut self, index: usize, nanoseconds: f64) {
        self.is_by_events = true;
        self.device_ms[index] += nanoseconds / 1e6;
    }

    fn end(&mut self, index: usize, _instr: &Instr, state: &Inspect<'_>) {
        if let Some(lead) = self.leads[index] {
            let amount = &mut self.amounts[lead.step];
            let value = |slot: Option<SizeId>| Some(state.size(slot?)? as f64);
            amount.times += 1.0;
            amount.flops = amount.flops.zip(value(lead.flops)).map(|(sum, flops)| sum + flops);
            amount.bytes = amount.bytes.zip(value(lead.bytes)).map(|(sum, bytes)| sum + bytes);
        }
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.spent[index] += now - last;
        }
        self.calls[index] += 1;
    }
}
