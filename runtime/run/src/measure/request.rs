//! Requests and answers, as data. Their bytes are JSON.

use serde::{Deserialize, Serialize};

use super::blobs::BlobId;
use super::times::{Effort, MeasureError, Times};

/// Version of requests and answers.
pub const VERSION: u32 = 1;

/// Most threads that a request may ask for.
const MAX_THREADS: usize = 1024;

/// Most bytes between two uses of a constant that a request may ask for.
const MAX_SPAN: u64 = 1 << 32;

/// Two schedules of a function, and how they are measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// The name of the function, for people.
    pub name: String,
    /// The rules' own schedule. The machine finds by it how often a function runs in a run that is timed.
    pub reference: Schedule,
    /// What is measured beside it.
    pub candidate: Schedule,
    /// Bytes of other constants that are read between two uses of one, at least.
    pub span: u64,
    /// Threads that both run on. On one, the time is the processor's for that thread.
    pub threads: usize,
    /// Threads that work is shared out to in the end, where it is measured on one; nothing for all of the machine that measures.
    pub shared_by: Option<usize>,
    /// How long to measure.
    pub effort: Effort,
    /// What results are held against each other on, where the candidate is faster.
    pub check: Option<Check>,
}

/// A schedule that was compiled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// An artifact that runs the function once. Its inputs are 32-bit floats.
    pub artifact: BlobId,
    /// Which of its inputs are constants of the function.
    pub constants: Vec<bool>,
    /// What each of its kernels has to do.
    pub work: Vec<Work>,
}

/// What a kernel has to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Tasks, which threads share.
    pub tasks: u64,
    /// Instructions of a task.
    pub instructions: f64,
}

/// Inputs for which two schedules must compute the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Inputs of the reference.
    pub reference: Vec<Contents>,
    /// The same inputs, laid out as the candidate wants them.
    pub candidate: Vec<Contents>,
    /// What of each output is padding.
    pub padding: Vec<Padding>,
}

/// The bytes of an input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contents {
    /// [`noise`](super::made_up::noise) of this seed.
    Noise(u64),
    /// The bytes of a digest.
    Blob(BlobId),
}

/// Which elements of an output are padding of its layout: those that belong to no index of the tensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Padding {
    /// Extents of the tensor.
    pub logical: Vec<i64>,
    /// Extents of what lies in memory.
    pub physical: Vec<i64>,
    /// What each dimension in memory is of which dimension of the tensor, outermost first: the index of a dimension is made of its
    /// pieces, by their factors.
    pub pieces: Vec<(usize, Option<i64>)>,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// [`VERSION`].
    pub version: u32,
    /// The digest of the request's bytes.
    pub request: BlobId,
    /// Times, or why there are none.
    pub result: Result<Times, MeasureError>,
}

/// Bytes that are no request, or no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// They do not decode.
    #[error("no measurement of this version: {0}")]
    Foreign(String),
    /// Another version.
    #[error("a measurement of version {found}; this program knows version {VERSION}")]
    Version {
        /// What the bytes say.
        found: u32,
    },
    /// It asks for more than any machine has.
    #[error("the request wants {asked} {what}; {most} are the most")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How many.
        asked: u64,
        /// How many it may ask for.
        most: u64,
    },
    /// An answer to something else.
    #[error("the answer is to request {found}, not to {asked}")]
    OtherRequest {
        /// What was asked.
        asked: BlobId,
        /// What was answered.
        found: BlobId,
    },
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Decodes bytes of this version.
fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RequestError> {
    let foreign = |error: serde_json::Error| RequestError::Foreign(error.to_string());
    match serde_json::from_slice::<Versioned>(bytes).map_err(foreign)? {
        Versioned { version: VERSION } => serde_json::from_slice(bytes).map_err(foreign),
        Versioned { version } => Err(RequestError::Version { found: version }),
    }
}

impl Request {
    /// The request that some bytes are.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Request, RequestError> {
        let request: Request = decode(bytes)?;
        let limits = [
            ("threads", request.threads as u64, MAX_THREADS as u64),
            ("bytes between uses of a constant", request.span, MAX_SPAN),
        ];
        match limits.into_iter().find(|(_, asked, most)| asked > most) {
            Some((what, asked, most)) => Err(RequestError::Limit { what, asked, most }),
            None => Ok(request),
        }
    }

    /// Its bytes, whose [digest](BlobId::of) its answer names.
    ///
    /// # Errors
    /// None in fact: all that a request consists of has a form in JSON.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }

    /// The digests whose bytes a measurement needs, each once.
    pub fn blobs(&self) -> Vec<BlobId> {
        let mut ids = vec![self.reference.artifact, self.candidate.artifact];
        if let Some(check) = &self.check {
            ids.extend(check.reference.iter().chain(&check.candidate).filter_map(
                |contents| match contents {
                    Contents::Noise(_) => None,
                    Contents::Blob(id) => Some(*id),
                },
            ));
        }
        ids.sort();
        ids.dedup();
        ids
    }
}

impl Answer {
    /// The answer that some bytes are, to the request of some others.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn from_bytes(bytes: &[u8], request: &[u8]) -> Result<Answer, RequestError> {
        let answer: Answer = decode(bytes)?;
        match BlobId::of(request) {
            asked if asked == answer.request => Ok(answer),
            asked => Err(RequestError::OtherRequest { asked, found: answer.request }),
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// None in fact: all that an answer consists of has a form in JSON.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(self)
    }
}

impl Schedule {
    /// For the threads given, how much longer the kernels take than evenly shared work would: instructions of all of them together,
    /// where each thread waits for those with the most tasks of a kernel.
    pub fn imbalance(&self, threads: usize) -> f64 {
        let threads = (threads as u64).max(1);
        let (mut even, mut uneven) = (0.0, 0.0);
        for Work { tasks, instructions } in &self.work {
            even += *tasks as f64 * instructions;
            uneven += (tasks.div_ceil(threads) as f64 * threads as f64) * instructions;
        }
        if even > 0.0 { uneven / even } else { 1.0 }
    }
}

impl Padding {
    /// Whether the element at a place in memory is padding.
    pub fn is_at(&self, place: usize) -> bool {
        let mut rest = place as i64;
        let mut indices = vec![0; self.physical.len()];
        for (index, extent) in indices.iter_mut().zip(&self.physical).rev() {
            let extent = (*extent).max(1);
            (*index, rest) = (rest % extent, rest / extent);
        }
        let mut of_dims = vec![0i64; self.logical.len()];
        for ((dim, factor), index) in self.pieces.iter().zip(indices) {
            if let Some(of_dim) = of_dims.get_mut(*dim) {
                *of_dim = of_dim.saturating_mul(factor.unwrap_or(1)).saturating_add(index);
            }
        }
        of_dims.iter().zip(&self.logical).any(|(index, extent)| index >= extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let id = BlobId::of;
        let schedule = |bytes| Schedule {
            artifact: id(bytes),
            constants: vec![false, true],
            work: vec![Work { tasks: 3, instructions: 10.5 }],
        };
        let contents = |bytes| vec![Contents::Noise(0), Contents::Blob(id(bytes))];
        let padding =
            Padding { logical: vec![5], physical: vec![2, 4], pieces: vec![(0, None), (0, Some(4))] };
        Request {
            version: VERSION,
            name: "product".into(),
            reference: schedule(b"rules"),
            candidate: schedule(b"other"),
            span: 1 << 20,
            threads: 1,
            shared_by: None,
            effort: Effort::Confirm,
            check: Some(Check {
                reference: contents(b"x"),
                candidate: contents(b"x"),
                padding: vec![padding],
            }),
        }
    }

    #[test]
    fn requests_and_answers_come_back() {
        let request = request();
        let bytes = request.to_bytes().unwrap();
        assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
        let mut expect = [BlobId::of(b"rules"), BlobId::of(b"other"), BlobId::of(b"x")];
        expect.sort();
        assert_eq!(request.blobs(), expect);
        let times = Times { candidate: vec![0.1, 2.0], baseline: vec![1.0, 1e9] };
        for result in [Ok(times), Err(MeasureError::Cancelled), Err(MeasureError::Wrong("no".into()))] {
            let answer = Answer { version: VERSION, request: BlobId::of(&bytes), result };
            let answered = answer.to_bytes().unwrap();
            assert_eq!(Answer::from_bytes(&answered, &bytes).unwrap(), answer);
            let other = Answer::from_bytes(&answered, b"another");
            assert!(matches!(other, Err(RequestError::OtherRequest { .. })));
        }
    }

    #[test]
    fn what_is_no_request_is_told() {
        let changed = |change: fn(&mut Request)| {
            let mut request = request();
            change(&mut request);
            Request::from_bytes(&request.to_bytes().unwrap()).unwrap_err()
        };
        assert!(matches!(changed(|r| r.version = 7), RequestError::Version { found: 7 }));
        assert!(matches!(changed(|r| r.threads = 5000), RequestError::Limit { what: "threads", .. }));
        assert!(matches!(changed(|r| r.span = u64::MAX), RequestError::Limit { .. }));
        for bytes in [&b""[..], b"{}", b"a shopping list", b"{\"version\":1}"] {
            assert!(matches!(Request::from_bytes(bytes), Err(RequestError::Foreign(_))));
        }
    }

    #[test]
    fn padding_is_what_has_no_index() {
        let check = request().check.unwrap();
        let padded: Vec<usize> = (0..8).filter(|place| check.padding[0].is_at(*place)).collect();
        assert_eq!(padded, [5, 6, 7]);
        assert!(!(0..8).any(|place| Padding::default().is_at(place)));
    }

    #[test]
    fn uneven_work_takes_longer() {
        let schedule = request().reference;
        assert_eq!(schedule.imbalance(1), 1.0);
        assert_eq!(schedule.imbalance(2), 4.0 / 3.0);
        assert_eq!(Schedule { work: vec![], ..schedule }.imbalance(2), 1.0);
    }
}
