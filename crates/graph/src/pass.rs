//! Passes and the manager that runs pipelines of them.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::graph::{CycleError, Graph};
use crate::infer::InferError;
use crate::text;
use crate::verify::{Violation, verify};

/// Why a pass could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// A rewrite rule made a patch that does not fit: a bug of the rule.
    #[error("rule `{rule}` at `{node}`: {message}")]
    Rule {
        /// The rule.
        rule: &'static str,
        /// Names of the nodes it was applied to.
        node: String,
        /// What does not fit.
        message: String,
    },
    /// Operands do not fit an operator.
    #[error(transparent)]
    Infer(#[from] InferError),
    /// Nodes whose operands do not fit, which only their values tell: the model is not valid.
    #[error("operands do not fit, as their values show{}", lines(.0))]
    Misfits(Vec<InferError>),
    /// Nodes depend on one another in a circle.
    #[error(transparent)]
    Cycle(#[from] CycleError),
    /// The graph is not valid after a pass, or before the first one.
    #[error("the graph is not valid {when}{}", listed(violations))]
    Invalid {
        /// ``after pass `NAME` `` or `before the first pass`.
        when: String,
        /// Everything wrong.
        violations: Vec<Violation>,
    },
    /// The passes were asked to stop, and did before the next one.
    #[error("the passes were stopped")]
    Stopped,
    /// A pass was named that is not there.
    #[error("unknown pass `{0}`; known are: {1}")]
    Unknown(String, String),
    /// A user's pass failed.
    #[error("pass `{pass}`: {message}")]
    User {
        /// The pass.
        pass: String,
        /// What went wrong.
        message: String,
    },
}

fn listed(violations: &[Violation]) -> String {
    violations.iter().map(|violation| format!("\n  {violation}")).collect()
}

fn lines(errors: &[InferError]) -> String {
    errors.iter().map(|error| format!("\n  {error}")).collect()
}

fn check(graph: &Graph, when: impl FnOnce() -> String) -> Result<(), PassError> {
    let violations = verify(graph);
    match violations.is_empty() {
        true => Ok(()),
        false => Err(PassError::Invalid { when: when(), violations }),
    }
}

/// A transformation of graphs.
pub trait Pass {
    /// The name by which it is selected, dumped and timed.
    fn name(&self) -> &str;

    /// Transforms the graph; tells whether it changed.
    fn run(&self, graph: &mut Graph) -> Result<bool, PassError>;
}

/// A free function as a pass.
pub struct FnPass {
    name: &'static str,
    function: fn(&mut Graph) -> Result<bool, PassError>,
}

impl FnPass {
    /// The pass `name` that calls `function`.
    pub const fn new(name: &'static str, function: fn(&mut Graph) -> Result<bool, PassError>) -> FnPass {
        FnPass { name, function }
    }
}

impl Pass for FnPass {
    fn name(&self) -> &str {
        self.name
    }

    fn run(&self, graph: &mut Graph) -> Result<bool, PassError> {
        (self.function)(graph)
    }
}

/// A pass of a user's own: what it makes of a graph is always verified.
#[derive(Clone)]
pub struct UserPass(Arc<dyn Pass + Send + Sync>);

impl UserPass {
    /// That pass.
    pub fn new(pass: impl Pass + Send + Sync + 'static) -> UserPass {
        UserPass(Arc::new(pass))
    }
}

impl fmt::Debug for UserPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserPass({:?})", self.name())
    }
}

impl Pass for UserPass {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn run(&self, graph: &mut Graph) -> Result<bool, PassError> {
        let failed = |message: String| PassError::User { pass: self.name().to_owned(), message };
        let changed = self.0.run(graph).map_err(|error| match error {
            PassError::User { .. } => error,
            other => failed(other.to_string()),
        })?;
        let violations = verify(graph);
        match violations.is_empty() {
            true => Ok(changed),
            false => Err(failed(format!("it leaves a graph that is not valid{}", listed(&violations)))),
        }
    }
}

/// A part of a pipeline.
enum Stage {
    Once(Box<dyn Pass>),
    /// Run again and again until none changes the graph, at most so many rounds.
    Fixpoint(Vec<Box<dyn Pass>>, usize),
}

/// How often a pass ran, how long in all, and how often it changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The pass.
    pub name: String,
    /// Number of runs.
    pub runs: usize,
    /// Number of runs that changed the graph.
    pub changes: usize,
    /// Time of all runs.
    pub time: Duration,
}

/// What a pipeline left undone. The graph is right all the same, but may not be as simple as it could be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// Passes that run until none changes the graph still did in the last round allowed.
    Rounds {
        /// The passes that changed it.
        passes: Vec<String>,
        /// Number of rounds.
        rounds: usize,
    },
    /// Passes that did not run, or not again, since the time for the pipeline was over.
    Time {
        /// The passes.
        passes: Vec<String>,
        /// The time.
        limit: Duration,
    },
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Unfinished::Rounds { passes, .. } | Unfinished::Time { passes, .. }) = self;
        let passes: Vec<String> = passes.iter().map(|pass| format!("`{pass}`")).collect();
        let passes = passes.join(", ");
        match self {
            Unfinished::Rounds { rounds, .. } => {
                write!(f, "{passes} still changed the graph in round {rounds}, the last")
            }
            Unfinished::Time { limit, .. } => {
                write!(
                    f,
                    "{passes} did not run to the end: the {} s for passes were over",
                    limit.as_secs_f64()
                )
            }
        }
    }
}

/// Who sees the graph after each pass: its name, whether it changed the graph, and the graph.
type Watch<'a> = Box<dyn FnMut(&str, bool, &Graph) + 'a>;

/// Until when passes of a run begin.
#[derive(Clone, Copy)]
struct Deadline {
    start: Instant,
    limit: Option<Duration>,
}

impl Deadline {
    fn is_over(self) -> bool {
        self.limit.is_some_and(|limit| self.start.elapsed() >= limit)
    }
}

/// A named pipeline of passes.
pub struct PassManager<'a> {
    name: &'static str,
    stages: Vec<Stage>,
    disabled: BTreeSet<String>,
    watch: Option<Watch<'a>>,
    stop: Option<Box<dyn Fn() -> bool + 'a>>,
    limit: Option<Duration>,
    timings: Vec<Timing>,
    unfinished: Vec<Unfinished>,
}

impl<'a> PassManager<'a> {
    /// An empty pipeline.
    pub fn new(name: &'static str) -> PassManager<'a> {
        PassManager {
            name,
            stages: Vec::new(),
            disabled: BTreeSet::new(),
            watch: None,
            stop: None,
            limit: None,
            timings: Vec::new(),
            unfinished: Vec::new(),
        }
    }

    /// Name of the pipeline.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Adds a pass at the beginning.
    #[must_use]
    pub fn first(mut self, pass: impl Pass + 'static) -> PassManager<'a> {
        self.stages.insert(0, Stage::Once(Box::new(pass)));
        self
    }

    /// Adds a pass at the end.
    #[must_use]
    pub fn then(mut self, pass: impl Pass + 'static) -> PassManager<'a> {
        self.stages.push(Stage::Once(Box::new(pass)));
        self
    }

    /// Adds a pass that only runs when it is selected by name.
    #[must_use]
    pub fn then_off(mut self, pass: impl Pass + 'static) -> PassManager<'a> {
        self.disabled.insert(pass.name().to_owned());
        self.then(pass)
    }

    /// Adds passes that run in turn until none changes the graph, at most `rounds` times: see [`PassManager::unfinished`].
    #[must_use]
    pub fn until_stable(mut self, passes: Vec<Box<dyn Pass>>, rounds: usize) -> PassManager<'a> {
        self.stages.push(Stage::Fixpoint(passes, rounds));
        self
    }

    /// Sets who sees the graph after each pass: its name, whether it changed the graph, and the graph.
    pub fn set_watch(&mut self, watch: impl FnMut(&str, bool, &Graph) + 'a) {
        self.watch = Some(Box::new(watch));
    }

    /// Sets for how long passes begin. After that those that run once are left out, and those that run until the graph is stable end with
    /// the round in work, of which each has one: what follows relies on them. [`PassManager::unfinished`] tells.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = Some(limit);
    }

    /// Sets what is asked before each pass whether to stop.
    pub fn set_stop(&mut self, stop: impl Fn() -> bool + 'a) {
        self.stop = Some(Box::new(stop));
    }

    /// Names of the passes, in order.
    pub fn pass_names(&self) -> Vec<&str> {
        let passes = self.stages.iter().flat_map(|stage| match stage {
            Stage::Once(pass) => std::slice::from_ref(pass),
            Stage::Fixpoint(passes, _) => passes.as_slice(),
        });
        passes.map(|pass| pass.name()).collect()
    }

    /// Applies a selection `+a,-b`: `-` switches a pass off, `+` on again.
    pub fn select(&mut self, selection: &str) -> Result<(), PassError> {
        for item in selection.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let name = item.trim_start_matches(['+', '-']);
            if !self.pass_names().contains(&name) {
                return Err(PassError::Unknown(name.to_owned(), self.pass_names().join(", ")));
            }
            if item.starts_with('-') {
                self.disabled.insert(name.to_owned());
            } else {
                self.disabled.remove(name);
            }
        }
        Ok(())
    }

    /// Runs the pipeline; tells whether anything changed.
    pub fn run(&mut self, graph: &mut Graph) -> Result<bool, PassError> {
        check(graph, || "before the first pass".to_owned())?;
        let stages = std::mem::take(&mut self.stages);
        self.unfinished.clear();
        let result = self.run_stages(&stages, graph);
        self.stages = stages;
        result
    }

    fn run_stages(&mut self, stages: &[Stage], graph: &mut Graph) -> Result<bool, PassError> {
        let deadline = Deadline { start: Instant::now(), limit: self.limit };
        let mut late = Vec::new();
        let mut changed = false;
        for stage in stages {
            changed |= match stage {
                Stage::Once(pass) if deadline.is_over() => {
                    late.extend((!self.disabled.contains(pass.name())).then(|| pass.name().to_owned()));
                    false
                }
                Stage::Once(pass) => self.run_pass(&**pass, graph)?,
                Stage::Fixpoint(passes, rounds) => {
                    self.run_until_stable(passes, *rounds, deadline, &mut late, graph)?
                }
            };
        }
        if let (Some(limit), false) = (self.limit, late.is_empty()) {
            self.unfinished.push(Unfinished::Time { passes: late, limit });
        }
        Ok(changed)
    }

    /// Runs passes until none changes the graph. Those that did in a round with which the time was over go to `late`.
    fn run_until_stable(
        &mut self,
        passes: &[Box<dyn Pass>],
        rounds: usize,
        deadline: Deadline,
        late: &mut Vec<String>,
        graph: &mut Graph,
    ) -> Result<bool, PassError> {
        let mut restless = Vec::new();
        for round in 0..rounds {
            restless.clear();
            for pass in passes {
                if self.run_pass(&**pass, graph)? {
                    restless.push(pass.name().to_owned());
                }
            }
            if restless.is_empty() {
                return Ok(round > 0);
            }
            if deadline.is_over() {
                restless.retain(|pass| !late.contains(pass));
                late.append(&mut restless);
                return Ok(true);
            }
        }
        if !restless.is_empty() {
            self.unfinished.push(Unfinished::Rounds { passes: restless, rounds });
        }
        Ok(rounds > 0)
    }

    fn run_pass(&mut self, pass: &dyn Pass, graph: &mut Graph) -> Result<bool, PassError> {
        if self.disabled.contains(pass.name()) {
            return Ok(false);
        }
        if self.stop.as_ref().is_some_and(|stop| stop()) {
            return Err(PassError::Stopped);
        }
        let start = Instant::now();
        let changed = pass.run(graph)?;
        let time = start.elapsed();
        let index = match self.timings.iter().position(|timing| timing.name == pass.name()) {
            Some(index) => index,
            None => {
                let name = pass.name().to_owned();
                self.timings.push(Timing { name, runs: 0, changes: 0, time: Duration::ZERO });
                self.timings.len() - 1
            }
        };
        let timing = &mut self.timings[index];
        timing.runs += 1;
        timing.changes += usize::from(changed);
        timing.time += time;
        if let Some(watch) = &mut self.watch {
            watch(pass.name(), changed, graph);
        }
        check(graph, || format!("after pass `{}`", pass.name()))?;
        Ok(changed)
    }

    /// What the last run left undone.
    pub fn unfinished(&self) -> &[Unfinished] {
        &self.unfinished
    }

    /// Times of the passes run so far, in order of first run.
    pub fn timings(&self) -> &[Timing] {
        &self.timings
    }
}

/// Runs one pass on a graph in text form; for tests and tools.
pub fn run_on_text(pass: &dyn Pass, input: &str) -> Result<String, String> {
    let mut graph = text::parse(input).map_err(|error| error.to_string())?;
    pass.run(&mut graph).map_err(|error| error.to_string())?;
    Ok(text::print(&graph))
}
