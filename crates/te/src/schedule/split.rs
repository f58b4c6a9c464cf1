//! `split`: one loop into nested loops.

use serde::{Deserialize, Serialize};

use crate::expr::Expr;
use crate::func::{Func, Loop, LoopKind, Stmt};
use crate::schedule::{Apply, ScheduleError, tree};

/// Splits a loop of extent `E` into nested loops of extents `factors`, outermost first.
///
/// At most one factor is `None` and becomes `ceil(E / product of the others)`. Where the product is not
/// known to equal `E`, the blocks inside run only where the index is below `E`. The new loops are named
/// `NAME_0`, `NAME_1` and so on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Split {
    /// The loop.
    pub loop_name: String,
    /// Extents of the new loops.
    pub factors: Vec<Option<i64>>,
}

impl Apply for Split {
    const NAME: &'static str = "split";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.loop_name, reason));
        let path = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let Some(target) = tree::loop_at(func, &path).cloned() else { return Ok(Vec::new()) };
        if target.kind != LoopKind::Serial {
            return fail(format!("the loop is already {:?}", target.kind));
        }
        if let Some(tied) = target.tied() {
            return fail(format!("the loop {tied}"));
        }
        if self.factors.len() < 2 {
            return fail("at least two factors are needed".into());
        }
        if self.factors.iter().filter(|f| f.is_none()).count() > 1 {
            return fail("only one factor can be left open".into());
        }
        if let Some(bad) = self.factors.iter().flatten().find(|f| **f < 1) {
            return fail(format!("factor {bad} is not positive"));
        }
        let Some(known) = self.factors.iter().flatten().try_fold(1i64, |p, f| p.checked_mul(*f)) else {
            return fail("the product of the factors overflows".into());
        };
        let simplifier = tree::simplifier_at(func, &path);
        let rest = simplifier.simplify(&target.extent.clone().ceil_div(known));
        let is_open = self.factors.iter().any(Option::is_none);
        if !is_open && !simplifier.prove_le(&target.extent, &Expr::int(known)) {
            let extent = simplifier.simplify(&target.extent);
            return fail(format!("factors of product {known} do not cover the extent {extent:?}"));
        }
        let extents: Vec<Expr> = self.factors.iter().map(|f| f.map_or(rest.clone(), Expr::int)).collect();
        let vars: Vec<_> =
            (0..extents.len()).map(|n| tree::loop_var(func, &format!("{}_{n}", self.loop_name))).collect();

        let index = vars
            .iter()
            .zip(&extents)
            .skip(1)
            .fold(Expr::var(vars[0]), |index, (var, extent)| index * extent.clone() + Expr::var(*var));
        let total = extents.iter().cloned().fold(Expr::int(1), |p, e| p * e);
        let mut body = target.body;
        tree::map_loop_exprs(&mut body, &|e| e.substitute_var(target.var, &index));
        if !simplifier.prove_le(&total, &target.extent) {
            tree::add_predicate(&mut body, &index.lt(target.extent.clone()));
        }
        for (var, extent) in vars.iter().zip(extents).skip(1).rev() {
            body = vec![Stmt::Loop(Box::new(Loop::serial(*var, extent, body)))];
        }
        let outer_extent = self.factors[0].map_or(rest, Expr::int);
        if let Some(l) = tree::loop_at_mut(func, &path) {
            *l = Loop::serial(vars[0], outer_extent, body);
        }
        tree::normalize(func);
        Ok(vars.into_iter().map(|v| func.vars[v].name.clone()).collect())
    }
}
