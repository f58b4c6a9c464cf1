//! Search over schedules, and the database of what it found.
//!
//! A [`Task`] is a function of a model with the target it is for. Its space is what the schedule rules offer at
//! their choice points; [`tune`] proposes points of it, has them measured beside the rules' own schedule, and
//! records what it learns as [`Entry`]s of a [`Database`]. A compilation that finds an entry for one of its
//! functions schedules that function as the entry says.
//!
//! - [`task`]: functions and their keys, which know no names of the user's model.
//! - [`space`]: points of a task's space, found by scheduling.
//! - [`cost`]: the model that learns from measurements which points are worth one.
//! - [`measure`]: who measures; whoever generates code implements it.
//! - [`runners`]: measurements on several machines at once.
//! - [`rounds`]: schedules that are measured on another machine, as files, and what came of them.
//! - [`search`]: which task and which points next, until the budget is spent; [`outcome`]: how it stands.
//! - [`fit`]: a machine's timing, from what was measured of many tasks.
//! - [`entry`], [`database`], [`journal`]: what is known, sets of it, and a file of it that survives any kill.
//!
//! Nothing here can make a result wrong: every point of a space is a schedule that the rules' primitives made.

pub mod cost;
pub mod database;
pub mod entry;
pub mod fit;
pub mod journal;
pub mod measure;
pub mod outcome;
mod queue;
pub mod rounds;
pub mod runners;
pub mod search;
pub mod shipped;
pub mod space;
mod standing;
pub mod task;

pub use database::{Database, LeftOut, Lookup, Stats};
pub use entry::{Entry, Finding};
pub use journal::{Journal, JournalError};
pub use measure::{Effort, Job, Measure, MeasureError, Measured, Take, Times};
pub use outcome::{Budget, Outcome, TaskOutcome, Watch};
pub use rounds::{Round, RoundError, Trial, TrialResult};
pub use runners::{Lost, Patience, Runner, Runners};
pub use search::{propose, tune};
pub use task::{Task, TaskKey};
