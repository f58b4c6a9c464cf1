//! What is tuned: functions with their targets, and keys that hold across models and machines of a family.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_autosched::strategy::FuncStrategy;
use tilewright_digest::Digest;
use tilewright_dtype::DType;
use tilewright_machine::Target;
use tilewright_te::{Computation, Expr};

/// A function to tune.
#[derive(Clone, Debug)]
pub struct Task {
    /// The function with its variants, unscheduled.
    pub computation: Computation,
    /// What it is compiled for.
    pub target: Target,
    /// How often it runs in what is tuned.
    pub calls: u32,
    /// Bytes of the constants that a run of what is tuned reads: those of the function come from as far away as so many others leave
    /// them.
    pub constant_bytes: u64,
}

/// Most elements of a constant input: larger ones take longer to prepare than their kernels to measure.
const MAX_CONSTANT: i64 = 1 << 24;

impl Task {
    /// Bytes of a function's constant inputs, as far as their extents are known.
    pub fn constant_bytes_of(computation: &Computation) -> u64 {
        let Computation { func, constant_inputs, .. } = computation;
        let constants = func.params.iter().zip(constant_inputs).filter(|(_, is_constant)| **is_constant);
        let bytes = constants.filter_map(|(&param, _)| {
            let data = &func.buffers[param];
            let elements = data.shape.iter().try_fold(1i64, |n, e: &Expr| n.checked_mul(e.as_int()?))?;
            Some(elements.unsigned_abs() * data.dtype.bytes() as u64)
        });
        bytes.sum()
    }

    /// The key of its records.
    pub fn key(&self) -> TaskKey {
        TaskKey::new(&self.computation, &self.target)
    }

    /// Why it cannot be measured on made-up data, if so: extents must be known, and no element may be an index.
    pub fn obstacle(&self) -> Option<&'static str> {
        let Computation { func, constant_inputs, .. } = &self.computation;
        if !func.sizes.is_empty() {
            return Some("open extents");
        }
        let inputs = func.params[..func.n_inputs].iter().map(|&p| &func.buffers[p]);
        for (n, data) in inputs.enumerate() {
            if data.dtype != DType::F32 {
                return Some("an operand that is not of 32-bit floats");
            }
            let elements = data.shape.iter().try_fold(1i64, |n, e: &Expr| n.checked_mul(e.as_int()?));
            let is_constant = constant_inputs.get(n) == Some(&true);
            if is_constant && elements.is_none_or(|n| n > MAX_CONSTANT) {
                return Some("a very large constant");
            }
        }
        None
    }
}

/// Names a function and a family of machines.
///
/// The function is known by its definition, layouts and constants; names are not part of it, but for those of blocks, which
/// decisions speak of.
/// The family is what schedules are made for: instruction set level, vectors, registers, the caches of one core and
/// the code generator; for a device its kind and its generation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    /// Digest of the function.
    pub function: String,
    /// The family.
    pub family: String,
}

impl TaskKey {
    /// The key of a function for a target.
    pub fn new(computation: &Computation, target: &Target) -> TaskKey {
        let function = Digest::of("task", |writer| computation.write_definition(writer));
        TaskKey { function: function.short(16), family: family(target) }
    }
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.function, self.family)
    }
}

/// What of a target schedules depend on.
pub fn family(target: &Target) -> String {
    if let (Some(device), Some(gpu)) = (target.device, target.gpu) {
        return format!("{device}:{gpu}");
    }
    let machine = &target.machine;
    let gpu = target.gpu.map(|gpu| format!("{gpu}/")).unwrap_or_default();
    format!(
        "{gpu}{};vector={};registers={};l1d={};l2={};{}",
        machine.level(),
        target.vector_bits(),
        target.n_vector_registers(),
        machine.caches.l1d,
        machine.caches.l2,
        target.codegen.kind
    )
}

/// Digest of what is done to a function.
pub fn strategy_digest<S: Serialize>(strategy: &FuncStrategy<S>) -> String {
    Digest::of_data("strategy", strategy).short(8)
}
