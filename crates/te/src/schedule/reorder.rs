//! `reorder`: the order of nested loops.

use serde::{Deserialize, Serialize};

use crate::expr::Var;
use crate::func::{Block, Func, IterKind, LoopKind};
use crate::schedule::{Apply, ScheduleError, bindings, tree};

/// Puts loops of one perfect nest into the given order, outermost first.
///
/// Loops between them that are not named keep their places. Loops of a reduction change their order among
/// themselves only where the reduction is commutative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reorder {
    /// The loops in their new order.
    pub loops: Vec<String>,
}

impl Apply for Reorder {
    const NAME: &'static str = "reorder";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let place = self.loops.join(", ");
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &place, reason));
        let mut paths = Vec::new();
        for name in &self.loops {
            let path = tree::find_loop(func, Self::NAME, name)?;
            if paths.contains(&path) {
                return fail(format!("`{name}` is named twice"));
            }
            paths.push(path);
        }
        let Some(outermost) = paths.iter().min_by_key(|p| p.len()).cloned() else {
            return fail("no loops are given".into());
        };
        let Some(innermost) = paths.iter().max_by_key(|p| p.len()).cloned() else { return Ok(Vec::new()) };
        if let Some(n) = paths.iter().position(|p| !innermost.starts_with(p)) {
            return fail(format!("`{}` is not in the same nest", self.loops[n]));
        }
        let mut chain = Vec::new();
        for depth in outermost.len()..=innermost.len() {
            let Some(l) = tree::loop_at(func, &innermost[..depth]) else { break };
            if depth < innermost.len() && l.body.len() != 1 {
                return fail(format!("`{}` holds more than the next loop", func.vars[l.var].name));
            }
            if let Some(tied) = l.tied() {
                return fail(format!("`{}` {tied}", func.vars[l.var].name));
            }
            chain.push((l.var, l.extent.clone(), l.kind));
        }
        let slots: Vec<usize> = {
            let mut depths: Vec<usize> = paths.iter().map(|p| p.len() - outermost.len()).collect();
            depths.sort_unstable();
            depths
        };
        let mut reordered = chain.clone();
        for (slot, path) in slots.iter().zip(&paths) {
            reordered[*slot] = chain[path.len() - outermost.len()].clone();
        }

        for (position, (var, extent, kind)) in reordered.iter().enumerate() {
            if let Some((inner, ..)) = reordered[position..].iter().find(|l| extent.uses(l.0)) {
                let (name, inner) = (&func.vars[*var].name, &func.vars[*inner].name);
                return fail(format!("the extent of `{name}` depends on `{inner}`, which must stay outside"));
            }
            let inside = reordered[..position].iter().any(|(.., kind)| *kind != LoopKind::Parallel);
            if *kind == LoopKind::Parallel && (inside || outermost.len() > 1) {
                return fail(format!("the parallel loop `{}` must stay outermost", func.vars[*var].name));
            }
        }
        let order = |list: &[(Var, _, _)]| list.iter().map(|l| l.0).collect::<Vec<_>>();
        let (old, new) = (order(&chain), order(&reordered));
        let Some(inner) = tree::loop_at(func, &innermost) else { return Ok(Vec::new()) };
        let mut blocks: Vec<&Block> = Vec::new();
        tree::for_each_block(&inner.body, &mut |b| blocks.push(b));
        for (block_path, block) in
            tree::blocks_with_paths(func).iter().filter(|(p, _)| p.starts_with(&innermost))
        {
            let drives = |v: Var| block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(v));
            let place = |list: &[Var], v: Var| list.iter().position(|x| *x == v);
            let sinks = |v: &Var| {
                let passes = |r: &Var| place(&old, *r) > place(&old, *v) && place(&new, *r) < place(&new, *v);
                !drives(*v) && old.iter().any(|r| drives(*r) && passes(r))
            };
            if let Some(v) = old.iter().find(|v| sinks(v) && bindings::repeats(func, block_path, **v)) {
                return fail(format!(
                    "`{}` repeats the whole reduction `{}`",
                    func.vars[*v].name, block.name
                ));
            }
            let reduces = |list: &[Var]| -> Vec<Var> {
                let used =
                    |v: &Var| block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(*v));
                list.iter().copied().filter(used).collect()
            };
            let name = &block.name;
            if reduces(&old) != reduces(&new) && !bindings::is_commutative(block) {
                return fail(format!("the reduction `{name}` depends on the order of its steps"));
            }
            if blocks.len() > 1 && old != new && !reduces(&old).is_empty() {
                return fail(format!("`{name}` reduces over these loops together with other blocks"));
            }
        }

        let depth_of = |list: &[Var], v: Var| list.iter().position(|x| *x == v);
        let encloses = |list: &[Var], v: Var, inner: Var| depth_of(list, inner) > depth_of(list, v);
        // A loop whose iterations run at the same time now holds loops whose iterations ran one after another outside of it.
        let gains = |v: Var| new.iter().any(|&x| encloses(&new, v, x) && !encloses(&old, v, x));
        let gaining: Vec<bool> = new.iter().map(|&v| gains(v)).collect();
        for (n, (var, extent, kind)) in reordered.into_iter().enumerate() {
            if let Some(l) = tree::loop_at_mut(func, &innermost[..outermost.len() + n]) {
                (l.var, l.extent, l.kind) = (var, extent, kind);
            }
        }
        for (n, _) in gaining.iter().enumerate().filter(|(_, gains)| **gains) {
            bindings::check_kind(func, &innermost[..outermost.len() + n])
                .map_err(|reason| ScheduleError::new(Self::NAME, &place, reason))?;
        }
        tree::normalize(func);
        Ok(Vec::new())
    }
}
