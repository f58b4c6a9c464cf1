//! Placing buffers: arena offsets for sizes known now, shared blocks for sizes known before the run; in each space by itself.

use tilewright_runtime::plan::{ArenaDef, BufferId, Place, PlanOp, SizeDef, SizeId, Space};

use super::builder::{Builder, Home};
use super::weights::ALIGN;
use crate::memory::{Lifetime, lower_bound, place};

/// The first and last instruction that touch a buffer.
#[derive(Clone, Copy)]
pub(super) struct Span {
    first: u32,
    last: u32,
}

impl Builder<'_> {
    /// Places every planned buffer of a space; gives the arena and its lower bound in bytes.
    pub(super) fn plan_memory(&mut self, space: Space, spans: &[Option<Span>]) -> (ArenaDef, u64) {
        let mut fixed: Vec<(usize, Lifetime)> = Vec::new();
        let mut open: Vec<(usize, Span)> = Vec::new();
        for (i, home) in self.homes.iter().enumerate() {
            if *home != Home::Planned || self.buffers[i].space != space {
                continue;
            }
            let Some(span) = spans[i] else {
                // Nothing touches it: any place will do.
                self.buffers[i].place = Place::Dynamic;
                continue;
            };
            let size = self.buffers[i].size_bytes;
            match self.sizes.as_constant(size) {
                Some(bytes) => {
                    // Guarded loads may read the first 64 bytes of any buffer.
                    let size = (bytes.max(0) as u64).max(ALIGN);
                    fixed.push((i, Lifetime { size, first: span.first, last: span.last }));
                }
                None if self.sizes.is_late(size) => self.buffers[i].place = Place::Dynamic,
                None => open.push((i, span)),
            }
        }
        let lifetimes: Vec<Lifetime> = fixed.iter().map(|(_, l)| *l).collect();
        let placement = place(&lifetimes, ALIGN);
        for ((i, _), &offset) in fixed.iter().zip(&placement.offsets) {
            self.buffers[*i].place = Place::Arena { offset };
        }
        let blocks = self.share_blocks(open);
        (ArenaDef { bytes: placement.total, blocks }, lower_bound(&lifetimes, ALIGN))
    }

    /// Assigns buffers of open size to blocks, each as large as the largest of its buffers, in order of first
    /// use; a free block of the same size is preferred.
    fn share_blocks(&mut self, mut open: Vec<(usize, Span)>) -> Vec<SizeId> {
        open.sort_by_key(|(i, span)| (span.first, *i));
        // Size of each block and the last instruction of its current buffer.
        let mut blocks: Vec<(SizeId, u32)> = Vec::new();
        for (i, span) in open {
            let size = self.buffers[i].size_bytes;
            let free = |&(_, last): &(SizeId, u32)| last < span.first;
            let same = blocks.iter().position(|b| free(b) && b.0 == size);
            let block = match same.or_else(|| blocks.iter().position(free)) {
                Some(block) => block,
                None => {
                    blocks.push((size, 0));
                    blocks.len() - 1
                }
            };
            if blocks[block].0 != size {
                blocks[block].0 = self.sizes.binary(SizeDef::Max, blocks[block].0, size);
            }
            blocks[block].1 = span.last;
            self.buffers[i].place = Place::Block(block as u32);
        }
        blocks.into_iter().map(|(size, _)| size).collect()
    }

    /// For each buffer that is no alias, the instructions between which its contents matter.
    pub(super) fn spans(&self) -> Vec<Option<Span>> {
        let mut spans: Vec<Option<Span>> = vec![None; self.buffers.len()];
        let mut touch = |buffer: BufferId, at: u32| {
            let mut root = buffer.index();
            while let Place::Alias { buffer, .. } = self.buffers[root].place {
                root = buffer.index();
            }
            let span = spans[root].get_or_insert(Span { first: at, last: at });
            span.last = at;
        };
        for (at, instr) in self.instrs.iter().enumerate() {
            let at = at as u32;
            match &instr.op {
                PlanOp::Call { buffers, .. } => buffers.iter().for_each(|&b| touch(b, at)),
                PlanOp::Host { inputs, outputs, .. } => {
                    let operands = inputs.iter().chain(outputs);
                    operands.filter_map(|operand| operand.buffer()).for_each(|b| touch(b, at));
                }
                PlanOp::ReadSize { buffer, .. }
                | PlanOp::ScaleSize { buffer, .. }
                | PlanOp::WriteSize { buffer, .. } => {
                    touch(*buffer, at);
                }
                PlanOp::Alloc { buffer } | PlanOp::Grow { buffer } | PlanOp::Free { buffer } => {
                    touch(*buffer, at)
                }
                PlanOp::Copy { from, to } => {
                    touch(*from, at);
                    touch(*to, at);
                }
                PlanOp::SetSize { .. }
                | PlanOp::ReadDim { .. }
                | PlanOp::CopyValue { .. }
                | PlanOp::Guard { .. }
                | PlanOp::BranchIfZero { .. }
                | PlanOp::Jump { .. } => {}
            }
        }
        for span in spans.iter_mut().flatten() {
            for &(first, last) in &self.loops {
                // What a loop uses of the time before it, or leaves for the time after, lives all through it.
                if span.first < first && span.last >= first && span.last < last {
                    span.last = last;
                }
                if span.first >= first && span.first <= last && span.last > last {
                    span.first = first;
                }
            }
        }
        spans
    }
}
