//! A client of a server: jobs as functions.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tilewright_rpc::{Blob, Client, Job, Machine, Made, Status, Token};
use tilewright_runtime::isa::Isa;

use super::VERSION;
use super::error::RemoteError;
use super::jobs::{BENCH, BenchAnswer, BenchRequest, How, MEASURE, PROFILE, ProfileRequest, RUN, RunRequest};
use super::model::RemoteModel;
use super::values::{self, Sent};
use crate::bench::Figures;
use crate::measure::{Answer, BlobError, Blobs, Request};
use crate::profile::{By, Report};
use crate::values::Named;

/// How long the client waits for a job; the server's limit is what ends one.
const LIMIT: Duration = Duration::from_secs(7 * 86_400);

/// Where a server is, and what proves to know it.
#[derive(Clone, Debug)]
pub struct Access {
    /// HOST:PORT.
    pub server: String,
    /// The file with the token; the variable [`super::TOKEN_VARIABLE`] has it where no file is named.
    pub token_file: Option<PathBuf>,
}

/// A server that was reached.
pub struct Remote {
    client: Client,
    how: How,
    /// Is told how many clients are served before this one.
    waiting: Box<dyn FnMut(u32) + Send>,
}

impl Remote {
    /// Connects to a server.
    ///
    /// # Errors
    /// Of the token, the way there, or the handshake.
    pub fn connect(access: &Access) -> Result<Remote, RemoteError> {
        let token = Token::given(access.token_file.as_deref())?;
        let client = Client::connect(&access.server, VERSION, token.as_ref())?;
        Ok(Remote { client, how: How::default(), waiting: Box::new(|_| {}) })
    }

    /// Models are loaded so.
    #[must_use]
    pub fn loading(mut self, how: How) -> Remote {
        self.how = how;
        self
    }

    /// Who waits for the machine is told how many are served before.
    #[must_use]
    pub fn waiting(mut self, told: impl FnMut(u32) + Send + 'static) -> Remote {
        self.waiting = Box::new(told);
        self
    }

    /// The server's machine.
    pub fn machine(&self) -> &Machine {
        self.client.machine()
    }

    /// The server's machine, as loaders see it.
    pub fn isa(&self) -> Isa {
        let Machine { arch, features, .. } = self.machine();
        Isa { arch: arch.clone(), features: features.clone() }
    }

    /// Who uses the machine.
    ///
    /// # Errors
    /// Of the connection.
    pub fn status(&mut self) -> Result<Status, RemoteError> {
        Ok(self.client.status()?)
    }

    /// A run; its outputs, in the model's order.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn run(&mut self, model: &RemoteModel, inputs: &Named) -> Result<Named, RemoteError> {
        let (sent, bytes) = values::encode(inputs);
        let request = RunRequest { how: self.how.clone(), inputs: sent };
        let made = self.job(RUN, model, &request, bytes)?;
        let outputs = self.answer(&made)?;
        self.outputs(outputs, &made)
    }

    /// A measurement on sets of inputs, on noise where there are none; with the outputs of a run on the first, where these are wanted.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn bench(
        &mut self,
        model: &RemoteModel,
        inputs: &[Named],
        sessions: usize,
        seconds: f64,
        outputs: bool,
    ) -> Result<(Figures, Named), RemoteError> {
        let (sent, bytes): (Vec<_>, Vec<_>) = inputs.iter().map(|set| values::encode(set)).unzip();
        let request = BenchRequest { how: self.how.clone(), inputs: sent, sessions, seconds, outputs };
        let made = self.job(BENCH, model, &request, bytes.concat())?;
        let BenchAnswer { figures, outputs } = self.answer(&made)?;
        Ok((figures, self.outputs(outputs, &made)?))
    }

    /// A profile on inputs, or on noise.
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn profile(
        &mut self,
        model: &RemoteModel,
        inputs: Option<&Named>,
        seconds: f64,
        by: By,
    ) -> Result<Report, RemoteError> {
        let (sent, bytes) = inputs.map(|inputs| values::encode(inputs)).unzip();
        let request = ProfileRequest { how: self.how.clone(), inputs: sent, seconds, by };
        let made = self.job(PROFILE, model, &request, bytes.unwrap_or_default())?;
        self.answer(&made)
    }

    /// A measurement of schedules, whose artifacts are among `blobs`.
    ///
    /// # Errors
    /// [`RemoteError`]; what can go wrong with the measurement itself is part of the answer.
    pub fn measure(&mut self, request: &Request, blobs: &dyn Blobs) -> Result<Answer, RemoteError> {
        let bytes = request.to_bytes().map_err(RemoteError::Json)?;
        let blobs = request.blobs().into_iter().map(|id| Ok(Blob::new(blobs.get(&id)?.to_vec())));
        let blobs = blobs.collect::<Result<Vec<_>, BlobError>>()?;
        let mut lease = self.client.lease(&mut self.waiting)?;
        let made = lease.run(&Job { kind: MEASURE, request: &bytes, blobs: &blobs, limit: LIMIT })?;
        drop(lease);
        let server = || self.client.server().to_string();
        Answer::from_bytes(&made.answer, &bytes)
            .map_err(|error| RemoteError::Measurement { server: server(), error })
    }

    fn job(
        &mut self,
        kind: &str,
        model: &RemoteModel,
        request: &impl Serialize,
        values: Vec<Vec<u8>>,
    ) -> Result<Made, RemoteError> {
        // Before anything is uploaded.
        model.check(self.client.server(), self.client.machine())?;
        let server = || self.client.server().to_string();
        let request = postcard::to_allocvec(request)
            .map_err(|error| RemoteError::Request { server: server(), error })?;
        let mut blobs = vec![model.blob.clone()];
        blobs.extend(values.into_iter().map(Blob::new));
        let mut lease = self.client.lease(&mut self.waiting)?;
        Ok(lease.run(&Job { kind, request: &request, blobs: &blobs, limit: LIMIT })?)
    }

    fn answer<A: DeserializeOwned>(&self, made: &Made) -> Result<A, RemoteError> {
        let server = || self.client.server().to_string();
        postcard::from_bytes(&made.answer).map_err(|error| RemoteError::Answer { server: server(), error })
    }

    fn outputs(&self, sent: Vec<Sent>, made: &Made) -> Result<Named, RemoteError> {
        let server = || self.client.server().to_string();
        values::decode(&sent, &made.blobs).map_err(|error| RemoteError::Outputs { server: server(), error })
    }
}
