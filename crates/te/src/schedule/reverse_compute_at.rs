//! `reverse_compute_at`: a consumer under a loop of its producers.

use serde::{Deserialize, Serialize};

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func, IterKind, Loop};
use crate::schedule::bindings::check_kinds;
use crate::schedule::compute_at::{check_nest, rebuilt_nest};
use crate::schedule::region::{Accesses, Span, accessed, exact_writes, region_of};
use crate::schedule::{Apply, ScheduleError, tree};

/// Runs a consumer, in each iteration of a loop, on what its producers inside have just computed.
///
/// The consumer leaves its own nest and gets one new loop for each iteration variable, named `BLOCK_ax0` and
/// so on, right after the last statement that produces what it reads. Variables that index a produced buffer, or whose quotients
/// by a constant do, run over the region produced in the iteration, all others over their domain. What is produced must be a
/// box without holes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReverseComputeAt {
    /// The consumer.
    pub block: String,
    /// The loop around its producers.
    pub loop_name: String,
}

impl Apply for ReverseComputeAt {
    const NAME: &'static str = "reverse_compute_at";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let block_path = tree::find_block(func, Self::NAME, &self.block)?;
        let loop_path = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let Some(block) = tree::block_at(func, &block_path).cloned() else { return Ok(Vec::new()) };
        if block_path < loop_path || block_path.starts_with(&loop_path) {
            return Err(fail(format!("the block does not come after `{}`", self.loop_name)));
        }
        check_nest(func, &block_path, &[]).map_err(fail)?;
        for buffer in tree::written(&block) {
            if func.blocks().iter().any(|b| b.name != self.block && tree::writes(b, buffer)) {
                return Err(fail(format!("another block writes `{}`", func.buffers[buffer].name)));
            }
        }
        tree::remove(func, &block_path);
        let Some(target) = tree::loop_at(func, &loop_path) else { return Ok(Vec::new()) };
        let mut simplifier = tree::simplifier_within(func, &[&loop_path[..], &[0]].concat(), &target.body);
        let around: Vec<_> =
            (1..=loop_path.len()).filter_map(|d| tree::loop_at(func, &loop_path[..d])).collect();

        let mut spans: Vec<Option<Span>> = vec![None; block.iters.len()];
        let mut after = None;
        let mut conditions: Vec<Expr> = Vec::new();
        for buffer in tree::read_buffers(&block) {
            let name = &func.buffers[buffer].name;
            let own = tree::writes(&block, buffer);
            if let Some((l, writer)) = around.iter().find_map(|l| Some((l, accumulating(l, buffer)?))) {
                let l = &func.vars[l.var].name;
                return Err(fail(format!("`{writer}` is still accumulating `{name}` over `{l}`")));
            }
            for (path, writer) in tree::blocks_with_paths(func) {
                if !tree::writes(writer, buffer) {
                    continue;
                }
                if !path.starts_with(&loop_path) {
                    if path > loop_path {
                        return Err(fail(format!("`{}` computes `{name}` after the loop", writer.name)));
                    }
                    continue;
                }
                after = after.max(Some(path[loop_path.len()]));
            }
            let produced = region_of(func, &simplifier, &target.body, buffer, Accesses::Writes);
            let Some(region) = produced.filter(|_| !own) else { continue };
            conditions.extend(exact_writes(&simplifier, &target.body, buffer).map_err(fail)?);
            for indices in accessed(&block, buffer, Accesses::Reads) {
                for (dim, (index, span)) in indices.iter().zip(&region).enumerate() {
                    let whole = span.min.as_int() == Some(0)
                        && simplifier.prove_le(&func.buffers[buffer].shape[dim], &span.extent);
                    let (var, unit) = quotient(index).unzip();
                    let at = var.and_then(|v| block.iters.iter().position(|i| i.var == v));
                    let unit = unit.unwrap_or(1);
                    let shape = &(func.buffers[buffer].shape[dim].clone() * unit);
                    if let Some(at) = at
                        && !simplifier.prove_le(&block.iters[at].extent, shape)
                    {
                        return Err(fail(format!("its domain exceeds dimension {dim} of `{name}`")));
                    }
                    let scaled = |e: &Expr| simplifier.simplify(&(e.clone() * unit));
                    let span = &Span { min: scaled(&span.min), extent: scaled(&span.extent) };
                    match at {
                        Some(at) if block.iters[at].kind == IterKind::Spatial => match &spans[at] {
                            Some(known) if known != span && !whole => {
                                return Err(fail("its producers compute different regions".into()));
                            }
                            Some(_) => {}
                            None => spans[at] = Some(span.clone()),
                        },
                        Some(_) | None if whole => {}
                        Some(_) | None => {
                            let reason =
                                format!("it needs more of dimension {dim} of `{name}` than is there");
                            return Err(fail(reason));
                        }
                    }
                }
            }
        }
        let Some(after) = after else {
            return Err(fail(format!("nothing inside `{}` computes what it reads", self.loop_name)));
        };
        for (iter, span) in block.iters.iter().zip(&mut spans) {
            let whole = |s: &Span| s.min == Expr::int(0) && simplifier.prove_equal(&s.extent, &iter.extent);
            if span.as_ref().is_some_and(whole) {
                *span = None;
            }
        }
        let (nest, names) = rebuilt_nest(func, &mut simplifier, block, spans, conditions);
        if let Some(l) = tree::loop_at_mut(func, &loop_path) {
            l.body.insert(after + 1, nest);
        }
        check_outer_producers(func, &self.block, &loop_path).map_err(fail)?;
        tree::normalize(func);
        check_kinds(func, &loop_path).map_err(fail)?;
        Ok(names)
    }
}

/// Whether producers that are not in the loop at `loop_path`, but share loops around it, have made by then what the block reads: of
/// what they make in other iterations of these loops, some comes later.
fn check_outer_producers(func: &Func, name: &str, loop_path: &[usize]) -> Result<(), String> {
    let Some(block) = func.block(name) else { return Ok(()) };
    for (path, producer) in tree::blocks_with_paths(func) {
        let n_shared = path.iter().zip(loop_path).take_while(|(a, b)| a == b).count();
        let Some(shared) = tree::loop_at(func, &loop_path[..n_shared]).filter(|_| n_shared > 0) else {
            continue;
        };
        let (Some(made), Some(read)) = (path.get(n_shared), loop_path.get(n_shared)) else { continue };
        let simplifier =
            tree::simplifier_within(func, &[&loop_path[..n_shared], &[0]].concat(), &shared.body);
        let region = |at: usize, buffer, accesses| {
            let stmts = shared.body.get(at..=at).unwrap_or_default();
            region_of(func, &simplifier, stmts, buffer, accesses).unwrap_or_default()
        };
        for buffer in tree::read_buffers(block).into_iter().filter(|&buffer| tree::writes(producer, buffer)) {
            let made = region(*made, buffer, Accesses::Writes);
            let covers = |(made, read): (&Span, &Span)| {
                simplifier.prove_le(&made.min, &read.min) && simplifier.prove_le(&read.end(), &made.end())
            };
            if !made.iter().zip(&region(*read, buffer, Accesses::Reads)).all(covers) {
                let buffer = &func.buffers[buffer].name;
                return Err(format!("`{}` has not made all of `{buffer}` by then", producer.name));
            }
        }
    }
    Ok(())
}

/// The block, if any, whose result in a buffer is complete only after the last iteration of a loop: it accumulates over the loop, or
/// passes on inside of it what another block accumulates, as one does that writes a copy back.
fn accumulating(l: &Loop, buffer: Buffer) -> Option<&str> {
    let mut blocks: Vec<&Block> = Vec::new();
    tree::for_each_block(&l.body, &mut |block| blocks.push(block));
    let mut unfinished: Vec<Buffer> = Vec::new();
    loop {
        let is_unfinished = |block: &&&Block| {
            block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(l.var))
                || unfinished.iter().any(|&read| tree::reads(block, read))
        };
        let found: Vec<&&Block> = blocks.iter().filter(is_unfinished).collect();
        if let Some(writer) = found.iter().find(|block| tree::writes(block, buffer)) {
            return Some(&writer.name);
        }
        let written = found.iter().flat_map(|block| tree::written(block));
        let more: Vec<Buffer> = written.filter(|buffer| !unfinished.contains(buffer)).collect();
        if more.is_empty() {
            return None;
        }
        unfinished.extend(more);
    }
}

/// The variable that an index is, or the quotient of, with what it is divided by.
fn quotient(index: &Expr) -> Option<(Var, i64)> {
    match index.kind() {
        ExprKind::Var(var) => Some((*var, 1)),
        ExprKind::Binary(BinaryOp::FloorDiv, x, unit) => {
            Some((x.as_var()?, unit.as_int().filter(|&n| n > 0)?))
        }
        _ => None,
    }
}
