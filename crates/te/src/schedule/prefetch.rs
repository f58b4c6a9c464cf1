//! `prefetch`: what later iterations access, asked for now.

use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{self, Block, Func, Loop, LoopKind, Scope, Stmt};
use crate::schedule::region::{Accesses, accessed, bind};
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// Hints for what a block accesses of a buffer in an iteration of a loop, spread over the iterations of the loops inside.
///
/// One iteration of `around` asks, in the course of the loops from there down to `loop_name`, for the elements that the
/// iteration `distance` ahead accesses, or would if the loop went on as it does: for each value of the loops `along` one
/// element, that at which all other loops inside are at their first iteration, or one for each cache line of them. They
/// are spread evenly. Memory that is far away arrives while something else is worked on; hardware alone follows a stream
/// only inside of a page, and only where steps are regular. Values are not affected. Loops that prefetch can be neither split nor fused, and the buffer keeps its place and layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefetch {
    /// The loop in whose iterations the hints are given.
    pub loop_name: String,
    /// The block that accesses the buffer, inside of `around`.
    pub block: String,
    /// What it accesses, a buffer in global memory.
    pub buffer: String,
    /// The loop whose iterations are served: `loop_name`, or one around it.
    pub around: String,
    /// How many iterations of `around` ahead.
    pub distance: i64,
    /// Over how many iterations of a loop of open extent to spread them.
    pub assumed: i64,
    /// Loops inside of `around` whose iterations access different memory, outermost first.
    pub along: Vec<String>,
    /// Loops around `loop_name`, inside of `around` or around it, in the first iterations of which alone hints are given: the others find
    /// what the first have asked for.
    #[serde(default)]
    pub first_of: Vec<String>,
    /// Elements of a cache line: where what is accessed lies closer together, one hint serves all of a line.
    pub line: i64,
}

/// Where hints are given, and for what.
struct Places<'f> {
    func: &'f Func,
    /// Path of the loop whose iterations are served.
    outer: tree::Path,
    around: &'f Loop,
    /// The loops from `around` to the one that gives the hints.
    giving: Vec<&'f Loop>,
    /// All loops inside of `around`.
    inside: Vec<Var>,
    /// The loops whose iterations access different memory, with their extents.
    along: Vec<(Var, i64)>,
    block: &'f Block,
    buffer: Buffer,
}

impl Places<'_> {
    /// An element at the first iteration of all loops inside but the free ones.
    fn at_first(&self, element: &Expr, free: &[(Var, i64)]) -> Expr {
        let is_free = |v: Var| free.iter().any(|(var, _)| *var == v);
        element.substitute(&|v| (self.inside.contains(&v) && !is_free(v)).then(|| Expr::int(0)))
    }

    /// The distance in elements from an iteration of `around` to the next, if it is constant for all that have one.
    fn stride_around(&self, element: &Expr) -> Option<i64> {
        let var = self.around.var;
        let mut but_for_last = tree::simplifier_within(self.func, &self.outer, &self.around.body);
        but_for_last.bind_range(var, 0, self.around.extent.clone() - 1);
        let next = element.substitute_var(var, &(Expr::var(var) + 1));
        but_for_last.simplify(&(next - element.clone())).as_int()
    }

    /// The place of a line, where lines do not follow one another evenly: its number is that of an iteration of the loops
    /// `along`.
    fn at_line(&self, element: &Expr, line: &Expr, lines: i64) -> Expr {
        let mut unit = lines;
        let mut digits: Vec<(Var, Expr)> = Vec::new();
        for (var, extent) in &self.along {
            unit /= extent;
            let digit = line.clone().floor_div(Expr::int(unit)).floor_mod(Expr::int(*extent));
            digits.push((*var, digit));
        }
        element.substitute(&|v| {
            let digit = digits.iter().find(|(var, _)| *var == v).map(|(_, digit)| digit.clone());
            digit.or_else(|| self.inside.contains(&v).then(|| Expr::int(0)))
        })
    }
}

impl Prefetch {
    /// Finds the loops, the block and the buffer, and checks that hints may be given there.
    fn find<'f>(&self, func: &'f Func, path: &[usize]) -> Result<Places<'f>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.loop_name, reason));
        let outer = tree::find_loop(func, Self::NAME, &self.around)?;
        if !path.starts_with(&outer) {
            return fail(format!("`{}` is not around it", self.around));
        }
        let within = tree::find_block(func, Self::NAME, &self.block)?;
        if !within.starts_with(&outer) {
            return fail(format!("block `{}` is not inside `{}`", self.block, self.around));
        }
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        if func.buffers[buffer].scope != Scope::Global {
            return fail(format!("`{}` is not in global memory", self.buffer));
        }
        let (Some(around), Some(block)) = (tree::loop_at(func, &outer), tree::block_at(func, &within)) else {
            return fail("the loops are not as named".into());
        };
        let giving: Vec<_> =
            (outer.len()..=path.len()).filter_map(|n| tree::loop_at(func, &path[..n])).collect();
        if let Some(other) = giving[1..].iter().find(|l| l.kind != LoopKind::Serial) {
            return fail(format!("`{}` is {:?}", func.vars[other.var].name, other.kind));
        }
        if matches!(giving[0].kind, LoopKind::Vectorized | LoopKind::Thread(_)) {
            return fail(format!("`{}` is {:?}", self.around, giving[0].kind));
        }
        let mut inside: Vec<&Loop> = Vec::new();
        tree::for_each_loop(&around.body, &mut |l| inside.push(l));
        let mut along: Vec<(Var, i64)> = Vec::new();
        for name in &self.along {
            let found = inside.iter().find(|l| func.vars[l.var].name == *name);
            let Some((var, extent)) = found.and_then(|l| Some((l.var, l.extent.as_int()?))) else {
                return fail(format!("`{name}` is no loop of constant extent inside `{}`", self.around));
            };
            along.push((var, extent));
        }
        let inside = inside.into_iter().map(|l| l.var).collect();
        Ok(Places { func, outer, around, giving, inside, along, block, buffer })
    }

    /// That the loops `first_of` are in their first iterations.
    fn condition(&self, func: &Func, path: &[usize]) -> Result<Option<Expr>, ScheduleError> {
        let mut conditions = Vec::new();
        for name in &self.first_of {
            let at = tree::find_loop(func, Self::NAME, name)?;
            let Some(l) = tree::loop_at(func, &at).filter(|_| path.starts_with(&at) && path != at) else {
                let reason = format!("`{name}` is not around it");
                return Err(ScheduleError::new(Self::NAME, &self.loop_name, reason));
            };
            conditions.push(Expr::var(l.var).equals(Expr::int(0)));
        }
        Ok(tree::conjunction(conditions))
    }

    /// Where the block accesses the buffer, in elements, over loop variables.
    fn element(&self, places: &Places<'_>) -> Result<Expr, String> {
        let accesses = accessed(places.block, places.buffer, Accesses::All);
        let [indices] = &accesses[..] else {
            let n = accesses.len();
            return Err(format!("block `{}` accesses `{}` at {n} places", self.block, self.buffer));
        };
        let row_major = indices.iter().zip(&places.func.buffers[places.buffer].shape);
        let element =
            row_major.fold(Expr::int(0), |element, (i, extent)| element * extent.clone() + i.clone());
        if element.any(&mut |e| matches!(e.kind(), ExprKind::Load(..))) {
            return Err(format!("where block `{}` accesses `{}` is data", self.block, self.buffer));
        }
        Ok(bind(places.block, &element))
    }

    /// The hints of one iteration of the loop that gives them.
    fn hints(&self, places: &Places<'_>) -> Result<Vec<func::Prefetch>, String> {
        let element = self.element(places)?;
        let Places { func, outer, around, giving, along, buffer, .. } = places;
        let counting = &giving[1..];
        let lines = along.iter().try_fold(1i64, |n, (_, extent)| n.checked_mul(*extent));
        let is_open = counting.iter().any(|l| l.extent.as_int().is_none());
        let extent = |l: &Loop| l.extent.as_int().unwrap_or(self.assumed).max(1);
        let steps = counting.iter().try_fold(1i64, |n, l| n.checked_mul(extent(l)));
        let (Some(lines), Some(steps)) = (lines, steps) else {
            return Err("there are too many iterations".into());
        };
        let step = counting.iter().fold(Expr::int(0), |n, l| n * l.extent.clone() + Expr::var(l.var));
        let simplifier = tree::simplifier_within(func, outer, &around.body);
        // What an iteration of the loop itself accesses lies evenly as a rule; then so does what comes after its last, instead of
        // where its variable would have to go on to. That also takes the least arithmetic.
        let stride = if counting.is_empty() { places.stride_around(&element) } else { None };
        let (element, ahead) = match stride {
            Some(stride) => (element + stride * self.distance, Expr::var(around.var)),
            None => (element, Expr::var(around.var) + self.distance),
        };
        let stride = line_stride(&simplifier, &places.at_first(&element, along), along);
        let (lines, stride) = match stride {
            Some(stride) if (1..self.line).contains(&stride) => {
                ((lines.saturating_mul(stride) + self.line - 1) / self.line, Some(self.line))
            }
            stride => (lines, stride),
        };
        let share = (lines + steps - 1) / steps;
        let hint = |n: i64| {
            let line = step.clone() * share + n;
            let element = match stride {
                Some(stride) => {
                    // What the last of known iterations ask for too much is harmless.
                    let line = if is_open { line.min(Expr::int(lines - 1)) } else { line };
                    places.at_first(&element, &[]).substitute_var(around.var, &ahead) + line * stride
                }
                None => places
                    .at_line(&element, &line.min(Expr::int(lines - 1)), lines)
                    .substitute_var(around.var, &ahead),
            };
            func::Prefetch { buffer: *buffer, element: simplifier.simplify(&element), condition: None }
        };
        Ok((0..share).map(hint).collect())
    }
}

impl Apply for Prefetch {
    const NAME: &'static str = "prefetch";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let path = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let hints = self.hints(&self.find(func, &path)?);
        let mut hints = hints.map_err(|reason| ScheduleError::new(Self::NAME, &self.loop_name, reason))?;
        let condition = self.condition(func, &path)?;
        hints.iter_mut().for_each(|hint| hint.condition.clone_from(&condition));
        if let Some(l) = tree::loop_at_mut(func, &path) {
            l.prefetches.extend(hints);
        }
        Ok(Vec::new())
    }
}

/// The distance of lines in elements, if they follow one another evenly in the order of the loops `along`: `element`
/// is where one is, over their variables.
fn line_stride(simplifier: &Simplifier, element: &Expr, along: &[(Var, i64)]) -> Option<i64> {
    let is_one_of = |v: Var| along.iter().any(|(var, _)| *var == v);
    let first = element.substitute(&|v| is_one_of(v).then(|| Expr::int(0)));
    let at = |n: usize| element.substitute(&|v| is_one_of(v).then(|| Expr::int(i64::from(v == along[n].0))));
    let stride = simplifier.simplify(&(at(along.len().checked_sub(1)?) - first.clone())).as_int()?;
    // In mixed radix: each variable counts what those inside of it run through.
    let mut even = first;
    let mut unit = stride;
    for &(var, extent) in along.iter().rev() {
        even = even + Expr::var(var) * unit;
        unit = unit.checked_mul(extent)?;
    }
    simplifier.prove_equal(&even, element).then_some(stride)
}

/// Whether a loop prefetches from the buffer.
pub(crate) fn is_prefetched(stmts: &[Stmt], buffer: Buffer) -> bool {
    let mut found = false;
    tree::for_each_loop(stmts, &mut |l| found |= l.prefetches.iter().any(|p| p.buffer == buffer));
    found
}
