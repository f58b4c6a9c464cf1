//! Tuning of models: their functions as tasks, and measurements in this process, on a device, and on other machines.

mod bench;
mod compiled;
mod in_process;
mod on_device;
pub(crate) mod probe;
mod rounds;
pub mod training;
mod worker;

use std::path::Path;

use tilewright_lower::Program;
use tilewright_lower::program::{LoweredFunc, Step};
use tilewright_onnx::OnnxModel;
use tilewright_tune::{Task, TaskKey};

use crate::codegen;
use crate::compile::programs_of;
use crate::error::CompileError;
use crate::options::Options;
use crate::units::in_space;

pub use bench::serve;
pub use compiled::{Compiled, Requests};
pub use in_process::InProcess;
pub use on_device::OnDevice;
pub use rounds::{MakeRoundError, MeasureRoundError, RoundOptions, is_of_device, measure_round, write_round};
pub use worker::{Worker, WorkerError};

/// What of a model can be tuned.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    /// Functions to tune, each once, with the number of their calls.
    pub tasks: Vec<Task>,
    /// Names of functions that cannot be measured, and why.
    pub left_out: Vec<(String, &'static str)>,
}

impl Tasks {
    /// Adds the functions of a model. Functions that are there already, from this or another model, run more often.
    ///
    /// # Errors
    /// As [`crate::compile()`].
    pub fn add_model(&mut self, path: &Path, options: &Options) -> Result<(), CompileError> {
        self.add(&OnnxModel::load(path)?, options)
    }

    /// As [`Tasks::add_model`], of a model that is loaded.
    ///
    /// # Errors
    /// As [`crate::compile()`].
    pub fn add(&mut self, model: &OnnxModel, options: &Options) -> Result<(), CompileError> {
        // Candidates are to be measured.
        codegen::demand_machine_code(&options.target)?;
        for program in programs_of(model, options)? {
            self.add_program(program, options);
        }
        Ok(())
    }

    fn add_program(&mut self, program: Program, options: &Options) {
        let calls = calls(&program);
        let of = |(lowered, calls): (&LoweredFunc, &u32)| {
            u64::from(*calls) * Task::constant_bytes_of(&lowered.computation)
        };
        let constant_bytes = program.funcs.iter().zip(&calls).map(of).sum();
        for (index, lowered) in program.funcs.into_iter().enumerate() {
            let calls = calls.get(index).copied().unwrap_or(0);
            let name = lowered.computation.func.name.clone();
            let is_table = !lowered.tables.is_empty();
            let target = in_space(&options.target, lowered.space);
            let task = Task { computation: lowered.computation, target, calls, constant_bytes };
            if let Some(why) = is_table.then_some("tables of its own").or_else(|| task.obstacle()) {
                self.left_out.push((name, why));
                continue;
            }
            let key = task.key();
            let same = |known: &&mut Task| TaskKey::clone(&known.key()) == key;
            match self.tasks.iter_mut().find(same) {
                Some(known) => {
                    known.calls += calls;
                    known.constant_bytes = known.constant_bytes.max(constant_bytes);
                }
                None => self.tasks.push(task),
            }
        }
    }
}

/// How many steps call each function.
fn calls(program: &Program) -> Vec<u32> {
    let mut calls = vec![0; program.funcs.len()];
    for step in program.regions.values().flatten() {
        match step {
            Step::Call { func, .. } => calls[*func] += 1,
            Step::View { .. }
            | Step::Part { .. }
            | Step::Extents { .. }
            | Step::Host { .. }
            | Step::Control { .. } => {}
        }
    }
    calls
}
