//! What a model runs on, as verbs that run models are told.

use tilewright::devices::DevicesError;

use crate::failure::{Exit, Failure};
use crate::options::CompileArgs;

/// The name of the processor among devices.
pub(crate) const CPU: &str = "cpu";

/// What to run on.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct DeviceArgs {
    /// What to run on: `cpu`, `opencl` or `cuda`, or `opencl:1` for another one of its kind [default: what the artifact has
    /// code for]; an ONNX file is compiled for it
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

impl DeviceArgs {
    /// The device asked for.
    pub(crate) fn name(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// The options of a compilation that is run on the device: for such a one, unless they name a target.
    pub(crate) fn target_of(&self, args: &CompileArgs) -> CompileArgs {
        match self.name() {
            None | Some(CPU) => args.clone(),
            Some(name) => args.clone().or_target(name.split(':').next().unwrap_or(name)),
        }
    }
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
