//! How fast a model is loaded and run, and how much memory that takes.

use std::time::{Duration, Instant};

use crate::timing::{Summary, measure, peak_bytes};
use crate::values::{self, Named};
use crate::{Model, RunError, Session};

/// What a measurement comes to.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "remote", derive(serde::Serialize, serde::Deserialize))]
pub struct Figures {
    /// Times of runs.
    pub times: Summary,
    /// Time until the model was ready to run.
    pub load: Duration,
    /// The most memory that the process has held, in bytes, where the system tells.
    pub peak_bytes: Option<u64>,
    /// The extents that the program which ran is specialised for; none where it is the one for all.
    pub extents: Vec<(String, u64)>,
}

/// A model that was measured, and on what.
pub struct Measured {
    /// What it came to.
    pub figures: Figures,
    /// The model.
    pub model: Model,
    /// Its inputs, which runs took by turns.
    pub inputs: Vec<Named>,
}

/// Times of runs of all sessions at once, each on a thread of its own, and the most memory that the process has held. One copy, however a
/// model is loaded.
fn runs(
    model: &Model,
    sessions: &mut [Session],
    given: &[Named],
    seconds: f64,
) -> Result<(Summary, Option<u64>), RunError> {
    let named: Vec<_> = given.iter().map(|given| values::inputs(given)).collect();
    let arranged = named.iter().map(|named| model.inner().arrange(named)).collect::<Result<Vec<_>, _>>();
    let arranged = &arranged?;
    let runs = sessions.iter_mut().map(|session| {
        let mut turns = arranged.iter().cycle();
        move || match turns.next() {
            Some(inputs) => session.run_values(inputs.tensors(), inputs.values()).map(drop),
            None => Ok(()),
        }
    });
    // The memory before anything else is done with the model, which would show.
    Ok((measure(seconds, runs.collect())?.summary(), peak_bytes()))
}

/// Loads a model and lets `sessions` of it run for some seconds, all at once, each on a thread of its own. Each takes the inputs one after the
/// other, from the first again behind the last.
///
/// # Errors
/// What loading, the inputs, or a run says.
pub fn bench<E: From<RunError> + Send>(
    load: impl FnOnce() -> Result<Model, E>,
    inputs: impl FnOnce(&Model) -> Result<Vec<Named>, E>,
    sessions: usize,
    seconds: f64,
) -> Result<Measured, E> {
    let start = Instant::now();
    let model = load()?;
    let mut sessions: Vec<Session> = (0..sessions).map(|_| model.session()).collect();
    let load = start.elapsed();
    let given = inputs(&model)?;
    let (times, peak_bytes) = runs(&model, &mut sessions, &given, seconds)?;
    let first = sessions.first();
    let extents = first.map_or(Vec::new(), |session| session.program().extents().to_vec());
    Ok(Measured { figures: Figures { times, load, peak_bytes, extents }, model, inputs: given })
}
