//! Every gap of a model at once: what one stage refuses is cut out, so that the stages after it can look at the rest.
//!
//! A compilation that is refused asks for the survey, and so does whoever wants the gaps alone: all get the same list. A model
//! that compiles is not surveyed.

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_graph::cut::cut;
use tilewright_graph::{Graph, NodeId, ValueId};
use tilewright_lower::{Anchor, LowerError, LoweredFunc, Program, Step, plan};
use tilewright_machine::Target;
use tilewright_onnx::OnnxModel;
use tilewright_onnx::import::{Origins, Partial, import_partial};

use crate::error::CompileError;
use crate::forms;
use crate::front_end::{check_choice, import, import_options, lower_options, simplify};
use crate::gap::{Gap, Stage};
use crate::options::Options;
use crate::specialise;
use crate::units::{self, Schedules};

/// Most times that what is left of a graph is lowered. Lowering tells all its gaps at once, the plan one a round; so this bounds
/// the gaps of the plan that are listed, and the time that a model of nothing else takes.
const MOST_ROUNDS: usize = 64;

/// What a survey finds.
#[derive(Debug)]
pub struct Survey {
    /// The simplified graph; none where import has gaps.
    pub graph: Option<Graph>,
    /// Everything that is not supported, by stage.
    pub gaps: Vec<Gap>,
}

/// Finds everything of a model that the options' targets do not support: what [`crate::compile()`] refuses it for.
///
/// Of programs for some extents only that for all of them is looked at. Where one stage fails for the sake of what others left
/// out, the survey ends there.
///
/// # Errors
/// Where the model is not valid, or nothing is known to be unsupported and a stage fails all the same: the error of
/// [`crate::compile()`].
pub fn survey(model: &OnnxModel, options: &Options) -> Result<Survey, CompileError> {
    specialise::combinations(&options.dims)?;
    let Partial { mut graph, faults, origins } = import_partial(model, &import_options(options));
    if faults.iter().any(|fault| !fault.kind.is_unsupported()) {
        // These may come of what was left out. The import of the whole model tells.
        match import(model, options, &mut Vec::new()) {
            Ok(_) | Err(CompileError::Gaps(_)) => {}
            Err(error) => return Err(error),
        }
    }
    let inputs = model.graph().input.iter().map(|input| input.name().to_string()).collect();
    let mut found = Found { inputs, origins, gaps: Vec::new(), known: FxHashSet::default() };
    let of_import = faults.into_iter().filter(|fault| fault.kind.is_unsupported());
    of_import.for_each(|fault| found.add(Gap::of_fault(fault)));
    let is_whole = found.gaps.is_empty();
    let rest = found.of_rest(&mut graph, options);
    if let Err(error) = rest
        && found.gaps.is_empty()
    {
        return Err(error);
    }
    let mut gaps = found.gaps;
    gaps.sort_by_key(|gap| gap.stage);
    Ok(Survey { graph: is_whole.then_some(graph), gaps })
}

/// The error of a compilation, with all gaps of the model if it is for gaps.
pub(crate) fn with_all_gaps(error: CompileError, model: &OnnxModel, options: &Options) -> CompileError {
    match error {
        CompileError::Gaps(first) => match survey(model, options) {
            Ok(Survey { gaps, .. }) if !gaps.is_empty() => CompileError::Gaps(gaps),
            Ok(_) | Err(_) => CompileError::Gaps(first),
        },
        other => other,
    }
}

/// Gaps so far.
struct Found {
    /// Names of the model's inputs; others stand for what was left out.
    inputs: FxHashSet<String>,
    origins: Origins,
    gaps: Vec<Gap>,
    known: FxHashSet<Gap>,
}

impl Found {
    /// Adds a gap, unless it is known: targets share most.
    fn add(&mut self, gap: Gap) {
        if self.known.insert(gap.clone()) {
            self.gaps.push(gap);
        }
    }

    /// The gaps of what import leaves, which is simplified on the way.
    fn of_rest(&mut self, graph: &mut Graph, options: &Options) -> Result<(), CompileError> {
        simplify(graph, options, &mut ())?;
        check_choice(graph, options)?;
        options.targets().try_for_each(|target| self.of_target(graph.clone(), target, options))
    }

    fn of_target(
        &mut self,
        mut graph: Graph,
        target: &Target,
        options: &Options,
    ) -> Result<(), CompileError> {
        let mut rounds = 0;
        let program = loop {
            rounds += 1;
            match lower_and_plan(&graph, target, options) {
                Ok(program) => break program,
                Err((stage, LowerError::Unsupported(gaps))) => {
                    let (nodes, values) = places(&gaps);
                    for gap in gaps {
                        if !self.is_of_stand_in(&graph, &gap) {
                            self.add(Gap::of_graph(stage, gap, &self.origins));
                        }
                    }
                    if rounds == MOST_ROUNDS || !cut(&mut graph, &nodes, &values) {
                        return Ok(());
                    }
                }
                Err((stage, error)) => return Err(CompileError::of_lowering(stage, error)),
            }
        };
        self.of_code(graph, program, target, options)
    }

    /// Whether a gap is that of an input in place of what was left out, and none of the model.
    fn is_of_stand_in(&self, graph: &Graph, gap: &tilewright_lower::Gap) -> bool {
        let Anchor::Value(value) = gap.anchor else { return false };
        let name = graph.value(value).name.as_deref().unwrap_or_default();
        graph.inputs().contains(&value) && !self.inputs.contains(name)
    }

    /// What code generators refuse of a program.
    fn of_code(
        &mut self,
        graph: Graph,
        program: Program,
        target: &Target,
        options: &Options,
    ) -> Result<(), CompileError> {
        let (graphs, programs) = ([graph], [program]);
        let [graph] = &graphs;
        let [program] = &programs;
        let funcs: Vec<&LoweredFunc> = program.funcs.iter().collect();
        let settled = forms::settle(&graphs, &programs, target, options)?;
        let cache = options.cache.as_ref();
        let Schedules { pending, of } = units::schedule(&funcs, &settled, target, options, cache)?;
        let mut refused: FxHashMap<usize, Vec<Gap>> = FxHashMap::default();
        for (unit, gap) in units::check(&pending, target, &options.work())? {
            refused.entry(unit).or_default().push(gap);
        }
        for step in program.regions.values().flatten() {
            let Step::Call { func, anchor, provenance, .. } = step else { continue };
            for gap in refused.get(&of[*func]).into_iter().flatten() {
                let names: Vec<String> = provenance.names().map(str::to_string).collect();
                let gap = gap.clone().at(graph.node(*anchor).op.name(), &names, &self.origins);
                self.add(gap);
            }
        }
        Ok(())
    }
}

/// The program of a graph for which there is a plan.
fn lower_and_plan(graph: &Graph, target: &Target, options: &Options) -> Result<Program, (Stage, LowerError)> {
    let program = tilewright_lower::lower(graph, lower_options(target, options))
        .map_err(|error| (Stage::Lower, error))?;
    plan::check(graph, &program).map_err(|error| (Stage::Plan, error))?;
    Ok(program)
}

/// What to cut for gaps.
fn places(gaps: &[tilewright_lower::Gap]) -> (Vec<NodeId>, Vec<ValueId>) {
    let (mut nodes, mut values) = (Vec::new(), Vec::new());
    for gap in gaps {
        match gap.anchor {
            Anchor::Node(node) => nodes.push(node),
            Anchor::Value(value) => values.push(value),
        }
    }
    (nodes, values)
}
