//! `collapse_dims`: two dimensions of buffers that are always walked together into one.

use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func, Stmt, Store};
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// Makes one dimension of dimensions `dim` and `dim + 1` of a buffer, and one variable of the two by which blocks index
/// them, and so on through all buffers that are indexed by these variables.
///
/// Everywhere the two must be indexed by two plain variables of one kind, whose loops follow one another, and which run through all of
/// the dimensions' extents and are used for nothing else but the number that counts both. A data-parallel block that only writes
/// what collapses may use them by themselves: there they become quotient and remainder. One that only reads it may too, where the
/// second extent is open: it keeps its variables, and reads at the number that counts both. The elements of a buffer stay where they
/// are, as long as its layout is row-major; loops must be as computed. The shape of an input or output becomes part of the
/// function's contract with its caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollapseDims {
    /// The buffer.
    pub buffer: String,
    /// The first of the two dimensions.
    pub dim: usize,
    /// Data-parallel blocks at which it ends: what else they access by the two variables they access by quotient and remainder.
    #[serde(default)]
    pub ends: Vec<String>,
}

/// Two variables of a block: that of the outer loop, and that of the loop right inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    outer: Var,
    inner: Var,
}

/// What becomes one: dimensions of buffers and variables of blocks.
#[derive(Debug, Default)]
struct Collapse<'a> {
    /// Blocks at which it ends.
    ends: &'a [String],
    /// Buffers with the first of two dimensions.
    dims: Vec<(Buffer, usize)>,
    /// Blocks' paths with the two variables.
    blocks: Vec<(tree::Path, Pair)>,
    /// Blocks that read by two variables which they keep.
    readers: Vec<(tree::Path, Pair)>,
}

impl Apply for CollapseDims {
    const NAME: &'static str = "collapse_dims";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.buffer, reason);
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        let collapse = Collapse::from(func, buffer, self.dim, &self.ends).map_err(fail)?;
        let loops = collapse.blocks.iter().map(|(path, pair)| loops_of(func, path, *pair));
        let loops: Vec<(tree::Path, Expr)> = loops.collect::<Result<_, _>>().map_err(fail)?;
        for ((path, pair), (at, extent)) in collapse.blocks.iter().zip(loops) {
            if let Some(block) = tree::block_at(func, path) {
                let mut merged = collapse.merged(func, block, &collapse.dims, *pair).map_err(fail)?;
                merged.iters.retain(|iter| iter.var != pair.inner);
                let outer = merged.iters.iter_mut().find(|iter| iter.var == pair.outer);
                outer.into_iter().for_each(|iter| iter.extent.clone_from(&extent));
                if let Some(block) = tree::block_at_mut(func, path) {
                    *block = merged;
                }
            }
            // The inner loop's statements take its place.
            if let Some(outer) = tree::loop_at_mut(func, &at)
                && let Some(Stmt::Loop(inner)) = outer.body.pop()
            {
                outer.extent = extent;
                outer.body = inner.body;
            }
        }
        for (path, pair) in &collapse.readers {
            if let Some(block) = tree::block_at_mut(func, path) {
                collapse.read_by_number(block, *pair);
            }
        }
        for &(buffer, dim) in &collapse.dims {
            let shape = &mut func.buffers[buffer].shape;
            let inner = shape.remove(dim + 1);
            shape[dim] = product(&shape[dim], &inner).map_err(fail)?;
        }
        Ok(collapse.dims.iter().map(|&(buffer, _)| func.buffers[buffer].name.clone()).collect())
    }
}

impl Func {
    /// The buffers that `collapse_dims` of a buffer's dimensions `dim` and `dim + 1` would change, by name, each with the
    /// first of its two dimensions; nothing where it would fail.
    pub fn collapsible_dims(&self, buffer: Buffer, dim: usize) -> Option<Vec<(String, usize)>> {
        let collapse = Collapse::from(self, buffer, dim, &[]).ok()?;
        collapse.blocks.iter().try_for_each(|(path, pair)| loops_of(self, path, *pair).map(drop)).ok()?;
        Some(collapse.dims.iter().map(|&(buffer, dim)| (self.buffers[buffer].name.clone(), dim)).collect())
    }
}

impl<'a> Collapse<'a> {
    /// What goes together, starting from one buffer.
    fn from(func: &Func, buffer: Buffer, dim: usize, ends: &'a [String]) -> Result<Collapse<'a>, String> {
        let mut collapse = Collapse { ends, ..Collapse::default() };
        collapse.add(func, buffer, dim)?;
        let blocks = tree::blocks_with_paths(func);
        let mut n_done = 0;
        while n_done < collapse.dims.len() {
            let (buffer, dim) = collapse.dims[n_done];
            n_done += 1;
            for (path, block) in &blocks {
                for (_, indices) in tree::accesses(block).iter().filter(|(b, _)| *b == buffer) {
                    collapse.add_block(func, path, block, indices, dim)?;
                }
            }
        }
        Ok(collapse)
    }

    fn add(&mut self, func: &Func, buffer: Buffer, dim: usize) -> Result<(), String> {
        let data = &func.buffers[buffer];
        if let Some((_, other)) = self.dims.iter().find(|(b, _)| *b == buffer) {
            return match *other == dim {
                true => Ok(()),
                false => Err(format!("dimensions {other} and {dim} of `{}` would both collapse", data.name)),
            };
        }
        let [_, _] = data.shape.get(dim..dim + 2).unwrap_or_default() else {
            return Err(format!("`{}` has no dimensions {dim} and {}", data.name, dim + 1));
        };
        product(&data.shape[dim], &data.shape[dim + 1])?;
        self.dims.push((buffer, dim));
        Ok(())
    }

    /// Adds a block that accesses a collapsing buffer at `indices`, and what else it accesses by the same variables.
    fn add_block(
        &mut self,
        func: &Func,
        path: &tree::Path,
        block: &Block,
        indices: &[Expr],
        dim: usize,
    ) -> Result<(), String> {
        let name = &block.name;
        let (Some(outer), Some(inner)) = (indices[dim].as_var(), indices[dim + 1].as_var()) else {
            return Err(format!("block `{name}` indexes by more than plain variables"));
        };
        let pair = Pair { outer, inner };
        let iter = |var: Var| block.iters.iter().find(|iter| iter.var == var);
        let (Some(first), Some(second)) = (iter(outer), iter(inner).filter(|_| outer != inner)) else {
            return Err(format!("block `{name}` indexes by one variable twice"));
        };
        if first.kind != second.kind {
            return Err(format!("block `{name}` reduces over one of the two variables"));
        }
        match self.blocks.iter().chain(&self.readers).find(|(at, _)| at == path) {
            Some((_, other)) if *other == pair => return Ok(()),
            Some(_) => return Err(format!("two pairs of variables of block `{name}` would collapse")),
            None => {}
        }
        if block.predicate.is_some() {
            return Err(format!("block `{name}` has a predicate"));
        }
        if keeps_variables(func, block, indices, pair) {
            self.readers.push((path.clone(), pair));
            return Ok(());
        }
        self.blocks.push((path.clone(), pair));
        let ends = self.ends.contains(name);
        // Every use of the variables must be one of those that become one.
        let accesses = tree::accesses(block).into_iter();
        let mut found: Vec<(Buffer, usize)> =
            accesses.filter_map(|(buffer, indices)| Some((buffer, paired_dim(&indices, pair)?))).collect();
        if ends {
            found.retain(|at| self.dims.contains(at));
        }
        self.merged(func, block, &found, pair)?;
        for (buffer, dim) in found {
            let shape = func.buffers[buffer].shape.get(dim..dim + 2).unwrap_or_default();
            if !shape.iter().eq([&first.extent, &second.extent]) {
                return Err(format!(
                    "block `{name}` does not run through all of `{}`",
                    func.buffers[buffer].name
                ));
            }
            self.add(func, buffer, dim)?;
        }
        Ok(())
    }

    /// Makes a block that keeps its variables read what collapses at the number that counts both.
    fn read_by_number(&self, block: &mut Block, pair: Pair) {
        let extent = block.iters.iter().find(|iter| iter.var == pair.inner).map(|iter| iter.extent.clone());
        let Some(extent) = extent else { return };
        let number = Expr::var(pair.outer) * extent + Expr::var(pair.inner);
        tree::map_accesses(block, |buffer, indices| {
            let at = paired_dim(indices, pair).filter(|dim| self.dims.contains(&(buffer, *dim)))?;
            let mut indices = indices.to_vec();
            indices.splice(at..at + 2, [number.clone()]);
            Some(indices)
        });
    }

    /// The block with the first variable in place of both: in accesses of buffers with the dimensions, and as the number that counts
    /// both where the extent of the second is a constant. Then, where the block reads none of these buffers or it ends there, also as
    /// quotient and remainder.
    fn merged(
        &self,
        func: &Func,
        block: &Block,
        dims: &[(Buffer, usize)],
        pair: Pair,
    ) -> Result<Block, String> {
        let Pair { outer, inner } = pair;
        let paired = |buffer: Buffer, indices: &[Expr], index: &Expr| {
            let at = paired_dim(indices, pair).filter(|dim| dims.contains(&(buffer, *dim)))?;
            let mut indices = indices.to_vec();
            indices.splice(at..at + 2, [index.clone()]);
            Some(indices)
        };
        let uses = |block: &Block, is_use: &dyn Fn(&Expr) -> bool| {
            let mut found = false;
            block.for_each_expr(|e| found |= e.any(&mut |x| is_use(x)));
            found
        };
        // Without those accesses it shows what else uses the two.
        let mut merged = block.clone();
        tree::map_accesses(&mut merged, |buffer, indices| paired(buffer, indices, &Expr::int(0)));
        if !uses(&merged, &|e| e.as_var().is_some_and(|v| v == outer || v == inner)) {
            let mut merged = block.clone();
            tree::map_accesses(&mut merged, |buffer, indices| paired(buffer, indices, &Expr::var(outer)));
            return Ok(merged);
        }
        let extent = |var: Var| block.iters.iter().find(|i| i.var == var).and_then(|i| i.extent.as_int());
        let by_itself = || format!("block `{}` uses one of the variables by itself", block.name);
        let (Some(n_outer), Some(n_inner)) = (extent(outer), extent(inner)) else { return Err(by_itself()) };
        // With the second variable as the number that counts both the first is in nothing else.
        let number = Expr::var(outer) * n_inner + Expr::var(inner);
        let mut merged = block.clone();
        tree::map_accesses(&mut merged, |buffer, indices| paired(buffer, indices, &number));
        let second = Expr::var(inner) - Expr::var(outer) * n_inner;
        merged.substitute(&|v| (v == inner).then(|| second.clone()));
        let mut simplifier = Simplifier::for_sizes(func).keep_fixed_variables();
        for iter in &block.iters {
            let extent = if iter.var == inner { Expr::int(n_outer * n_inner) } else { iter.extent.clone() };
            simplifier.bind_range(iter.var, Expr::int(0), extent);
        }
        tree::simplify_indices(&mut merged, &simplifier);
        if !uses(&merged, &|e| e.as_var() == Some(outer)) {
            merged.substitute(&|v| (v == inner).then(|| Expr::var(outer)));
            return Ok(merged);
        }
        let reads = uses(block, &|e| match e.kind() {
            ExprKind::Load(buffer, indices) => paired(*buffer, indices, &number).is_some(),
            _ => false,
        });
        if reads && !self.ends.contains(&block.name) || block.is_reduction() {
            return Err(by_itself());
        }
        let count = Expr::int(n_inner);
        let parts = [Expr::var(outer).floor_div(count.clone()), Expr::var(outer).floor_mod(count)];
        let mut merged = block.clone();
        tree::map_accesses(&mut merged, |buffer, indices| paired(buffer, indices, &number));
        merged.substitute(&|v| [outer, inner].iter().position(|&own| own == v).map(|n| parts[n].clone()));
        let mut simplifier = Simplifier::for_sizes(func).keep_fixed_variables();
        for iter in block.iters.iter().filter(|iter| iter.var != inner) {
            let extent = if iter.var == outer { Expr::int(n_outer * n_inner) } else { iter.extent.clone() };
            simplifier.bind_range(iter.var, Expr::int(0), extent);
        }
        tree::simplify_indices(&mut merged, &simplifier);
        Ok(merged)
    }
}

/// Whether a block that reads at `indices` keeps two variables: a data-parallel one whose second has an open extent and that stores by the
/// two apart.
fn keeps_variables(func: &Func, block: &Block, indices: &[Expr], pair: Pair) -> bool {
    let is_open = |var: Var| block.iters.iter().any(|i| i.var == var && i.extent.as_int().is_none());
    let is_stored = |store: &Store| store.indices == indices || paired_dim(&store.indices, pair).is_some();
    let reads_whole = tree::accesses(block).iter().all(|(buffer, indices)| {
        paired_dim(indices, pair).is_none_or(|dim| {
            let shape = &func.buffers[*buffer].shape;
            let extent = |var: Var| block.iters.iter().find(|i| i.var == var).map(|i| &i.extent);
            extent(pair.outer) == shape.get(dim) && extent(pair.inner) == shape.get(dim + 1)
        })
    });
    is_open(pair.inner) && !block.is_reduction() && !block.body.iter().any(is_stored) && reads_whole
}

/// The dimension that the first of the variables indexes, with the second right after it.
fn paired_dim(indices: &[Expr], pair: Pair) -> Option<usize> {
    let is_pair = |w: &[Expr]| w[0].as_var() == Some(pair.outer) && w[1].as_var() == Some(pair.inner);
    indices.windows(2).position(is_pair)
}

/// Where the loop of the first variable is, right around that of the second, and the extent that it gets.
fn loops_of(func: &Func, path: &tree::Path, pair: Pair) -> Result<(tree::Path, Expr), String> {
    let (outer, inner) = (tree::loop_of(func, path, pair.outer)?, tree::loop_of(func, path, pair.inner)?);
    let (Some(l), Some(next)) = (tree::loop_at(func, &outer), tree::loop_at(func, &inner)) else {
        return Err("there is no such loop".into());
    };
    if inner.len() != outer.len() + 1 {
        return Err(format!(
            "the loops of `{}` and the variable after it are apart",
            func.vars[pair.outer].name
        ));
    }
    let mut tied = l.tied();
    tree::for_each_loop(&l.body, &mut |inner| tied = tied.or(inner.tied()));
    if let Some(tied) = tied {
        return Err(format!("a loop inside of `{}` {tied}", func.vars[l.var].name));
    }
    Ok((outer, product(&l.extent, &next.extent)?))
}

fn product(outer: &Expr, inner: &Expr) -> Result<Expr, String> {
    match (outer.as_int(), inner.as_int()) {
        (Some(outer), Some(inner)) => {
            let product = outer.checked_mul(inner).ok_or("the product of the extents overflows")?;
            Ok(Expr::int(product))
        }
        _ => Ok(outer.clone() * inner.clone()),
    }
}
