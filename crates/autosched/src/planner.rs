//! Plans functions by a set of rules, and applies what was planned.
//!
//! [`plan`] prepares a function, decides on its algorithm, and asks the rules for a strategy for each block; [`apply`] schedules it. A
//! plan is made once and applied once: what does not apply is a defect, not a reason to try something else.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use tilewright_machine::Target;
use tilewright_te::computation::DIRECT;
use tilewright_te::schedule::{FinishError, Padding, Primitive, Schedule, ScheduleError, relaid};
use tilewright_te::simplify::Simplifier;
use tilewright_te::verify::{self, Stage};
use tilewright_te::{Block, Computation, Func, IterKind, Variant};

use crate::algorithms::Algorithms;
use crate::context::Context;
use crate::decisions::{AutoscheduleError, Chooser, Decision, Decisions};
use crate::layouts::Layouts;
use crate::pattern::{iters_of, loads};
use crate::prepare::Prepared;
use crate::refusal::Refusal;
use crate::rule::{Packing, RuleSet, Strategy};
use crate::strategy::FuncStrategy;

/// What is to be done to a function, and how that was found.
#[derive(Clone, Debug)]
pub struct Planned<S> {
    /// The function before the first strategy applies.
    pub prepared: Prepared,
    /// What is to be done.
    pub strategy: FuncStrategy<S>,
    /// Which rule takes each block, in order.
    pub rulings: Vec<Ruling>,
    /// The decisions taken, in order, each with what else was offered.
    pub decisions: Vec<Decision>,
}

/// A scheduled function.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// The function, ready for flattening.
    pub func: Func,
    /// Name of the algorithm.
    pub algorithm: String,
    /// For each input, what makes of the constant passed there the one that `func` reads: functions of one input and one
    /// output, one after the other.
    pub packing: Vec<Vec<Func>>,
    /// Which rule scheduled each block, in order.
    pub rulings: Vec<Ruling>,
    /// The strategy, printed.
    pub strategy: String,
    /// The primitives applied, for replay.
    pub trace: Vec<Primitive>,
    /// The decisions taken, in order, each with what else was offered.
    pub decisions: Vec<Decision>,
}

/// Which rule takes a block.
#[derive(Clone, Debug)]
pub struct Ruling {
    /// The block.
    pub block: String,
    /// The rule that schedules it, alone or with the blocks next to it.
    pub rule: &'static str,
    /// Why the rules asked before did not.
    pub refused: Vec<Refusal>,
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.block, self.rule)?;
        self.refused.iter().try_for_each(|reason| write!(f, "\n    not: {reason}"))
    }
}

/// Something that could be done to a function.
#[derive(Clone, Debug)]
pub struct Offer<S> {
    /// What is decided otherwise than by default.
    pub decisions: Decisions,
    /// How much dearer it is by the model than what the rules do by default.
    pub cost: f64,
    /// What would be done.
    pub planned: Planned<S>,
}

/// A constant as a function wants it: two functions with equal forms of a constant share its memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Form {
    /// Which input it is.
    pub input: usize,
    /// The algorithm that wants it transformed, if one does.
    pub transformed: Option<String>,
    /// Its extents and layout, printed; empty where it is row-major.
    pub layout: String,
}

impl<S> Planned<S> {
    /// The plan with its strategies as another type has them.
    pub fn map<T>(self, f: impl FnMut(S) -> T) -> Planned<T> {
        let Planned { prepared, strategy: FuncStrategy { algorithm, blocks }, rulings, decisions } = self;
        let strategy = FuncStrategy { algorithm, blocks: blocks.into_iter().map(f).collect() };
        Planned { prepared, strategy, rulings, decisions }
    }
}

impl<S: Strategy> Planned<S> {
    /// How much dearer it is by the model than what the rules do by default.
    pub fn relative_cost(&self) -> f64 {
        self.decisions.iter().map(Decision::relative_cost).product()
    }

    /// The forms of the constants that are not read as they are.
    pub fn forms(&self, computation: &Computation) -> Vec<Form> {
        let variant = variant_of(computation, &self.strategy.algorithm);
        let packings: Vec<&Packing> = self.strategy.blocks.iter().flat_map(|s| s.packings()).collect();
        let func = self.prepared.func();
        let form = |input: usize| {
            let transform = variant.and_then(|variant| variant.prepare.get(input)?.as_ref());
            let packing = packings.iter().rfind(|packing| packing.input == input);
            let layout = |packing: &&&Packing| {
                format!("{:?} {}", func.buffers[func.params[input]].shape, packing.relayout)
            };
            (transform.is_some() || packing.is_some()).then(|| Form {
                input,
                transformed: transform.map(|_| self.strategy.algorithm.clone()),
                layout: packing.as_ref().map(layout).unwrap_or_default(),
            })
        };
        (0..func.n_inputs).filter_map(form).collect()
    }
}

fn variant_of<'a>(computation: &'a Computation, algorithm: &str) -> Option<&'a Variant> {
    computation.variants.iter().find(|variant| variant.algorithm == algorithm)
}

/// Plans a function for a target, as decided where `decisions` say so.
///
/// # Errors
/// Where a decision cannot be followed: it was taken for another function, target or version of the rules.
pub fn plan<S: Strategy>(
    rules: &RuleSet<S>,
    computation: &Computation,
    target: &Target,
    decisions: &Decisions,
) -> Result<Planned<S>, AutoscheduleError> {
    let mut chooser = Chooser::new(decisions);
    let (algorithm, prepared) = choose_algorithm(rules, computation, target, &mut chooser);
    let mut planner = Planner {
        rules,
        target,
        constant_inputs: &computation.constant_inputs,
        func: Cow::Borrowed(prepared.func()),
        layouts: prepared.layouts.clone(),
        taken: BTreeSet::new(),
        strategies: Vec::new(),
        rulings: Vec::new(),
        chooser,
    };
    planner.plan_whole()?;
    planner.plan_blocks()?;
    let Planner { strategies, rulings, chooser, .. } = planner;
    let (strategy, decisions) = (FuncStrategy { algorithm, blocks: strategies }, chooser.finish()?);
    Ok(Planned { prepared, strategy, rulings, decisions })
}

/// What could be done to a function: what the rules do by default, then what differs from that in one decision and is at most `most`
/// times as dear, in the order of the decisions.
///
/// # Errors
/// As `plan`, which plans the function as decided.
pub fn offers<S: Strategy>(
    plan: &dyn Fn(&Decisions) -> Result<Planned<S>, AutoscheduleError>,
    most: f64,
) -> Result<Vec<Offer<S>>, AutoscheduleError> {
    let best = plan(&Decisions::default())?;
    let mut offers = Vec::new();
    for decision in &best.decisions {
        for rank in 1..decision.candidates.len() {
            let other = Decision { chosen: rank, ..decision.clone() };
            if !(1.0..=most).contains(&other.relative_cost()) {
                continue;
            }
            let mut decisions = Decisions::default();
            decisions.set(&other.point, other.value());
            if let Ok(planned) = plan(&decisions) {
                offers.push(Offer { decisions, cost: planned.relative_cost(), planned });
            }
        }
    }
    offers.insert(0, Offer { decisions: Decisions::default(), cost: 1.0, planned: best });
    Ok(offers)
}

/// Decides on the algorithm, by default the one that the rules price lowest; gives its function, prepared.
fn choose_algorithm<S: Strategy>(
    rules: &RuleSet<S>,
    computation: &Computation,
    target: &Target,
    chooser: &mut Chooser<'_>,
) -> (String, Prepared) {
    let algorithms = Algorithms::new(computation, target);
    let candidates = algorithms.candidates(rules, target);
    let chosen = match candidates.is_empty() {
        true => None,
        false => chooser.decide("function", "algorithm", &candidates).ok(),
    };
    let chosen = chosen.unwrap_or_else(|| DIRECT.to_string());
    let prepared = algorithms.into_prepared(&chosen);
    (chosen, prepared)
}

/// A function that is being planned.
struct Planner<'a, S: 'static> {
    rules: &'a RuleSet<S>,
    target: &'a Target,
    constant_inputs: &'a [bool],
    /// As the next strategy will find it, but for the blocks that others have taken.
    func: Cow<'a, Func>,
    layouts: Layouts,
    taken: BTreeSet<String>,
    strategies: Vec<S>,
    rulings: Vec<Ruling>,
    chooser: Chooser<'a>,
}

impl<S: Strategy> Planner<'_, S> {
    fn context(&self) -> Context<'_> {
        Context {
            target: self.target,
            func: &self.func,
            layouts: &self.layouts,
            constant_inputs: self.constant_inputs,
            taken: &self.taken,
        }
    }

    /// Asks the rules for whole functions.
    fn plan_whole(&mut self) -> Result<(), ScheduleError> {
        if self.func.blocks().into_iter().any(|block| is_empty(&self.func, block)) {
            return Ok(());
        }
        for rule in self.rules.whole {
            let mut chooser = self.chooser.for_rule();
            if let Ok(strategy) = (rule.plan)(&self.context(), &mut chooser) {
                self.chooser.accept(chooser);
                return self.accept(strategy, rule.name, &[]);
            }
        }
        Ok(())
    }

    /// Asks the rules for each block that is left, phase by phase.
    fn plan_blocks(&mut self) -> Result<(), ScheduleError> {
        let phase_of = |block: &Block| self.rules.phases.iter().position(|phase| (phase.takes)(block));
        let blocks = self.func.blocks();
        let mut blocks: Vec<_> = blocks.into_iter().map(|b| (phase_of(b), b.name.clone())).collect();
        blocks.sort_by_key(|(phase, _)| phase.unwrap_or(usize::MAX));
        for (phase, block) in blocks {
            // A strategy may have taken the block along with one before it.
            if !self.taken.contains(&block) {
                self.plan_block(phase, &block)?;
            }
        }
        Ok(())
    }

    /// Takes what the first rule offers that takes the block.
    fn plan_block(&mut self, phase: Option<usize>, name: &str) -> Result<(), ScheduleError> {
        let mut refused = Vec::new();
        let mut rules =
            phase.and_then(|phase| self.rules.phases.get(phase)).map_or(&[][..], |phase| phase.rules);
        if self.func.block(name).is_some_and(|block| is_empty(&self.func, block)) {
            rules = &[];
        }
        for rule in rules {
            let mut chooser = self.chooser.for_rule();
            let context = self.context();
            let Some(block) = context.func.block(name) else { return Ok(()) };
            match (rule.plan)(&context, block, &mut chooser) {
                Ok(strategy) => {
                    self.chooser.accept(chooser);
                    return self.accept(strategy, rule.name, &refused);
                }
                Err(refusal) => refused.push(refusal),
            }
        }
        // It stays as computed, so others may still take it along.
        self.rulings.push(Ruling { block: name.to_string(), rule: "plain", refused });
        self.strategies.push(S::plain(name));
        Ok(())
    }

    /// Notes what a strategy takes, and the layouts that it gives to constants.
    fn accept(&mut self, strategy: S, rule: &'static str, refused: &[Refusal]) -> Result<(), ScheduleError> {
        for block in strategy.blocks() {
            self.taken.insert(block.clone());
            self.rulings.push(Ruling { block, rule, refused: refused.to_vec() });
        }
        self.taken.extend(strategy.copies());
        for packing in strategy.packings() {
            let relayout = packing.relayout.clone();
            if !packing.at_once {
                self.layouts.choose(relayout);
                continue;
            }
            if self.is_read_by_others(&relayout.buffer) {
                let relaid = relaid(&self.func, &relayout.buffer, &relayout.pieces, relayout.padding)?;
                self.func = Cow::Owned(relaid);
            }
            self.layouts.note_applied(relayout);
        }
        self.strategies.push(strategy);
        Ok(())
    }

    /// Whether a block reads a buffer that no strategy has taken yet.
    fn is_read_by_others(&self, buffer: &str) -> bool {
        let is_left = |block: &&Block| !self.taken.contains(&block.name);
        let reads = |block: &Block| loads(block).iter().any(|a| self.func.buffers[a.buffer].name == buffer);
        self.func.blocks().into_iter().filter(is_left).any(reads)
    }
}

/// Whether a block computes nothing, whatever sizes are: there is nothing to share out, and no time to save.
fn is_empty(func: &Func, block: &Block) -> bool {
    let sizes = Simplifier::for_sizes(func);
    let extents = iters_of(block, IterKind::Spatial).into_iter().map(|n| &block.iters[n].extent);
    extents.into_iter().any(|extent| sizes.upper_bound(extent).is_some_and(|most| most <= 0))
}

/// Schedules a function as planned.
///
/// # Errors
/// A primitive that does not apply, a defect.
pub fn apply<S: Strategy>(
    planned: Planned<S>,
    computation: &Computation,
) -> Result<Scheduled, AutoscheduleError> {
    let Planned { prepared: Prepared { mut schedule, mut layouts }, strategy, rulings, decisions } = planned;
    let n_inputs = schedule.func().n_inputs;
    let mut packing = prepare(variant_of(computation, &strategy.algorithm), n_inputs)?;
    let mut packed: Vec<Option<Func>> = vec![None; n_inputs];
    for block in &strategy.blocks {
        for packing in block.packings() {
            packed[packing.input] = Some(pack(schedule.func(), packing)?);
            match packing.at_once {
                true => layouts.note_applied(packing.relayout.clone()),
                false => layouts.choose(packing.relayout.clone()),
            }
        }
        let defect = |source| AutoscheduleError::Apply { strategy: block.to_string(), source };
        block.apply(&mut schedule).map_err(defect)?.into_iter().for_each(|relayout| layouts.choose(relayout));
    }
    for (functions, packed) in packing.iter_mut().zip(packed) {
        functions.extend(packed);
    }
    layouts.apply(&mut schedule)?;
    let trace = schedule.trace().to_vec();
    let (strategy, algorithm) = (strategy.to_string(), strategy.algorithm);
    let func = schedule.finish_for(Stage::Flattenable)?;
    Ok(Scheduled { func, algorithm, packing, rulings, strategy, trace, decisions })
}

/// What an algorithm makes of each constant input.
fn prepare(variant: Option<&Variant>, n_inputs: usize) -> Result<Vec<Vec<Func>>, AutoscheduleError> {
    let prepare = |input: usize| {
        let func = variant.and_then(|v| v.prepare.get(input)?.as_ref());
        if let Some(func) = func {
            verify::check(func, Stage::Flattenable, "its definition").map_err(FinishError::from)?;
        }
        Ok(func.cloned().into_iter().collect())
    };
    (0..n_inputs).map(prepare).collect()
}

/// The function that lays out a constant input.
fn pack(func: &Func, packing: &Packing) -> Result<Func, AutoscheduleError> {
    let data = func.buffers[func.params[packing.input]].clone();
    let mut pack = Func::new("pack");
    let source = pack.add_input("source", data.dtype, data.shape.clone());
    let packed = pack.compute("packed", data.dtype, data.shape, |f, i| f.load(source, i.to_vec()));
    pack.promote_to_output(packed);
    let mut packed = Schedule::new(pack);
    packed.transform_layout("packed", &packing.relayout.pieces, Padding::Zero)?;
    Ok(packed.finish_for(Stage::Flattenable)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_dtype::DType;
    use tilewright_te::{Expr, Stmt};

    #[test]
    fn what_an_algorithm_makes_of_constants_is_verified() {
        let mut copy = Func::new("transformed");
        let w = copy.add_input("w", DType::F32, vec![Expr::int(6)]);
        let made = copy.compute("made", DType::F32, vec![Expr::int(6)], |f, i| f.load(w, i.to_vec()));
        copy.promote_to_output(made);
        let variant = |func: &Func| Variant {
            algorithm: "other".to_string(),
            func: Func::new("other"),
            prepare: vec![None, Some(func.clone())],
        };
        let packing = prepare(Some(&variant(&copy)), 3).expect("legal");
        assert_eq!(packing.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 0]);
        let Some(Stmt::Loop(only)) = copy.body.first_mut() else { panic!("no loop") };
        let Some(Stmt::Block(block)) = only.body.first_mut() else { panic!("no block") };
        block.body[0].buffer = w;
        let error = prepare(Some(&variant(&copy)), 3).unwrap_err().to_string();
        assert!(error.contains("`transformed` is illegal after its definition"), "{error}");
        assert!(error.contains("stores to the input"), "{error}");
    }
}
