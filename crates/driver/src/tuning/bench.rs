//! Measures kernels of files on a device: what the measuring process does, which needs no compiler.
//!
//! Requests come in lines, and so do answers. A device that is lost stays lost for its process, which then ends; whoever asked starts
//! another one.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tilewright_run::measure::turns::{agree, alternate, repeats};
use tilewright_runtime::device::{Device, DeviceError};
use tilewright_runtime::kernel_run::{KernelRunError, LoadedKernels};
use tilewright_tune::{Effort, MeasureError, Times};

use crate::kernel_file::{self, KernelEntry, OutputDef};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    /// The file with the rules' own schedule.
    pub(super) reference: PathBuf,
    /// The file with the other.
    pub(super) candidate: PathBuf,
    /// Bytes of other constants between two uses of one.
    pub(super) far: u64,
    /// How long; nothing for a trial that is confirmed where it is promising.
    pub(super) effort: Option<Effort>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Times.
    pub(super) times: Option<Times>,
    /// Those that confirm them.
    pub(super) confirmed: Option<Times>,
    /// Why there are none.
    pub(super) error: Option<String>,
    /// Whether results differ.
    pub(super) is_wrong: bool,
    /// Whether the device failed, so that this process is of no more use.
    pub(super) is_lost: bool,
}

/// What the process says when it is ready; then comes the name of the device.
pub(super) const READY: &str = "ready ";

/// Answers requests until there are no more, or the device is lost.
///
/// # Errors
/// Where requests cannot be read, or answers not be written.
pub fn serve(device: &dyn Device, requests: impl BufRead, mut answers: impl Write) -> std::io::Result<()> {
    writeln!(answers, "{READY}{}", device.name())?;
    answers.flush()?;
    let mut bench = Bench { device, reference: None };
    for line in requests.lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let answer = match serde_json::from_str::<Request>(&line) {
            Ok(request) => bench.answer(&request),
            Err(error) => Answer { error: Some(format!("no request: {error}")), ..Answer::default() },
        };
        writeln!(answers, "{}", serde_json::to_string(&answer)?)?;
        answers.flush()?;
        if answer.is_lost {
            break;
        }
    }
    Ok(())
}

/// A device, with the rules' own schedule that was asked for last.
struct Bench<'d> {
    device: &'d dyn Device,
    reference: Option<Reference>,
}

/// The rules' own schedule of a function.
struct Reference {
    path: PathBuf,
    far: u64,
    kernels: LoadedKernels,
    outputs: Vec<OutputDef>,
    repeat: usize,
    /// What it computes, as soon as that was needed.
    found: Option<Vec<Vec<u8>>>,
}

/// Why there is no answer.
enum Trouble {
    /// The candidate is at fault, or its file.
    Measure(MeasureError),
    /// The device is lost.
    Lost(DeviceError),
}

impl From<MeasureError> for Trouble {
    fn from(error: MeasureError) -> Trouble {
        Trouble::Measure(error)
    }
}

impl From<DeviceError> for Trouble {
    fn from(error: DeviceError) -> Trouble {
        match error {
            DeviceError::Fault { .. } => Trouble::Lost(error),
            DeviceError::Unfit { .. }
            | DeviceError::Code { .. }
            | DeviceError::Memory { .. }
            | DeviceError::Stream { .. } => Trouble::Measure(MeasureError::Failed(error.to_string())),
        }
    }
}

impl From<KernelRunError> for Trouble {
    fn from(error: KernelRunError) -> Trouble {
        match error {
            KernelRunError::Device(error) => error.into(),
            KernelRunError::Contradiction { .. } => MeasureError::Failed(error.to_string()).into(),
        }
    }
}

impl Bench<'_> {
    fn answer(&mut self, request: &Request) -> Answer {
        match self.measure(request) {
            Ok((times, confirmed)) => Answer { times: Some(times), confirmed, ..Answer::default() },
            Err(Trouble::Measure(error)) => {
                let is_wrong = matches!(error, MeasureError::Wrong(_));
                Answer { error: Some(error.to_string()), is_wrong, ..Answer::default() }
            }
            Err(Trouble::Lost(error)) => {
                Answer { error: Some(error.to_string()), is_lost: true, ..Answer::default() }
            }
        }
    }

    fn measure(&mut self, request: &Request) -> Result<(Times, Option<Times>), Trouble> {
        let Request { reference: path, candidate, far, effort } = request;
        let known = self.reference.take().filter(|known| known.path == *path && known.far == *far);
        let mut reference = match known {
            Some(known) => known,
            None => Reference::new(self.device, path, *far)?,
        };
        let measured = self.measure_beside(&mut reference, candidate, *far, *effort);
        self.reference = Some(reference);
        measured
    }

    fn measure_beside(
        &self,
        reference: &mut Reference,
        candidate: &Path,
        far: u64,
        effort: Option<Effort>,
    ) -> Result<(Times, Option<Times>), Trouble> {
        let (entry, mut kernels) = load(self.device, candidate, far)?;
        // A fault is kept aside: what is measured by turns knows but one kind of error.
        let mut lost = None;
        let mut times_of = |reference: &mut Reference, kernels: &mut LoadedKernels, effort| {
            let repeat = reference.repeat;
            let run = |kernels: &mut LoadedKernels| {
                timed(kernels, repeat).map_err(|error| {
                    let message = error.to_string();
                    lost = Some(error);
                    MeasureError::Failed(message)
                })
            };
            let times = alternate([&mut reference.kernels, kernels], run, repeat, effort);
            times.map_err(|error| lost.take().map_or(Trouble::Measure(error), Trouble::from))
        };
        let times = times_of(reference, &mut kernels, effort.unwrap_or(Effort::Trial))?;
        let confirms = match effort {
            Some(Effort::Trial) => return Ok((times, None)),
            Some(Effort::Confirm) => None,
            None if !times.is_faster() => return Ok((times, None)),
            None => Some(times_of(reference, &mut kernels, Effort::Confirm)?),
        };
        if confirms.as_ref().unwrap_or(&times).is_faster() {
            reference.check(&entry, &mut kernels)?;
        }
        Ok((times, confirms))
    }
}

impl Reference {
    fn new(device: &dyn Device, path: &Path, far: u64) -> Result<Reference, Trouble> {
        let (entry, mut kernels) = load(device, path, far)?;
        timed(&mut kernels, 1)?;
        let once = timed(&mut kernels, 1)?.min(timed(&mut kernels, 1)?);
        let (path, outputs, repeat) = (path.to_path_buf(), entry.outputs, repeats(once));
        Ok(Reference { path, far, kernels, outputs, repeat, found: None })
    }

    /// Whether a candidate computes the same.
    fn check(&mut self, entry: &KernelEntry, kernels: &mut LoadedKernels) -> Result<(), Trouble> {
        if self.found.is_none() {
            self.kernels.run()?;
            self.found = Some(self.kernels.outputs()?);
        }
        kernels.run()?;
        let found = kernels.outputs()?;
        let expected = self.found.as_deref().unwrap_or_default();
        let agrees = found.len() == expected.len()
            && found.iter().zip(expected).zip(&self.outputs).all(|((found, expected), output)| {
                found.len() == expected.len()
                    && agree(output.dtype(), found, expected, |element| output.is_padding(element))
            });
        match agrees {
            true => Ok(()),
            false => {
                let message = format!("{} computes something else when tuned", entry.program.name);
                Err(MeasureError::Wrong(message).into())
            }
        }
    }
}

fn load(device: &dyn Device, path: &Path, far: u64) -> Result<(KernelEntry, LoadedKernels), Trouble> {
    let entries = kernel_file::read(path).map_err(|error| MeasureError::Failed(error.to_string()))?;
    let [entry] = <[KernelEntry; 1]>::try_from(entries)
        .map_err(|_| MeasureError::Failed(format!("{} has not one function", path.display())))?;
    let kernels = entry.load(device, far)?;
    Ok((entry, kernels))
}

/// The time of so many runs at once: the device's, or the host's where the device tells none.
fn timed(kernels: &mut LoadedKernels, times: usize) -> Result<Duration, DeviceError> {
    let start = Instant::now();
    let of_device = kernels.run_timed(times)?;
    Ok(of_device.map_or_else(|| start.elapsed(), |nanoseconds| Duration::from_secs_f64(nanoseconds / 1e9)))
}
