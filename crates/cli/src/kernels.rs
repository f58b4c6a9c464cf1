//! `tilewright kernels`: runs kernels of a file on a device, and holds their results against those of the file. No compiler is needed.

use std::path::PathBuf;

use serde_json::json;
use tilewright_driver::devices;
use tilewright_driver::kernel_file::{self, KernelFileError};
use tilewright_driver::runtime::device::DeviceError;
use tilewright_driver::runtime::kernel_run::KernelRunError;

use crate::failure::{Exit, Failure};
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernels with what they are run on and what they are to compute
    #[arg(value_name = "FILE.twk")]
    file: PathBuf,
    /// What to run on: `cuda` or `opencl`, or `cuda:1` for another one of its kind
    #[arg(long, value_name = "DEVICE")]
    device: String,
    /// The first to run, counted from 0: where a run ended by a kernel that cost the device, the next goes on behind it
    #[arg(long, value_name = "N", default_value = "0")]
    first: usize,
    /// Print a line of JSON for each that fails, and one at the end
    #[arg(long)]
    json: bool,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let device = devices::open(&args.device)?;
    let entries = kernel_file::read(&args.file)?;
    let (mut n_run, mut n_failed, mut lost) = (0, 0, None);
    for (n, entry) in entries.iter().enumerate().skip(args.first) {
        let fault = match entry.check(&*device) {
            Ok(fault) => fault,
            Err(error @ KernelRunError::Device(DeviceError::Unfit { .. })) if n_run == 0 => {
                return Err(Failure::new(Exit::Unsupported, error));
            }
            Err(error) => {
                if let KernelRunError::Device(DeviceError::Fault { .. }) = &error {
                    lost = Some(n);
                }
                Some(error.to_string())
            }
        };
        n_run += 1;
        if let Some(fault) = fault {
            n_failed += 1;
            let name = &entry.program.name;
            match args.json {
                true => output::print_json(&json!({ "kernel": name, "fault": fault }))?,
                false => output::print(&format!("{name}: {fault}\n"))?,
            }
        }
        if lost.is_some() {
            break;
        }
    }
    if args.json {
        output::print_json(&json!({
            "kernels": entries.len(), "run": n_run, "failed": n_failed, "lost_at": lost, "device": device.name(),
        }))?;
    } else {
        output::print(&format!(
            "{n_run} of {} kernels were run on {}, {n_failed} fail\n",
            entries.len(),
            device.name()
        ))?;
    }
    match (n_failed, lost) {
        (_, Some(n)) => {
            Err(Failure::new(Exit::Check, format!("kernel {n} cost the device; `--first {}` goes on", n + 1)))
        }
        (0, None) => Ok(()),
        (n, None) => Err(Failure::new(Exit::Check, format!("{n} kernels fail"))),
    }
}

impl From<KernelFileError> for Failure {
    fn from(error: KernelFileError) -> Failure {
        let exit = match &error {
            KernelFileError::Read { .. } | KernelFileError::Write { .. } => Exit::Io,
            KernelFileError::Foreign { .. } | KernelFileError::Damaged { .. } => Exit::Data,
        };
        Failure::new(exit, error)
    }
}
