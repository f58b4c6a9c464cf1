//! One form of each weight for all programs: functions of different extents read the same constants, and where each packed them
//! as suits it best, an artifact would hold them several times.
//!
//! A function's strategy says how its constants are packed. Functions that read the same constants agree on one form, the
//! one that costs least in all by the rules' own model, where none pays more than [`MOST`] for it.

use rustc_hash::FxHashMap;
use tilewright_autosched::{Decisions, Form, Offer, offers, plan};
use tilewright_graph::{Graph, Tensor};
use tilewright_lower::{LoweredFunc, Program, Step};
use tilewright_machine::Target;
use tilewright_tune::TaskKey;

use crate::error::CompileError;
use crate::options::Options;
use crate::parallel;
use crate::units::{self, Different};

/// How much dearer than its best a schedule may be, for the sake of a form that others read too.
const MOST: f64 = 1.1;

/// What a function could do.
struct Choice {
    decisions: Decisions,
    /// Its cost, that of the best being 1.
    cost: f64,
    /// How it packs its constants.
    forms: Vec<Form>,
}

/// What is to be decided otherwise than by default in each function of the programs, so that they share weights.
///
/// # Errors
/// Functions that cannot be scheduled: defects.
pub(crate) fn settle(
    graphs: &[Graph],
    programs: &[Program],
    target: &Target,
    options: &Options,
) -> Result<Vec<Decisions>, CompileError> {
    let funcs: Vec<&LoweredFunc> = programs.iter().flat_map(|program| &program.funcs).collect();
    let none = vec![Decisions::default(); funcs.len()];
    if programs.len() < 2 {
        return Ok(none);
    }
    let Different { funcs: different, of } = units::different(&funcs, &none, target, options)?;
    let default = |lowered: &&LoweredFunc| default_forms(lowered, target, options);
    let defaults = different.iter().map(|(_, func, _)| *func).collect::<Vec<_>>();
    let defaults = parallel::map("schedule", &defaults, &options.work(), &mut |_| {}, default)?;
    let groups = groups(graphs, programs, &of, &defaults);
    let mut settled = vec![Decisions::default(); different.len()];
    for group in groups {
        let forms = group.iter().map(|&func| &defaults[func]);
        if forms.collect::<std::collections::BTreeSet<_>>().len() < 2 {
            continue;
        }
        let choices = |&func: &usize| choices(different[func].1, target);
        let choices = parallel::map("schedule", &group, &options.work(), &mut |_| {}, choices)?;
        let Some(forms) = best_forms(&choices) else { continue };
        for (&func, choices) in group.iter().zip(choices) {
            if let Some(choice) = choices.into_iter().find(|choice| choice.forms == forms) {
                settled[func] = choice.decisions;
            }
        }
    }
    Ok(of.iter().map(|&func| settled[func].clone()).collect())
}

/// How the rules pack the constants of a function; nothing where it packs none, or records of tuning say what to do.
fn default_forms(lowered: &LoweredFunc, target: &Target, options: &Options) -> Vec<Form> {
    let computation = &lowered.computation;
    let is_tuned = options.records.candidates(&TaskKey::new(computation, target)).next().is_some();
    if is_tuned || !computation.constant_inputs.contains(&true) {
        return Vec::new();
    }
    // What is wrong with the function is said when it is scheduled for good.
    let planned = plan(computation, &units::in_space(target, lowered.space), &Decisions::default());
    planned.map_or_else(|_| Vec::new(), |planned| planned.forms(computation))
}

/// Functions that read the same constants packed, by their numbers among the different ones.
#[allow(
    clippy::mutable_key_type,
    reason = "what changes in a tensor is the hash of its elements, from unknown to known"
)]
fn groups(graphs: &[Graph], programs: &[Program], of: &[usize], defaults: &[Vec<Form>]) -> Vec<Vec<usize>> {
    let mut first_reader: FxHashMap<Tensor, usize> = FxHashMap::default();
    // The group of each function is that of the function it points to; a function that points to itself leads one.
    let mut leads: Vec<usize> = (0..defaults.len()).collect();
    let lead = |leads: &[usize], mut func: usize| {
        while leads[func] != func {
            func = leads[func];
        }
        func
    };
    let mut start = 0;
    for (graph, program) in graphs.iter().zip(programs) {
        for step in program.regions.values().flatten() {
            let Step::Call { func, inputs, .. } = step else { continue };
            let func = of[start + func];
            for form in &defaults[func] {
                let Some(tensor) = inputs.get(form.input).and_then(|&value| graph.constant(value)) else {
                    continue;
                };
                let other = *first_reader.entry(tensor.clone()).or_insert(func);
                let (a, b) = (lead(&leads, func), lead(&leads, other));
                leads[a.max(b)] = a.min(b);
            }
        }
        start += program.funcs.len();
    }
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); defaults.len()];
    for func in 0..defaults.len() {
        groups[lead(&leads, func)].push(func);
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// What a function could do that costs little more than the best: one decision taken otherwise; the cheapest for each way to pack its
/// constants.
fn choices(lowered: &LoweredFunc, target: &Target) -> Vec<Choice> {
    let mut choices: Vec<Choice> = Vec::new();
    for offer in
        offers(&lowered.computation, &units::in_space(target, lowered.space), MOST).into_iter().flatten()
    {
        let Offer { decisions, cost, planned } = offer;
        let choice = Choice { decisions, cost, forms: planned.forms(&lowered.computation) };
        match choices.iter_mut().find(|known| known.forms == choice.forms) {
            Some(known) if known.cost <= cost => {}
            Some(known) => *known = choice,
            None => choices.push(choice),
        }
    }
    choices
}

/// The way to pack constants that most functions offer, and of these the one that costs least in all.
fn best_forms(choices: &[Vec<Choice>]) -> Option<Vec<Form>> {
    let judge = |forms: &[Form]| {
        let takers =
            choices.iter().filter_map(|choices| choices.iter().find(|choice| choice.forms == *forms));
        takers.fold((0, 0.0), |(n, cost), choice| (n + 1, cost + choice.cost))
    };
    let mut best: Option<(&[Form], (i32, f64))> = None;
    for choice in choices.iter().flatten() {
        let (n, cost) = judge(&choice.forms);
        if best.is_none_or(|(_, (most, least))| n > most || n == most && cost < least) {
            best = Some((&choice.forms, (n, cost)));
        }
    }
    best.map(|(forms, _)| forms.to_vec())
}
