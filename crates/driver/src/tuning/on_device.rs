//! Measurements on a device: candidates are compiled here, and measured by a process of their own, there or on another machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tilewright_autosched::Decisions;
use tilewright_dtype::DType;
use tilewright_runtime::kernel_run::{KernelProgram, ProgramBuffer, ProgramCall, Role};
use tilewright_tune::{Effort, Measure, MeasureError, Task, TaskKey, Times};

use super::bench::{Answer, Request};
use super::compiled::{compile_all, span};
use super::in_process::InProcess;
use super::probe::{extents, input_data, padding_of, tasks_of};
use super::worker::{Worker, WorkerError};
use crate::autoschedule::schedule_kernels;
use crate::device_code::module;
use crate::error::CompileError;
use crate::kernel_file::{self, Contents, KernelEntry, OutputDef};

/// Measures functions of a device by a process, and those beside it in this one.
pub struct OnDevice {
    worker: Worker,
    jobs: usize,
    /// Where files for the process are.
    folder: tempfile::TempDir,
    n_files: usize,
    /// The rules' own schedules.
    references: BTreeMap<TaskKey, PathBuf>,
    /// Candidates that are compiled and not measured yet.
    prepared: BTreeMap<(TaskKey, Decisions), Result<KernelEntry, MeasureError>>,
    host: InProcess,
}

impl OnDevice {
    /// Measures by a process, and compiles on `jobs` threads.
    ///
    /// # Errors
    /// Where the process has no device, or there is no folder for its files.
    pub fn new(mut worker: Worker, host: InProcess, jobs: usize) -> Result<OnDevice, WorkerError> {
        worker.start()?;
        let folder = tempfile::tempdir()
            .map_err(|error| WorkerError::Start(format!("no folder for kernels: {error}")))?;
        let (references, prepared) = (BTreeMap::new(), BTreeMap::new());
        Ok(OnDevice { worker, jobs, folder, n_files: 0, references, prepared, host })
    }

    fn write(&mut self, entry: KernelEntry) -> Result<PathBuf, MeasureError> {
        self.n_files += 1;
        let path = self.folder.path().join(format!("{}.twk", self.n_files));
        kernel_file::write(&path, &[entry]).map_err(|error| MeasureError::Failed(error.to_string()))?;
        Ok(path)
    }

    fn reference(&mut self, task: &Task) -> Result<PathBuf, MeasureError> {
        let key = task.key();
        if let Some(path) = self.references.get(&key) {
            return Ok(path.clone());
        }
        let path = self.write(entry(task, &Decisions::default())?)?;
        self.references.insert(key, path.clone());
        Ok(path)
    }
}

impl Measure for OnDevice {
    fn prepare(&mut self, task: &Task, candidates: &[Decisions]) {
        if task.target.device.is_none() {
            return self.host.prepare(task, candidates);
        }
        let key = task.key();
        let compiled =
            compile_all(self.jobs, self.worker.cancel(), candidates, &|decisions| entry(task, decisions));
        let compiled = candidates.iter().cloned().zip(compiled);
        self.prepared = compiled.map(|(decisions, entry)| ((key.clone(), decisions), entry)).collect();
    }

    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError> {
        if task.target.device.is_none() {
            return self.host.measure(task, candidate, effort);
        }
        let reference = self.reference(task)?;
        let prepared = self.prepared.remove(&(task.key(), candidate.clone()));
        let candidate = if candidate.is_empty() {
            reference.clone()
        } else {
            self.write(prepared.unwrap_or_else(|| entry(task, candidate))?)?
        };
        let request = Request { reference, candidate, far: far(task), effort: Some(effort) };
        let answer = ask(&mut self.worker, &request);
        if request.candidate != request.reference {
            // A file that stays until the folder goes does no harm.
            _ = std::fs::remove_file(&request.candidate);
        }
        answer.map(|(times, _)| times)
    }
}

/// Has a process measure; a process that is gone is a candidate that failed.
pub(super) fn ask(worker: &mut Worker, request: &Request) -> Result<(Times, Option<Times>), MeasureError> {
    let Answer { times, confirmed, error, is_wrong, .. } =
        worker.ask(request).map_err(|error| match error {
            WorkerError::Cancelled => MeasureError::Cancelled,
            error => MeasureError::Failed(error.to_string()),
        })?;
    let why = error.unwrap_or_else(|| "no times".to_string());
    match times {
        Some(times) => Ok((times, confirmed)),
        None if is_wrong => Err(MeasureError::Wrong(why)),
        None => Err(MeasureError::Failed(why)),
    }
}

/// Bytes of other constants between two uses of one.
pub(super) fn far(task: &Task) -> u64 {
    span(task, u64::from(task.target.gpu.map_or(0, |gpu| gpu.l2)))
}

/// A function for the device of its target, as decided.
pub(super) fn entry(task: &Task, decisions: &Decisions) -> Result<KernelEntry, MeasureError> {
    let kernels = schedule_kernels(&task.computation, &task.target, decisions.clone())
        .map_err(|error| MeasureError::Illegal(error.to_string()))?;
    let make = || -> Result<KernelEntry, CompileError> {
        let lost = || CompileError::internal("tune", "a kernel without a place, a device or known tasks");
        let (device, gpu) = task.target.device.zip(task.target.gpu).ok_or_else(lost)?;
        let func = &kernels.func;
        let flat: Vec<_> = kernels.kernels.iter().map(|flat| flat.kernel.clone()).collect();
        let (def, code) = module(&flat, device, &gpu)?;
        let places: Vec<_> = func.params.iter().copied().chain(func.workspaces()).collect();
        let (mut buffers, mut contents, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for (n, &buffer) in places.iter().enumerate() {
            let dtype = func.buffers[buffer].dtype;
            let elements = extents(func, buffer)?.into_iter().product::<i64>();
            let role = match n {
                n if n < func.n_inputs && task.computation.constant_inputs.get(n) == Some(&true) => {
                    Role::Constant
                }
                n if n < func.n_inputs => Role::Given,
                n if n < func.params.len() => Role::Output,
                _ => Role::Workspace,
            };
            buffers
                .push(ProgramBuffer { bytes: elements.unsigned_abs() * dtype.bytes().max(1) as u64, role });
            contents.push(match role {
                Role::Constant | Role::Given => content(task, &kernels, n)?,
                Role::Output | Role::Workspace => Contents::Nothing,
            });
            if role == Role::Output {
                let padding = padding_of(task, &kernels, n - func.n_inputs)?;
                let padding: Vec<u8> = (0..elements as usize).map(|n| u8::from(padding.is_at(n))).collect();
                let padding = if padding.contains(&1) { padding } else { Vec::new() };
                outputs.push(OutputDef {
                    what: func.buffers[buffer].name.clone(),
                    dtype: dtype.to_string(),
                    expected: None,
                    padding,
                });
            }
        }
        let calls = kernels.kernels.iter().enumerate().map(|(n, flat)| {
            let place = |buffer| places.iter().position(|known| known == buffer).map(|at| at as u32);
            let buffers: Option<Vec<u32>> = flat.buffers.iter().map(place).collect();
            let (rounds, per_round) = tasks_of(&flat.kernel)?;
            Some(ProgramCall {
                kernel: n as u32,
                buffers: buffers?,
                sizes: Vec::new(),
                tasks: rounds * per_round,
            })
        });
        let calls = calls.collect::<Option<Vec<_>>>().ok_or_else(lost)?;
        let program = KernelProgram { name: func.name.clone(), device: def, code, buffers, calls };
        Ok(KernelEntry { program, contents, outputs })
    };
    make().map_err(|error| MeasureError::Failed(error.to_string()))
}

/// The contents of an input: a seed where they are not laid out anew for the schedule.
fn content(task: &Task, kernels: &crate::autoschedule::Kernels, n: usize) -> Result<Contents, CompileError> {
    let is_f32 = kernels.func.buffers[kernels.func.params[n]].dtype == DType::F32;
    match kernels.packing.get(n).is_none_or(Vec::is_empty) && is_f32 {
        true => Ok(Contents::Noise(n as u64)),
        false => Ok(Contents::Bytes(input_data(task, kernels, n)?)),
    }
}
