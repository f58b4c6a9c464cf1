//! Times of instructions by the device's own events, for observers that ask for them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::device::{DeviceError, Stream};

/// The stream of a session, where it has one.
type OfSession = Option<Box<dyn Stream>>;

/// The marks of a run's stream around what the device does.
pub(super) struct Timing {
    /// Instructions in the order in which they ran, each between two marks.
    spans: Vec<(usize, u32, u32)>,
}

impl Timing {
    /// Switches times on, where the device has them.
    pub(super) fn start(stream: &mut OfSession) -> Result<Option<Timing>, DeviceError> {
        let is_on = stream.as_mut().map_or(Ok(false), |stream| stream.set_timing(true))?;
        Ok(is_on.then(|| Timing { spans: Vec::new() }))
    }

    /// Marks where the stream is.
    pub(super) fn mark(stream: &mut OfSession) -> Result<u32, DeviceError> {
        stream.as_mut().map_or(Ok(0), |stream| stream.mark())
    }

    /// Notes an instruction that ran between two marks.
    pub(super) fn add(&mut self, index: usize, begin: u32, end: u32) {
        self.spans.push((index, begin, end));
    }

    /// Switches times off; gives the nanoseconds of what is done, by instruction in the order in which they ran.
    pub(super) fn finish(self, stream: &mut OfSession) -> Result<Vec<(usize, f64)>, DeviceError> {
        let Some(stream) = stream else { return Ok(Vec::new()) };
        let times = self.spans.iter().map(|&(index, begin, end)| Ok((index, stream.elapsed(begin, end)?)));
        let times = times.collect();
        stream.set_timing(false).and(times)
    }
}
