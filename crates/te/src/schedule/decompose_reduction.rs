//! `decompose_reduction`: the start of a reduction as a block of its own.

use serde::{Deserialize, Serialize};

use crate::expr::{Expr, Var};
use crate::func::{Block, Func, Iter, IterKind, Loop, Stmt, VarKind};
use crate::schedule::region::domain_conditions;
use crate::schedule::{Apply, ScheduleError, bindings, tree};

/// Moves the `init` of a reduction block into a block `BLOCK_init` in front of a loop around it.
///
/// The loop and those inside it hold all of the reduction's steps. The new block gets copies, with the same
/// kinds, of those of them that its elements depend on, named `LOOP_init`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecomposeReduction {
    /// The reduction.
    pub block: String,
    /// The loop in front of which the start goes.
    pub loop_name: String,
}

impl Apply for DecomposeReduction {
    const NAME: &'static str = "decompose_reduction";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.block, reason));
        let block_path = tree::find_block(func, Self::NAME, &self.block)?;
        let loop_path = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let Some(block) = tree::block_at(func, &block_path).cloned() else { return Ok(Vec::new()) };
        if block.init.is_empty() {
            return fail("the block has no start to move".into());
        }
        if !block_path.starts_with(&loop_path) {
            return fail(format!("loop `{}` is not around the block", self.loop_name));
        }
        let loops: Vec<Loop> = tree::loops_above(func, &block_path)
            .into_iter()
            .map(|l| Loop { body: Vec::new(), ..l.clone() })
            .collect();
        let (outside, inside) = loops.split_at(loop_path.len() - 1);
        let reduces =
            |l: &&Loop| block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(l.var));
        if let Some(l) = outside.iter().find(reduces) {
            let name = &func.vars[l.var].name;
            return fail(format!("the reduction runs over `{name}`, outside of `{}`", self.loop_name));
        }
        if let Some(l) = inside.iter().find(|l| bindings::repeats(func, &block_path, l.var)) {
            return fail(format!("`{}` repeats the whole reduction", func.vars[l.var].name));
        }

        let spatial: Vec<&Iter> = block.iters.iter().filter(|i| i.kind == IterKind::Spatial).collect();
        let mut needed: Vec<&Loop> = Vec::new();
        for l in inside.iter().rev() {
            let used =
                spatial.iter().any(|i| i.value.uses(l.var)) || needed.iter().any(|n| n.extent.uses(l.var));
            if used {
                needed.push(l);
            }
        }
        needed.reverse();
        let mut renamed: Vec<(Var, Expr)> = Vec::new();
        let mut copies: Vec<Loop> = Vec::new();
        for l in needed {
            let var = tree::loop_var(func, &format!("{}_init", func.vars[l.var].name));
            let extent = substitute(&l.extent, &renamed);
            renamed.push((l.var, Expr::var(var)));
            copies.push(Loop { kind: l.kind, ..Loop::serial(var, extent, Vec::new()) });
        }
        let mut iters = Vec::new();
        let mut iter_vars: Vec<(Var, Expr)> = Vec::new();
        for iter in &spatial {
            let var = func.add_var(&format!("{}_init", func.vars[iter.var].name), VarKind::Iter);
            iter_vars.push((iter.var, Expr::var(var)));
            iters.push(Iter { var, value: substitute(&iter.value, &renamed), ..(*iter).clone() });
        }
        let is_dropped = |l: &&Loop| !renamed.iter().any(|(old, _)| *old == l.var);
        let dropped: Vec<Var> = inside.iter().filter(is_dropped).map(|l| l.var).collect();
        let conditions = conditions_of_some(func, &block_path, &dropped)
            .map_err(|reason| ScheduleError::new(Self::NAME, &self.block, reason))?;
        let predicate = tree::conjunction(conditions.iter().map(|c| substitute(c, &renamed)));
        let mut body = block.init.clone();
        for store in &mut body {
            store.indices.iter_mut().for_each(|i| *i = substitute(i, &iter_vars));
            store.value = substitute(&store.value, &iter_vars);
        }
        let name = func.unique_block_name(&format!("{}_init", self.block));
        let start = Block { name: name.clone(), iters, predicate, init: Vec::new(), body };
        let nest = copies.into_iter().rev().fold(Stmt::Block(Box::new(start)), |inner, l| {
            Stmt::Loop(Box::new(Loop { body: vec![inner], ..l }))
        });

        if let Some(block) = tree::block_at_mut(func, &block_path) {
            block.init.clear();
        }
        if let Some((&last, parents)) = loop_path.split_last()
            && let Some(stmts) = tree::list_mut(func, parents)
        {
            stmts.insert(last, nest);
        }
        tree::normalize(func);
        Ok(vec![name])
    }
}

/// Under which conditions over the other loops a reduction has any step as the loops of `dropped` vary, which are what its predicate
/// says of their first iterations; an error where nothing proves that.
///
/// What the predicate says of the reduction's variables alone is left out: over nothing, the result is the start.
fn conditions_of_some(func: &Func, path: &[usize], dropped: &[Var]) -> Result<Vec<Expr>, String> {
    let Some(block) = tree::block_at(func, path) else { return Ok(Vec::new()) };
    let mut simplifier = tree::simplifier_at(func, path);
    let mut steps = Block { predicate: None, ..block.clone() };
    steps.iters.retain(|i| i.kind == IterKind::Reduce);
    let of_steps = domain_conditions(&simplifier, &steps);
    let at_first = |v: Var| dropped.contains(&v).then(|| Expr::int(0));
    let n_facts = simplifier.n_facts();
    let mut conditions = Vec::new();
    for condition in block.predicate.iter().flat_map(tree::conjuncts) {
        let is_kept = |v: Var| func.vars[v].kind == VarKind::Loop && !dropped.contains(&v);
        let of_others = condition.any(&mut |e| e.as_var().is_some_and(is_kept));
        if !of_others || of_steps.contains(&simplifier.simplify(&condition)) {
            continue;
        }
        let first = condition.substitute(&at_first);
        if first == condition {
            conditions.push(condition);
            continue;
        }
        if simplifier.prove(&first) {
            continue;
        }
        simplifier.assume(&condition);
        if !simplifier.prove(&first) {
            return Err(format!("nothing proves in which iterations `{}` has no step at all", block.name));
        }
        simplifier.forget_facts(n_facts);
        conditions.push(simplifier.simplify(&first));
    }
    Ok(conditions)
}

fn substitute(e: &Expr, values: &[(Var, Expr)]) -> Expr {
    e.substitute(&|v| values.iter().find(|(old, _)| *old == v).map(|(_, value)| value.clone()))
}
