//! The strategy of a contraction, and how it applies.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};

use super::packing::Repacking;
use crate::cpu::in_parts::{InParts, Parts};
use crate::cpu::prefetch::Prefetches;
use crate::cpu::tasks::Tasks;
use crate::cpu::tiled::TiledBlock;
use crate::cpu::{elementwise, sums};
use crate::layouts::Relayout;
use crate::rule::Packing;
use crate::strategy::{Domain, Level};

/// What is done to a contraction with its epilogue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// What it computes.
    pub domain: Domain,
    /// Its register tiles and the loops around them.
    pub tiled: TiledBlock,
    /// The block that stores the tiles: the epilogue, or the copy out of registers that is made where there is none.
    pub store: String,
    /// The operand that rows share.
    pub panel: Operand,
    /// The operand that lanes share.
    pub broadcast: Operand,
    /// How the steps are cut into blocks, if they are.
    pub cut: Option<CutSteps>,
    /// How one block sums the products, if one does.
    pub sums: Option<sums::Strategy>,
    /// What is prefetched of the panel.
    pub prefetches: Option<Prefetches>,
    /// The tasks, where nothing sums the products in blocks.
    pub tasks: Tasks,
}

/// An operand of a contraction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operand {
    /// The buffer.
    pub buffer: String,
    /// Where it comes from as a rule when it is read.
    pub home: Level,
    /// How it is laid out anew, if it is.
    pub repacking: Option<Repacking>,
}

/// Steps that are cut into blocks, with partial sums stored in between.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CutSteps {
    /// Blocks of steps.
    pub parts: i64,
    /// Groups in which panels are shared out, if they are.
    pub panel_groups: Option<i64>,
    /// Groups in which the rows are shared out for which a panel stays, if they are.
    pub row_groups: Option<i64>,
    /// What is done to the block that stores the results, in a nest of its own.
    pub store: elementwise::Strategy,
}

/// `conv: f32[1, 64, 56, 56 | 64, 3, 3], tile 7x4 of 16 lanes of 1, ..., panel w from beyond L2 as constant w as ...`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.tiled.block, self.domain, self.tiled)?;
        write!(f, ", panel {}, rows {}", self.panel, self.broadcast)?;
        if let Some(CutSteps { parts, panel_groups, row_groups, store }) = &self.cut {
            write!(f, ", steps in {parts} parts")?;
            panel_groups.map_or(Ok(()), |n| write!(f, ", panels in {n} groups"))?;
            row_groups.map_or(Ok(()), |n| write!(f, ", rows in {n} groups"))?;
            write!(f, " ({store})")?;
        }
        self.prefetches.iter().try_for_each(|prefetches| write!(f, ", {prefetches}"))?;
        self.sums.iter().try_for_each(|sums| write!(f, ", {sums}"))?;
        write!(f, ", stored by {}, tasks {}", self.store, self.tasks)
    }
}

/// `w from beyond L2 as constant w as b a 32b`.
impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", self.buffer, self.home)?;
        self.repacking.iter().try_for_each(|repacking| write!(f, " by {repacking}"))
    }
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let summed = self.sums.iter().map(|sums| &sums.sums.reader);
        [&self.tiled.block, &self.store].into_iter().chain(summed).cloned().collect()
    }

    /// The blocks that it makes besides those.
    pub(crate) fn copies(&self) -> Vec<String> {
        let repackings = [&self.panel, &self.broadcast].into_iter().filter_map(|o| o.repacking.as_ref());
        repackings.filter_map(Repacking::copy).map(str::to_string).collect()
    }

    /// The constants that it wants in another layout.
    pub(crate) fn packings(&self) -> Vec<&Packing> {
        let repackings = [&self.panel, &self.broadcast].into_iter().filter_map(|o| o.repacking.as_ref());
        repackings.filter_map(Repacking::packing).collect()
    }

    /// Schedules the blocks.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        let block = &self.tiled.block;
        let mut panel = self.panel.buffer.clone();
        if let Some(repacking) = &self.panel.repacking {
            panel = repacking.apply(schedule, block)?;
        }
        if let Some(repacking) = &self.broadcast.repacking {
            repacking.apply(schedule, block)?;
        }
        if let Some(cut) = &self.cut {
            return self.apply_in_parts(schedule, cut, &panel);
        }
        let mut around = self.tiled.apply(schedule)?;
        if let Some(sums) = &self.sums {
            let products = schedule.block_info(&around.store)?.writes.remove(0);
            around = sums.apply(schedule, around, &products)?;
        }
        if let Some(prefetches) = &self.prefetches {
            prefetches.apply(schedule, block, &panel, &around)?;
        }
        self.tasks.apply(schedule, &around.loops)?;
        if let Some(sums) = &self.sums {
            sums.apply_afterwards(schedule)?;
        }
        Ok(vec![around.registers])
    }

    fn apply_in_parts(
        &self,
        schedule: &mut Schedule,
        cut: &CutSteps,
        panel: &str,
    ) -> Result<Vec<Relayout>, ScheduleError> {
        let parts = Parts { of_steps: cut.parts, of_panels: cut.panel_groups, of_rows: cut.row_groups };
        let InParts { around, tasks, sums } = self.tiled.apply_in_parts(schedule, parts)?;
        cut.store.apply_to(schedule, &around.store)?;
        if let Some(prefetches) = &self.prefetches {
            prefetches.apply(schedule, &self.tiled.block, panel, &around)?;
        }
        self.tasks.apply(schedule, &tasks)?;
        if let Some(sums) = &self.sums {
            sums.apply_afterwards(schedule)?;
        }
        Ok(vec![around.registers, sums])
    }
}
