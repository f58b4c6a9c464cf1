//! `reindex`: a copy of what a block reads whose dimensions are the block's variables.

use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, ExprKind};
use crate::func::{Block, Func, Iter, Scope};
use crate::schedule::cache::{check_copied, copy_nest, suffix};
use crate::schedule::region::{Accesses, accessed, depends_on_data};
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// Makes a block read a buffer through a copy `BUFFER_SCOPE` that has a dimension for each of the block's variables by which it reads
/// the buffer, filled by a new block `BUFFER_read` in front of the block's nest.
///
/// The block then reads the copy at plain variables, however it read the buffer: the windows of a convolution become the left factor of a
/// product (im2col). All loads of the buffer are at the same place, which is inside the buffer in all of the block's domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reindex {
    /// The reading block.
    pub block: String,
    /// The buffer read.
    pub buffer: String,
    /// The variables of the block by which it reads the buffer, by their positions, in the order of the copy's dimensions.
    pub iters: Vec<usize>,
    /// Where the copy lives.
    pub scope: Scope,
}

impl Apply for Reindex {
    const NAME: &'static str = "reindex";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        let Some(block) = tree::block_at(func, &path) else { return Ok(Vec::new()) };
        check_copied(func, &path, block, buffer).map_err(fail)?;
        let places = accessed(block, buffer, Accesses::Reads);
        let [place] = &places[..] else {
            return Err(fail(format!("the block reads `{}` at {} places", self.buffer, places.len())));
        };
        if place.iter().any(depends_on_data) {
            return Err(fail(format!("where the block reads `{}` depends on data", self.buffer)));
        }
        let used: Vec<usize> = (0..block.iters.len())
            .filter(|&n| place.iter().any(|index| index.uses(block.iters[n].var)))
            .collect();
        let mut given = self.iters.clone();
        given.sort_unstable();
        if given != used {
            return Err(fail(format!(
                "the block reads `{}` by its variables {used:?}, not {:?}",
                self.buffer, self.iters
            )));
        }
        check_inside(func, block, buffer, place).map_err(fail)?;
        let iters: Vec<Iter> = self.iters.iter().map(|&n| block.iters[n].clone()).collect();
        let place = place.clone();
        let (name, data) =
            (func.unique_block_name(&format!("{}_read", self.buffer)), func.buffers[buffer].clone());
        let shape = iters.iter().map(|iter| iter.extent.clone()).collect();
        let copy =
            func.add_buffer(&format!("{}_{}", data.name, suffix(self.scope)), data.dtype, shape, self.scope);
        if let Some(block) = tree::block_at_mut(func, &path) {
            let indices: Vec<Expr> = iters.iter().map(|iter| Expr::var(iter.var)).collect();
            block.rewrite_exprs(&mut |x| match x.kind() {
                ExprKind::Load(b, _) if *b == buffer => Some(Expr::load(x.dtype(), copy, indices.clone())),
                _ => None,
            });
        }
        let nest = copy_nest(func, copy, &name, |func, own| {
            let of = |var| iters.iter().position(|iter| iter.var == var).map(|n| own[n].clone());
            func.load(buffer, place.iter().map(|index| index.substitute(&of)).collect())
        });
        func.body.insert(path[0], nest);
        Ok(vec![name])
    }
}

/// Refuses loads that are outside of the buffer where their result is not used.
fn check_inside(func: &Func, block: &Block, buffer: Buffer, place: &[Expr]) -> Result<(), String> {
    let data = &func.buffers[buffer];
    let mut simplifier = Simplifier::for_sizes(func);
    for iter in &block.iters {
        simplifier.bind_range(iter.var, 0, iter.extent.clone());
    }
    let is_inside = |(index, extent): (&Expr, &Expr)| {
        simplifier.prove_le(&Expr::int(0), index) && simplifier.prove_lt(index, extent)
    };
    match place.iter().zip(&data.shape).all(is_inside) {
        true => Ok(()),
        false => Err(format!("it cannot be shown that all loads are inside of `{}`", data.name)),
    }
}
