//! The function from requests to answers.
//!
//! A candidate runs by turns with the rules' own schedule, so that what slows the machine slows both. Constants come from as far away
//! as in a model: between two runs of a function as many other bytes are read as the request says. On one thread the time is the
//! processor's for this thread, so that other processes which take the processor away do not count.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tilewright_dtype::DType;
use tilewright_runtime::artifact::Plans;
use tilewright_runtime::pool::{Pool, Serial};
use tilewright_runtime::threads::{ThreadPool, available_threads};
use tilewright_runtime::{Cancel, LoadError, Loader, Session, SessionOptions, TensorView, Trust};

use super::blobs::{BlobError, BlobId, Blobs};
use super::made_up::{Ring, noise};
use super::repeat::{Input, repeat as repeated};
use super::request::{Answer, Check, Contents, Request, RequestError, Schedule, VERSION};
use super::times::{Effort, MeasureError, Times};
use super::turns::{agree, alternate, repeats};

/// Schedules of the rules' that are kept loaded.
const MOST_REFERENCES: usize = 256;

/// Measures on this machine, in this process.
///
/// What it keeps from one request to the next (schedules that were loaded, how often these run) saves time, and changes no answer.
#[derive(Default)]
pub struct Bench {
    cancel: Cancel,
    supply: Supply,
    /// By their threads.
    pools: Vec<(usize, Arc<dyn Pool>)>,
    /// The rules' own schedules, the one that was used last at the end.
    references: Vec<Reference>,
}

/// What functions that are measured read.
#[derive(Default)]
struct Supply {
    activations: Ring,
    constants: Ring,
}

/// A function that can be run.
struct Subject {
    session: Session,
    inputs: Vec<Input>,
    /// Bytes of constants that come between two uses of one.
    span: usize,
}

/// An output of a function.
type Output = (DType, Vec<u8>);

/// The rules' own schedule.
struct Reference {
    schedule: Schedule,
    span: u64,
    threads: usize,
    subject: Subject,
    /// How often it runs in a run that is timed.
    repeat: usize,
    /// What it made of some inputs.
    found: Option<(Vec<Contents>, Vec<Output>)>,
}

fn failed(error: impl fmt::Display) -> MeasureError {
    MeasureError::Failed(error.to_string())
}

impl From<BlobError> for MeasureError {
    fn from(error: BlobError) -> MeasureError {
        MeasureError::Unavailable(error.to_string())
    }
}

impl From<LoadError> for MeasureError {
    /// Code for other processors says nothing of the schedule.
    fn from(error: LoadError) -> MeasureError {
        match error {
            LoadError::Isa(error) => MeasureError::Unavailable(error.to_string()),
            error => failed(error),
        }
    }
}

impl Bench {
    /// Measures until it is asked to stop: then it runs nothing any more.
    pub fn until(cancel: Cancel) -> Bench {
        Bench { cancel, ..Bench::default() }
    }

    /// The answer to a request that came as bytes.
    ///
    /// # Errors
    /// [`RequestError`] where the bytes are no request. All that can go wrong with a measurement is part of the answer.
    pub fn answer(&mut self, request: &[u8], blobs: &dyn Blobs) -> Result<Answer, RequestError> {
        let decoded = Request::from_bytes(request)?;
        let result = self.measure(&decoded, blobs);
        Ok(Answer { version: VERSION, request: BlobId::of(request), result })
    }

    fn pool(&mut self, threads: usize) -> Arc<dyn Pool> {
        if let Some((_, pool)) = self.pools.iter().find(|(n, _)| *n == threads) {
            return pool.clone();
        }
        let pool: Arc<dyn Pool> = match threads {
            1 => Arc::new(Serial),
            _ => Arc::new(ThreadPool::new(threads)),
        };
        self.pools.push((threads, pool.clone()));
        pool
    }

    /// Times of a candidate and of the rules' own schedule.
    ///
    /// # Errors
    /// Where there are no times, or no equal results.
    pub fn measure(&mut self, request: &Request, blobs: &dyn Blobs) -> Result<Times, MeasureError> {
        let threads = request.threads.max(1);
        let machine = Machine { pool: self.pool(threads), blobs, cancel: &self.cancel };
        let is_known = |known: &Reference| {
            known.schedule == request.reference && known.span == request.span && known.threads == threads
        };
        let mut reference = match self.references.iter().position(is_known) {
            Some(place) => self.references.remove(place),
            None => machine.reference(&mut self.supply, request)?,
        };
        let times = machine.beside(&mut self.supply, &mut reference, request);
        self.references.push(reference);
        if self.references.len() > MOST_REFERENCES {
            self.references.remove(0);
        }
        times
    }
}

/// What a request is measured with.
struct Machine<'a> {
    pool: Arc<dyn Pool>,
    blobs: &'a dyn Blobs,
    cancel: &'a Cancel,
}

impl Machine<'_> {
    fn load(&self, schedule: &Schedule, repeat: usize) -> Result<(Session, Vec<Input>), MeasureError> {
        let artifact = self.blobs.get(&schedule.artifact)?;
        let change = |plans: &mut [Plans]| repeated(plans, &schedule.constants, repeat);
        let (model, inputs) = Loader::new(Trust::Origin).from_changed(&artifact, change)?;
        let options = SessionOptions { pool: self.pool.clone(), ..SessionOptions::default() };
        Ok((model.session_with(options), inputs))
    }

    /// A function that runs `repeat` times at once on what it is given.
    fn subject(&self, schedule: &Schedule, span: u64, repeat: usize) -> Result<Subject, MeasureError> {
        let (session, inputs) = self.load(schedule, repeat)?;
        let constants: usize = inputs.iter().filter(|input| input.is_constant).map(Input::room).sum();
        let span = usize::try_from(span).map_err(failed)?.max(constants / repeat.max(1));
        Ok(Subject { session, inputs, span })
    }

    /// Loads the rules' own schedule, and finds out how often to repeat it.
    fn reference(&self, supply: &mut Supply, request: &Request) -> Result<Reference, MeasureError> {
        let Request { reference: schedule, span, .. } = request;
        let mut subject = self.subject(schedule, *span, 1)?;
        self.run(&mut subject, supply)?;
        let once = self.run(&mut subject, supply)?.min(self.run(&mut subject, supply)?);
        let repeat = repeats(once);
        if repeat > 1 {
            subject = self.subject(schedule, *span, repeat)?;
        }
        let (schedule, threads) = (schedule.clone(), self.pool.threads());
        Ok(Reference { schedule, span: *span, threads, subject, repeat, found: None })
    }

    fn beside(
        &self,
        supply: &mut Supply,
        reference: &mut Reference,
        request: &Request,
    ) -> Result<Times, MeasureError> {
        let Request { candidate, span, effort, .. } = request;
        let repeat = reference.repeat;
        let mut subject = self.subject(candidate, *span, repeat)?;
        let shared_by = request.shared_by.unwrap_or_else(available_threads);
        let slowdown = match self.pool.threads() {
            1 => candidate.imbalance(shared_by) / reference.schedule.imbalance(shared_by),
            _ => 1.0,
        };
        let run = |subject: &mut Subject| self.run(subject, supply);
        let mut times = alternate([&mut reference.subject, &mut subject], run, repeat, *effort)?;
        times.candidate.iter_mut().for_each(|time| *time *= slowdown);
        match &request.check {
            Some(check) if *effort == Effort::Confirm && times.is_faster() => {
                self.check(reference, request, check)?;
            }
            Some(_) | None => {}
        }
        Ok(times)
    }

    /// Whether a candidate computes what the rules' own schedule does.
    fn check(&self, reference: &mut Reference, request: &Request, check: &Check) -> Result<(), MeasureError> {
        let found = self.outputs(&request.candidate, &check.candidate)?;
        let known = reference.found.take().filter(|(contents, _)| *contents == check.reference);
        let expected = match known {
            Some((_, expected)) => expected,
            None => self.outputs(&reference.schedule, &check.reference)?,
        };
        let agrees = found.len() == expected.len()
            && found.iter().zip(&expected).enumerate().all(|(n, ((dtype, found), (_, expected)))| {
                let is_padding = |place| check.padding.get(n).is_some_and(|padding| padding.is_at(place));
                agree(*dtype, found, expected, is_padding)
            });
        reference.found = Some((check.reference.clone(), expected));
        match agrees {
            true => Ok(()),
            false => {
                let name = &request.name;
                Err(MeasureError::Wrong(format!("{name} computes something else when tuned")))
            }
        }
    }

    /// What a function makes of some inputs.
    fn outputs(&self, schedule: &Schedule, contents: &[Contents]) -> Result<Vec<Output>, MeasureError> {
        let (mut session, inputs) = self.load(schedule, 1)?;
        if contents.len() != inputs.len() {
            let (is, has) = (inputs.len(), contents.len());
            return Err(failed(format!("a function of {is} inputs, of which the request has {has}")));
        }
        let bytes = contents.iter().zip(&inputs).map(|(contents, input)| match contents {
            Contents::Noise(seed) => Ok(noise(*seed, input.dims.iter().product())),
            Contents::Blob(id) => Ok(self.blobs.get(id)?.to_vec()),
        });
        let bytes = bytes.collect::<Result<Vec<Vec<u8>>, MeasureError>>()?;
        if bytes.iter().zip(&inputs).any(|(bytes, input)| bytes.len() != input.bytes()) {
            return Err(failed("an input that is not as long as its extents say"));
        }
        let view = |(input, bytes)| view(input, bytes);
        let views: Vec<_> = inputs.iter().zip(bytes.iter().map(Vec::as_slice)).map(view).collect();
        let outputs = session.run(&views).map_err(failed)?;
        Ok(outputs.iter().map(|(_, view)| (view.dtype, view.bytes.to_vec())).collect())
    }

    /// The time of a run, on activations that are near and constants that are far away.
    fn run(&self, subject: &mut Subject, supply: &mut Supply) -> Result<Duration, MeasureError> {
        if self.cancel.is_cancelled() {
            return Err(MeasureError::Cancelled);
        }
        let Subject { session, inputs, span } = subject;
        let near: usize = inputs.iter().filter(|input| !input.is_constant).map(Input::room).sum();
        supply.activations.grow(near);
        supply.activations.rewind();
        supply.constants.grow(*span);
        let take = |input: &Input| match input.is_constant {
            true => supply.constants.take(input.bytes(), *span),
            false => supply.activations.take(input.bytes(), near),
        };
        let places: Vec<_> = inputs.iter().map(take).collect();
        let bytes = inputs.iter().zip(&places).map(|(input, place)| match input.is_constant {
            true => supply.constants.piece(place),
            false => supply.activations.piece(place),
        });
        let views: Vec<_> = inputs.iter().zip(bytes).map(|(input, bytes)| view(input, bytes)).collect();
        let clock = Clock::start(self.pool.threads());
        session.run(&views).map_err(failed)?;
        Ok(clock.elapsed())
    }
}

fn view<'a>(input: &'a Input, bytes: &'a [u8]) -> TensorView<'a> {
    TensorView::new(DType::F32, &input.dims, bytes)
}

/// The clock of a run.
#[derive(Clone, Copy)]
enum Clock {
    /// What passes.
    Wall(Instant),
    /// What the processor spends on this thread.
    Thread(Duration),
}

impl Clock {
    /// A clock for work on so many threads.
    fn start(threads: usize) -> Clock {
        if threads > 1 { Clock::Wall(Instant::now()) } else { Clock::Thread(Clock::of_thread()) }
    }

    fn elapsed(self) -> Duration {
        match self {
            Clock::Wall(start) => start.elapsed(),
            Clock::Thread(start) => Clock::of_thread().saturating_sub(start),
        }
    }

    fn of_thread() -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        // The clock starts at 0 and its nanoseconds are below a second.
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }
}
