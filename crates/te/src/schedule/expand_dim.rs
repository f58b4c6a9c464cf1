//! `expand_dim`: a dimension of buffers as two, of quotients and remainders.

use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func};
use crate::schedule::split_iter::split_variable;
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// Makes two dimensions of one of a buffer, the inner of extent `inner`, and two variables of each by which a block indexes
/// it plainly, and so on through all buffers that are indexed plainly by these variables.
///
/// Other indices become quotients and remainders. The extent is a multiple of `inner`, whatever open extents are, and so it stays where it is in
/// memory what a buffer holds, as long as its layout is row-major; loops must be as computed. The shape of an input or output
/// becomes part of the function's contract with its caller. The inverse of `collapse_dims`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpandDim {
    /// The buffer.
    pub buffer: String,
    /// The dimension.
    pub dim: usize,
    /// The inner extent.
    pub inner: i64,
}

/// What becomes two: dimensions of buffers and variables of blocks.
#[derive(Debug, Default)]
struct Expansion {
    inner: i64,
    /// Buffers with the dimension.
    dims: Vec<(Buffer, usize)>,
    /// Blocks' paths with the variable.
    blocks: Vec<(tree::Path, Var)>,
}

impl Apply for ExpandDim {
    const NAME: &'static str = "expand_dim";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.buffer, reason);
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        let expansion = Expansion::from(func, buffer, self.dim, self.inner).map_err(fail)?;
        for (path, var) in &expansion.blocks {
            split_variable(func, path, *var, self.inner).map_err(fail)?;
        }
        let mut body = std::mem::take(&mut func.body);
        tree::for_each_block_mut(&mut body, &mut |block| expansion.expand_indices(func, block));
        func.body = body;
        let simplifier = Simplifier::for_sizes(func);
        for &(buffer, dim) in &expansion.dims {
            let shape = &mut func.buffers[buffer].shape;
            shape[dim] = simplifier.exact_quotient(&shape[dim], self.inner).unwrap_or(Expr::int(0));
            shape.insert(dim + 1, Expr::int(self.inner));
        }
        Ok(expansion.dims.iter().map(|&(buffer, _)| func.buffers[buffer].name.clone()).collect())
    }
}

impl Func {
    /// The buffers that `expand_dim` of a buffer would change, by name, each with its dimension; nothing where it would fail.
    pub fn expandable_dims(&self, buffer: Buffer, dim: usize, inner: i64) -> Option<Vec<(String, usize)>> {
        let expansion = Expansion::from(self, buffer, dim, inner).ok()?;
        Some(expansion.dims.iter().map(|&(buffer, dim)| (self.buffers[buffer].name.clone(), dim)).collect())
    }
}

impl Expansion {
    /// What goes together, starting from one buffer.
    fn from(func: &Func, buffer: Buffer, dim: usize, inner: i64) -> Result<Expansion, String> {
        let mut expansion = Expansion { inner, ..Expansion::default() };
        expansion.add(func, buffer, dim)?;
        let blocks = tree::blocks_with_paths(func);
        let mut n_done = 0;
        while n_done < expansion.dims.len() {
            let (buffer, dim) = expansion.dims[n_done];
            n_done += 1;
            for (path, block) in &blocks {
                for (_, indices) in tree::accesses(block).iter().filter(|(b, _)| *b == buffer) {
                    if let Some(var) = indices[dim].as_var() {
                        expansion.add_variable(func, path, block, var)?;
                    }
                }
            }
        }
        Ok(expansion)
    }

    fn add(&mut self, func: &Func, buffer: Buffer, dim: usize) -> Result<(), String> {
        let data = &func.buffers[buffer];
        if let Some((_, other)) = self.dims.iter().find(|(b, _)| *b == buffer) {
            return match *other == dim {
                true => Ok(()),
                false => Err(format!("dimensions {other} and {dim} of `{}` would both expand", data.name)),
            };
        }
        let extent = data.shape.get(dim).ok_or_else(|| format!("`{}` has no dimension {dim}", data.name))?;
        if Simplifier::for_sizes(func).exact_quotient(extent, self.inner).is_none() {
            return Err(format!("{} does not divide dimension {dim} of `{}`", self.inner, data.name));
        }
        self.dims.push((buffer, dim));
        Ok(())
    }

    /// Adds a variable of a block that indexes an expanding dimension, and what else it indexes.
    fn add_variable(
        &mut self,
        func: &Func,
        path: &tree::Path,
        block: &Block,
        var: Var,
    ) -> Result<(), String> {
        let name = &block.name;
        match self.blocks.iter().find(|(at, _)| at == path) {
            Some((_, other)) if *other == var => return Ok(()),
            Some(_) => return Err(format!("two variables of block `{name}` would expand")),
            None => {}
        }
        if block.predicate.is_some() {
            return Err(format!("block `{name}` has a predicate"));
        }
        tree::loop_of(func, path, var)?;
        let extent = block.iters.iter().find(|i| i.var == var).map(|i| &i.extent);
        let simplifier = Simplifier::for_sizes(func);
        if extent.is_none_or(|extent| simplifier.exact_quotient(extent, self.inner).is_none()) {
            return Err(format!("{} does not divide a variable of block `{name}`", self.inner));
        }
        self.blocks.push((path.clone(), var));
        for (buffer, indices) in tree::accesses(block) {
            let shape = &func.buffers[buffer].shape;
            let plain =
                indices.iter().zip(shape).position(|(e, n)| e.as_var() == Some(var) && Some(n) == extent);
            if let Some(dim) = plain {
                self.add(func, buffer, dim)?;
            }
        }
        Ok(())
    }

    /// Rewrites a block's accesses of expanding buffers.
    fn expand_indices(&self, func: &Func, block: &mut Block) {
        let mut simplifier = Simplifier::for_sizes(func);
        for iter in &block.iters {
            simplifier.bind_range(iter.var, Expr::int(0), iter.extent.clone());
        }
        let expanded = |buffer: Buffer, indices: &[Expr]| {
            let (_, dim) = self.dims.iter().find(|(b, _)| *b == buffer)?;
            let (index, inner) = (&indices[*dim], Expr::int(self.inner));
            let outer = simplifier.simplify(&index.clone().floor_div(inner.clone()));
            let inner = simplifier.simplify(&index.clone().floor_mod(inner));
            let mut indices = indices.to_vec();
            indices.splice(*dim..=*dim, [outer, inner]);
            Some(indices)
        };
        tree::map_accesses(block, expanded);
        // What had quotients by the variables before has none now.
        block.rewrite_exprs(&mut |x| match x.kind() {
            ExprKind::Load(buffer, indices) => {
                let simple = |index: &Expr| match index.as_var() {
                    Some(_) => index.clone(),
                    None => simplifier.simplify(index),
                };
                Some(Expr::load(x.dtype(), *buffer, indices.iter().map(simple).collect()))
            }
            _ => None,
        });
    }
}
