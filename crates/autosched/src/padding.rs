//! Padding of windows: a copy of what tasks read, with zeros around, piece by piece in the cache.
//!
//! A piece serves the rows of several results; what pieces have in common, the rows at the end of a window, is copied for each of them.
//! So large pieces copy less, and small ones stay in the first level of cache.

use std::collections::BTreeMap;

use tilewright_te::Scope;
use tilewright_te::schedule::{Schedule, ScheduleError};

use crate::pattern::AccessInfo;
use crate::tasks::{MAX_STACK, extent_of};
use crate::tile::stores_at_its_variables;
use crate::{Candidate, Context};

/// How much longer copying takes where the piece does not stay in the first level of cache: a vector is written to and read from the
/// second.
const SECOND_LEVEL: f64 = 1.5;

/// A block that pads what a window reads.
pub(crate) struct PaddingBlock {
    /// Its name.
    pub(crate) block: String,
    /// The buffer it writes.
    buffer: String,
    /// Bytes of an element of it.
    element: i64,
    /// The dimension along which the lanes run.
    lane: usize,
}

/// A schedule in which some iterations of a loop are padded at a time.
struct Folded {
    schedule: Schedule,
    /// The loop over pieces.
    pieces: String,
    /// The loops that pad a piece.
    loops: Vec<String>,
}

impl PaddingBlock {
    /// The block that computes an operand for this reduction alone, as yet unscheduled.
    pub(crate) fn of(
        schedule: &Schedule,
        block: &str,
        reads: &[AccessInfo],
        lane: usize,
    ) -> Option<PaddingBlock> {
        let func = schedule.func();
        schedule.blocks().into_iter().find_map(|name| {
            let producer = func.block(&name)?;
            let [store] = &producer.body[..] else { return None };
            let is_read = reads.iter().any(|a| a.buffer == store.buffer);
            let is_free = !producer.is_reduction()
                && !func.params.contains(&store.buffer)
                && stores_at_its_variables(producer)
                && schedule.consumers(&name).ok()? == [block]
                && schedule.loop_names(&name).ok()?.len() == producer.iters.len();
            let data = &func.buffers[store.buffer];
            let (buffer, element) = (data.name.clone(), data.dtype.bytes() as i64);
            (is_read && is_free && lane < producer.iters.len()).then_some(PaddingBlock {
                block: name,
                buffer,
                element,
                lane,
            })
        })
    }

    /// Computes the padded input piece by piece inside the tasks, where it is read: some iterations of the innermost of the loops at a
    /// time, in a multiple of `pieces` if that divides them. Tells how many, and puts the loop over pieces in the place of that loop; does
    /// nothing where not even one iteration fits.
    pub(crate) fn fold(
        &self,
        schedule: &mut Schedule,
        context: &mut Context<'_>,
        reader: &str,
        tasks: &mut Vec<String>,
        pieces: i64,
        lanes: i64,
    ) -> Result<Option<i64>, ScheduleError> {
        let Some(innermost) = tasks.last().cloned() else { return Ok(None) };
        let Some(extent) = extent_of(schedule, &innermost) else { return Ok(None) };
        let pieces = if extent % pieces == 0 { pieces } else { 1 };
        let first_level = context.target.machine.caches.l1d as i64;
        let (mut candidates, mut ways) = (Vec::new(), BTreeMap::new());
        for rows in (1..=extent).filter(|n| extent % n == 0 && (extent / n) % pieces == 0) {
            let Some(folded) = self.folded(schedule, &innermost, rows)? else { break };
            let Some(bytes) = self.bytes(&folded).filter(|&bytes| bytes <= MAX_STACK) else { break };
            let stays = 2 * bytes <= first_level;
            let copied = bytes as f64 / rows as f64;
            let features =
                vec![("piece.copied", copied.log2()), ("piece.first-level", f64::from(u8::from(stays)))];
            let cost = copied * if stays { 1.0 } else { SECOND_LEVEL };
            candidates.push(Candidate { value: rows, cost, features });
            ways.insert(rows, folded);
        }
        if candidates.is_empty() {
            return Ok(None);
        }
        candidates.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(b.value.cmp(&a.value)));
        let rows = context.decide(reader, "piece", &candidates)?;
        let Some(folded) = ways.remove(&rows) else { return Ok(None) };
        let Folded { schedule: mut trial, pieces, loops } = folded;
        let vectors = trial.split(&loops[self.lane], &[None, Some(lanes)])?;
        let mut order: Vec<&str> = Vec::new();
        order.push(&vectors[0]);
        order.extend(loops.iter().enumerate().filter(|(n, _)| *n != self.lane).map(|(_, l)| l.as_str()));
        order.push(&vectors[1]);
        trial.reorder(&order)?;
        trial.vectorize(&vectors[1])?;
        *schedule = trial;
        tasks.pop();
        tasks.push(pieces);
        Ok(Some(rows))
    }

    /// Pads so many iterations of a loop at a time, if that can be.
    fn folded(
        &self,
        schedule: &Schedule,
        innermost: &str,
        rows: i64,
    ) -> Result<Option<Folded>, ScheduleError> {
        let mut trial = schedule.clone();
        let parts = trial.split(innermost, &[None, Some(rows)])?;
        let Ok(loops) = trial.compute_at(&self.block, &parts[0]) else { return Ok(None) };
        trial.set_scope(&self.buffer, Scope::Stack)?;
        Ok(Some(Folded { schedule: trial, pieces: parts[0].clone(), loops }))
    }

    /// Bytes of a piece, to which the buffer shrinks.
    fn bytes(&self, folded: &Folded) -> Option<i64> {
        let mut extents = folded.loops.iter().map(|name| extent_of(&folded.schedule, name));
        extents.try_fold(self.element, |n, extent| n.checked_mul(extent?))
    }
}
