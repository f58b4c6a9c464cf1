//! What a model runs on, as verbs that run models are told.

use tilewright_driver::devices::{self, DevicesError};
use tilewright_driver::runtime::isa::Isa;
use tilewright_driver::{LoadOptions, Machine};

use crate::failure::{Exit, Failure};
use crate::options::{CompileArgs, threads};

/// The name of the processor among devices.
const CPU: &str = "cpu";

/// What to run on.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct LoadArgs {
    /// Threads; results do not depend on it [default: what the process may use]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    /// Most memory for the values of a run, as `512MiB`; a run that needs more fails [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// What to run on: `cpu`, `opencl` or `cuda`, or `opencl:1` for another one of its kind [default: what the artifact has
    /// code for]; an ONNX file is compiled for it
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
}

/// Reads a number of bytes, with a unit or without.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit {
        "" | "B" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        "TiB" => Some(40),
        _ => None,
    };
    let bytes = shift.zip(number.parse::<u64>().ok()).and_then(|(shift, n)| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| "not a number of bytes, as 1000000, 512MiB or 2GiB".to_string())
}

impl LoadArgs {
    /// The options of a compilation that is run on the device: for such a one, unless they name a target.
    pub(crate) fn target_of(&self, args: &CompileArgs) -> CompileArgs {
        match self.device.as_deref() {
            None | Some(CPU) => args.clone(),
            Some(name) => args.clone().or_target(name.split(':').next().unwrap_or(name)),
        }
    }

    /// How models are loaded.
    pub(crate) fn options(&self) -> Result<LoadOptions, Failure> {
        let options = self.options_but_threads()?;
        Ok(match self.threads {
            None => options,
            Some(threads) => options.threads(threads),
        })
    }

    /// As [`LoadArgs::options`], for a caller with a pool.
    pub(crate) fn options_but_threads(&self) -> Result<LoadOptions, Failure> {
        let options = LoadOptions::new().as_if_on(isa()?);
        let options = match self.memory_limit {
            None => options,
            Some(bytes) => options.memory_limit(bytes),
        };
        Ok(match self.device.as_deref() {
            None => options,
            Some(CPU) => options.on_host(),
            Some(name) => options.device(devices::open(name)?),
        })
    }
}

/// Variable that names a machine, as `--target` does: models are loaded as if this machine had no more.
const ISA: &str = "TILEWRIGHT_ISA";

/// The instruction set to load for: that of the machine that [`ISA`] names, else that of this one.
pub(crate) fn isa() -> Result<Isa, Failure> {
    let native = Isa::native();
    let Some(name) = std::env::var_os(ISA).filter(|name| !name.is_empty()) else { return Ok(native) };
    let machine: Result<Machine, _> = name.to_string_lossy().parse();
    let machine = machine.map_err(|error| Failure::usage(format!("{ISA}: {error}")))?;
    Ok(native.common(&tilewright_driver::isa(&machine)))
}

impl From<DevicesError> for Failure {
    fn from(error: DevicesError) -> Failure {
        let exit = match &error {
            DevicesError::Name { .. } => Exit::Usage,
            DevicesError::Cuda(_) | DevicesError::OpenCl(_) => Exit::Unsupported,
        };
        Failure::new(exit, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_may_have_a_unit() {
        for (text, expected) in [("0", 0), ("1000", 1000), ("12B", 12), ("3KiB", 3072), ("2GiB", 2 << 30)] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5GiB", "1 GiB", "1GB", "99999999TiB", "99999999999999999999"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
