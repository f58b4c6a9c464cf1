//! `compute_at`: a producer under a loop of its consumers.

use serde::{Deserialize, Serialize};

use crate::expr::{Expr, Var};
use crate::func::{Block, Func, IterKind, Stmt, Store, VarKind};
use crate::schedule::bindings::check_kinds;
use crate::schedule::inline::plain_indices;
use crate::schedule::region::{
    Accesses, Span, accessed, bind, depends_on_data, domain_conditions, guarded, region_of,
};
use crate::schedule::{Apply, ScheduleError, tree};

/// Computes, in each iteration of a loop, what the blocks inside need of a producer's result.
///
/// The producer leaves its own nest and gets one new loop for each iteration variable, named `BLOCK_ax0` and
/// so on, over the region that is needed (a reduction variable keeps its whole domain), right before the
/// first statement that needs it. Elements outside of the buffer are not computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputeAt {
    /// The producer.
    pub block: String,
    /// The loop around all of its consumers.
    pub loop_name: String,
}

impl Apply for ComputeAt {
    const NAME: &'static str = "compute_at";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let block_path = tree::find_block(func, Self::NAME, &self.block)?;
        tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let Some(block) = tree::block_at(func, &block_path).cloned() else { return Ok(Vec::new()) };
        let kept = if block.is_reduction() { kept_conditions(func, &block, &block_path) } else { Vec::new() };
        check_nest(func, &block_path, &kept).map_err(fail)?;
        let indices = block.body[0].indices.clone();
        // Constant indices may differ: every iteration makes all of those elements.
        let same_place = |(a, b): (&Expr, &Expr)| a == b || (a.as_int().is_some() && b.as_int().is_some());
        let same_places =
            |s: &Store| s.indices.len() == indices.len() && s.indices.iter().zip(&indices).all(same_place);
        if !block.body.iter().chain(&block.init).all(same_places) {
            return Err(fail("its stores have different indices".into()));
        }
        let places = plain_indices(&block, &indices).map_err(fail)?;
        let buffers = tree::written(&block);
        for &buffer in &buffers {
            let name = &func.buffers[buffer].name;
            if func.params.contains(&buffer) {
                return Err(fail(format!("its result `{name}` is a parameter of the function")));
            }
            if func.blocks().iter().any(|b| b.name != self.block && tree::writes(b, buffer)) {
                return Err(fail(format!("another block writes `{name}`")));
            }
        }
        check_inputs(func, &block, &block_path, &self.loop_name).map_err(fail)?;

        tree::remove(func, &block_path);
        let loop_path = tree::find_loop(func, Self::NAME, &self.loop_name)
            .map_err(|_| fail(format!("loop `{}` is the block's own", self.loop_name)))?;
        let consumes = |b: &Block| buffers.iter().any(|x| tree::reads(b, *x));
        let mut inside = 0;
        for (path, other) in tree::blocks_with_paths(func) {
            if consumes(other) && !path.starts_with(&loop_path) {
                return Err(fail(format!(
                    "its consumer `{}` is not inside `{}`",
                    other.name, self.loop_name
                )));
            }
            inside += consumes(other) as usize;
            let mut read = buffers.iter().flat_map(|&b| accessed(other, b, Accesses::Reads)).flatten();
            if read.any(|index| depends_on_data(&index)) {
                return Err(fail(format!("what its consumer `{}` reads of it depends on data", other.name)));
            }
        }
        let Some(target) = tree::loop_at(func, &loop_path).filter(|_| inside > 0) else {
            return Err(fail(format!("nothing inside `{}` reads its result", self.loop_name)));
        };
        let mut simplifier = tree::simplifier_within(func, &[&loop_path[..], &[0]].concat(), &target.body);
        let regions: Vec<Vec<Span>> = buffers
            .iter()
            .filter_map(|b| region_of(func, &simplifier, &target.body, *b, Accesses::Reads))
            .collect();
        if regions.iter().any(|r| *r != regions[0]) {
            return Err(fail("its results are needed in different regions".into()));
        }
        let position = target.body.iter().position(|s| {
            let mut found = false;
            tree::for_each_block(std::slice::from_ref(s), &mut |b| found |= consumes(b));
            found
        });
        let bound = |var: Var| {
            let dim = places.iter().position(|p| *p == Some(var))?;
            regions[0].get(dim).cloned()
        };
        let spans =
            block.iters.iter().map(|i| bound(i.var).filter(|_| i.kind == IterKind::Spatial)).collect();
        let (nest, names) = rebuilt_nest(func, &mut simplifier, block, spans, kept);
        if let Some(l) = tree::loop_at_mut(func, &loop_path) {
            l.body.insert(position.unwrap_or(0), nest);
        }
        tree::normalize(func);
        check_kinds(func, &loop_path).map_err(fail)?;
        Ok(names)
    }
}

/// What a block's predicate says of its iteration variables beside that they are in their domains, as conditions over
/// those; conjuncts that cannot be said of them are left out.
fn kept_conditions(func: &Func, block: &Block, path: &[usize]) -> Vec<Expr> {
    let simplifier = tree::simplifier_at(func, path);
    let domain = domain_conditions(&simplifier, block);
    let conjuncts = block.predicate.iter().flat_map(tree::conjuncts);
    let others = conjuncts.filter(|c| !domain.contains(&simplifier.simplify(c)));
    let of_variables = |condition: Expr| {
        let iter_of = |v: Var| block.iters.iter().find(|i| i.value.as_var() == Some(v));
        let said = condition.substitute(&|v| iter_of(v).map(|i| Expr::var(i.var)));
        let rest = |v: Var| func.vars[v].kind == VarKind::Loop;
        (!said.any(&mut |e| e.as_var().is_some_and(rest))).then_some(said)
    };
    others.filter_map(of_variables).collect()
}

/// The block under new loops over the given spans (the whole domain where there is none) and under those of the
/// `conditions` (over loops around and the block's variables) that its domain does not imply, with the names of the loops.
pub(crate) fn rebuilt_nest(
    func: &mut Func,
    simplifier: &mut crate::simplify::Simplifier,
    mut block: Block,
    spans: Vec<Option<Span>>,
    conditions: Vec<Expr>,
) -> (Stmt, Vec<String>) {
    let (mut loops, mut names) = (Vec::new(), Vec::new());
    let mut guards: Vec<Expr> = Vec::new();
    for (n, (iter, span)) in block.iters.iter_mut().zip(spans).enumerate() {
        let var = tree::loop_var(func, &format!("{}_ax{n}", block.name));
        names.push(func.vars[var].name.clone());
        match span {
            None => {
                iter.value = Expr::var(var);
                loops.push((var, iter.extent.clone()));
            }
            Some(span) => {
                let (value, ends) = guarded(simplifier, &span.min, &span.extent, &iter.extent, var);
                iter.value = value;
                guards.extend(ends);
                loops.push((var, span.extent));
            }
        }
    }
    let n_facts = simplifier.n_facts();
    loops.iter().for_each(|(var, extent)| simplifier.bind_range(*var, Expr::int(0), extent.clone()));
    guards.iter().for_each(|guard| simplifier.assume(guard));
    let bound = conditions.iter().map(|condition| bind(&block, condition));
    let mut said: Vec<Expr> = bound.filter(|condition| !simplifier.prove(condition)).collect();
    simplifier.forget_facts(n_facts);
    said.extend(guards);
    block.predicate = tree::conjunction(said);
    (tree::nest(loops, Stmt::Block(Box::new(block))), names)
}

/// Whether the loops that a block iterates with are its own: no other block shares one of them, and its predicate says
/// no more than the conditions that are `kept` and that its variables are in their domains.
pub(crate) fn check_nest(func: &Func, path: &[usize], kept: &[Expr]) -> Result<(), String> {
    let Some(block) = tree::block_at(func, path) else { return Ok(()) };
    let simplifier = tree::simplifier_at(func, path);
    let domain = domain_conditions(&simplifier, block);
    let others = block.predicate.iter().flat_map(tree::conjuncts);
    if others.filter(|c| !domain.contains(&simplifier.simplify(c))).count() > kept.len() {
        let mut reduced = false;
        for l in tree::loops_above(func, path) {
            reduced |= block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(l.var));
        }
        if reduced {
            return Err("its predicate says more than that its variables are in their domains".into());
        }
    }
    let mut own_from = path.len();
    while own_from > 1 && tree::list(func, &path[..own_from - 1]).is_some_and(|l| l.len() == 1) {
        own_from -= 1;
    }
    for depth in 1..own_from {
        let Some(l) = tree::loop_at(func, &path[..depth]) else { continue };
        if block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(l.var)) {
            return Err(format!(
                "it shares the reduction loop `{}` with other blocks",
                func.vars[l.var].name
            ));
        }
    }
    Ok(())
}

/// What a block reads must stay available: a producer that is computed inside of a loop serves only blocks
/// inside of that loop.
fn check_inputs(func: &Func, block: &Block, path: &[usize], loop_name: &str) -> Result<(), String> {
    let target = tree::find_loop(func, ComputeAt::NAME, loop_name).map_err(|e| e.reason)?;
    for (other_path, other) in tree::blocks_with_paths(func) {
        let feeds =
            other.name != block.name && tree::read_buffers(block).iter().any(|b| tree::writes(other, *b));
        if !feeds {
            continue;
        }
        let shared = other_path.iter().zip(path).take_while(|(a, b)| a == b).count();
        if shared > 0 && !target.starts_with(&path[..shared]) {
            return Err(format!("its producer `{}` is computed in a loop that it would leave", other.name));
        }
        // The region that is needed says nothing of conditions: of what is made of it in the same nest there may be less.
        let consumes = |b: &Block| tree::written(block).iter().any(|buffer| tree::reads(b, *buffer));
        let is_guarded =
            |(p, b): &(tree::Path, &Block)| b.predicate.is_some() && (*p == other_path || consumes(b));
        if shared > 0
            && let Some((_, guarded)) = tree::blocks_with_paths(func).iter().find(|x| is_guarded(x))
        {
            return Err(format!(
                "its producer `{}` is in the same nest, and `{}` runs under a condition",
                other.name, guarded.name
            ));
        }
        if other_path > target {
            return Err(format!("its producer `{}` comes after the start of `{loop_name}`", other.name));
        }
    }
    Ok(())
}
