//! Models that any thread runs.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_runtime::{
    self as runtime, Allocator, Bytes, Cancel, Input, Inputs, LoadError, RunError, Session, Trust,
};

use crate::load::LoadOptions;
use crate::outputs::{Outputs, Spare};
use crate::sessions::{Own, Sessions};
use crate::spec::{self, Spec};

/// A model ready to run, from any number of threads at once. Cheap to clone.
///
/// Each run has a session for itself and leaves it to later ones, so memory is laid out once for each of the runs that happen at the
/// same time. Outputs are the caller's.
#[derive(Clone)]
pub struct Model(Arc<Inner>);

struct Inner {
    model: runtime::Model,
    options: LoadOptions,
    inputs: Vec<Spec>,
    outputs: Vec<Spec>,
    sessions: Sessions,
}

impl Model {
    /// Loads an artifact file, which stays mapped while the model lives; it must not be changed meanwhile.
    ///
    /// # Errors
    /// When the file cannot be read, is damaged, or has no code for this machine.
    pub fn load(path: impl AsRef<Path>, trust: Trust) -> Result<Model, LoadError> {
        Model::load_with(path, trust, &LoadOptions::new())
    }

    /// As [`Model::load`], with options.
    ///
    /// # Errors
    /// As [`Model::load`]; also when there is no code for the device that is asked for.
    pub fn load_with(
        path: impl AsRef<Path>,
        trust: Trust,
        options: &LoadOptions,
    ) -> Result<Model, LoadError> {
        Ok(Model::of(options.loader(trust).load(path)?, options))
    }

    /// Loads an artifact from memory. Weights are used in place where they are aligned to 64 bytes.
    ///
    /// # Errors
    /// As [`Model::load_with`].
    pub fn from_bytes(bytes: Bytes, trust: Trust, options: &LoadOptions) -> Result<Model, LoadError> {
        Ok(Model::of(options.loader(trust).from_bytes(bytes)?, options))
    }

    /// A model that is loaded already; the options say how it is run.
    pub fn of(model: runtime::Model, options: &LoadOptions) -> Model {
        let (inputs, outputs) = (spec::inputs(model.plan()), spec::outputs(model.plan()));
        let sessions = Sessions::new(options.most_sessions(model.plan()));
        Model(Arc::new(Inner { model, options: options.clone(), inputs, outputs, sessions }))
    }

    /// The model as the runtime has it.
    pub fn inner(&self) -> &runtime::Model {
        &self.0.model
    }

    /// Its inputs, in order.
    pub fn inputs(&self) -> &[Spec] {
        &self.0.inputs
    }

    /// Its outputs, in order.
    pub fn outputs(&self) -> &[Spec] {
        &self.0.outputs
    }

    /// What nodes without a seed of their own draw random numbers by.
    pub fn seed(&self) -> u64 {
        self.0.options.seed
    }

    /// Runs the model on named inputs, in any order. Where as many runs are at work as [`LoadOptions::sessions`] allows, it waits.
    ///
    /// Nodes that draw random numbers begin their streams anew in each run, by the model's seed: equal inputs give equal outputs,
    /// whichever thread runs and however often. Streams go on in a [`Session`] alone.
    ///
    /// # Errors
    /// All problems with the inputs at once, or what stopped the run.
    pub fn run<'a, N: AsRef<str>, I: Into<Input<'a>>>(
        &self,
        inputs: impl IntoIterator<Item = (N, I)>,
    ) -> Result<Outputs, RunError> {
        self.run_until(inputs, None)
    }

    /// [`Model::run`] that any thread may stop.
    ///
    /// # Errors
    /// As [`Model::run`]; [`RunError::Cancelled`] once it was asked to stop, also while it waits for others.
    pub fn run_cancellable<'a, N: AsRef<str>, I: Into<Input<'a>>>(
        &self,
        inputs: impl IntoIterator<Item = (N, I)>,
        cancel: &Cancel,
    ) -> Result<Outputs, RunError> {
        self.run_until(inputs, Some(cancel))
    }

    fn run_until<'a, N: AsRef<str>, I: Into<Input<'a>>>(
        &self,
        inputs: impl IntoIterator<Item = (N, I)>,
        cancel: Option<&Cancel>,
    ) -> Result<Outputs, RunError> {
        let inputs: SmallVec<[(N, Input<'_>); 2]> =
            inputs.into_iter().map(|(name, input)| (name, input.into())).collect();
        self.run_arranged(&self.0.model.arrange(&inputs)?, cancel)
    }

    /// Runs the model on inputs in its order: one copy, whatever they are given as.
    fn run_arranged(&self, inputs: &Inputs<'_>, cancel: Option<&Cancel>) -> Result<Outputs, RunError> {
        let Inner { options, sessions, .. } = &*self.0;
        let mut held = sessions.hold(cancel).ok_or(RunError::Cancelled)?;
        let Own { session, names, spare } = held.own(|| self.own());
        session.set_seed(options.seed);
        session.set_cancel(cancel.cloned());
        let made = session.run_new(inputs.tensors(), inputs.values(), |bytes| Spare::take(spare, bytes));
        match made {
            Ok(values) => Ok(Outputs { names: names.clone(), values }),
            Err(error) => {
                if let RunError::Device(_) = error {
                    // A device that failed may fail all that its stream is asked for later.
                    held.discard();
                }
                Err(error)
            }
        }
    }

    /// Where memory of sessions and outputs comes from, if not from Rust's allocator.
    pub fn allocator(&self) -> Option<&Arc<dyn Allocator>> {
        self.0.options.own_allocator()
    }

    /// What a run has for itself.
    fn own(&self) -> Own {
        let names = self.0.outputs.iter().map(|spec| spec.name.as_str().into()).collect();
        let allocator = self.allocator().cloned();
        let spare = Arc::new(Spare::new(self.0.outputs.len(), allocator));
        Own { session: self.session(), names, spare }
    }

    /// A session of the caller's own, with the model's threads, limit and seed. It counts for no limit of sessions.
    pub fn session(&self) -> Session {
        let mut session = self.0.model.session_with(self.0.options.session());
        session.set_seed(self.0.options.seed);
        session
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |specs: &[Spec]| specs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        write!(f, "Model(({}) -> ({}))", list(&self.0.inputs), list(&self.0.outputs))
    }
}
