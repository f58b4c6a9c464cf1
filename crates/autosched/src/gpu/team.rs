//! Teams of warps that go through the steps of a product with several vectors together: what a matrix takes by each, and which suits it.

use std::fmt;

use tilewright_machine::Gpu;

use super::threads::LANES;
use super::tile::{ADDRESSES, WARPS_PER_CYCLE};
use super::tree::WIDEST;
use crate::decisions::Candidate;
use crate::pattern::pieces_of;

/// Teams that are offered, the most reliable first.
const TEAMS: [Team; 4] = [
    Team { rows: 4, warps: 4 },
    Team { rows: 2, warps: 4 },
    Team { rows: 4, warps: 8 },
    Team { rows: 8, warps: 4 },
];

/// Stages of the pipeline that fetches the factors, the best first.
const STAGES: [u32; 3] = [4, 3, 2];

/// Steps that are fetched at a time.
const STEPS: i64 = LANES * WIDEST;

/// Warps for each multiprocessor, at least: one for each of its schedulers.
const LEAST_WARPS: i64 = 4;

/// Instructions for what is copied by a thread at a time: the copy, and its part of the addresses and branches.
const COPY: i64 = 2;

/// Instructions of a loop over steps each time: counters, versions of the shared arrays, waits and branches.
const LOOP: i64 = 24;

/// Instructions that combine what lanes have of a result: two shuffles, two choices and a sum for each of two lanes that do so for half of the
/// results, and half as many for each further halving.
const COMBINE: i64 = 5;

/// What another team than the first is taken to cost more than [`Team::cycles`] says, which is off by less.
const MARGIN: f64 = 0.1;

/// The warps of a task, and the rows of each. All of these multiply what it loads of the vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Team {
    /// Rows of a warp.
    pub(crate) rows: i64,
    /// Warps of a task.
    pub(crate) warps: i64,
}

/// `4x8` for eight warps of four rows.
impl fmt::Display for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.warps)
    }
}

/// A matrix, or several, beside vectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    /// Vectors.
    pub(crate) vectors: i64,
    /// Rows of a matrix.
    pub(crate) rows: i64,
    /// Rows of all matrices.
    pub(crate) all: i64,
    /// Steps of a row.
    pub(crate) steps: i64,
}

impl Team {
    /// The teams that suit a product, the cheapest first: tasks have the same number of rows, there are enough warps, and two stages have room.
    pub(crate) fn candidates(gpu: &Gpu, extents: &Extents) -> Vec<Candidate<Team>> {
        let least = LEAST_WARPS * i64::from(gpu.multiprocessors);
        let fits = |team: &Team| {
            extents.rows % team.of_task() == 0
                && extents.all / team.rows >= least
                && team.stages(gpu, extents.vectors).is_some()
        };
        let candidate = |team: Team| {
            let cycles = team.cycles(gpu, extents, team.stages(gpu, extents.vectors).unwrap_or(1));
            let cost = if team == TEAMS[0] { cycles } else { cycles * (1.0 + MARGIN) };
            Candidate { value: team, cost, features: vec![("team.cycles", cycles.log2())] }
        };
        let mut candidates: Vec<_> = TEAMS.into_iter().filter(fits).map(candidate).collect();
        candidates.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        candidates
    }

    /// Rows of a task.
    fn of_task(self) -> i64 {
        self.rows * self.warps
    }

    /// Bytes of shared memory of a stage.
    fn stage_bytes(self, vectors: i64) -> i64 {
        (vectors + self.of_task()) * STEPS * size_of::<f32>() as i64
    }

    /// Stages that fetch the factors: as many as leave a multiprocessor as many tasks as two do; nothing where two have no room.
    pub(crate) fn stages(self, gpu: &Gpu, vectors: i64) -> Option<u32> {
        let stage = self.stage_bytes(vectors);
        let has_room = |stages: u32| stage * i64::from(stages) <= i64::from(Gpu::STATIC_SHARED);
        let resident = |stages: u32| self.resident(gpu, vectors, stage * i64::from(stages));
        let keeps = |stages: &u32| has_room(*stages) && resident(*stages) == resident(2) && resident(2) > 0;
        STAGES.into_iter().find(keeps)
    }

    /// Tasks that a multiprocessor has at the same time, of so many bytes of shared memory.
    fn resident(self, gpu: &Gpu, vectors: i64, shared: i64) -> i64 {
        // As of a tile; ptxas takes what there is at most.
        let registers = self.rows * vectors * 3 / 2 + 2 * (self.rows + vectors) + ADDRESSES;
        let registers = (registers as u32).min(Gpu::REGISTERS_PER_THREAD);
        i64::from(gpu.resident_blocks((self.warps * LANES) as u32, registers, shared as u32))
    }

    /// Cycles of the whole product, by rounds of as many tasks as all multiprocessors have room for.
    fn cycles(self, gpu: &Gpu, extents: &Extents, stages: u32) -> f64 {
        let stage = self.stage_bytes(extents.vectors);
        let resident = self.resident(gpu, extents.vectors, stage * i64::from(stages)).max(1);
        let (tasks, of_round) = (extents.all / self.of_task(), resident * i64::from(gpu.multiprocessors));
        let round = |tasks: i64| match tasks {
            0 => 0.0,
            tasks => self.cycles_of(gpu, extents, tasks, stages),
        };
        (tasks / of_round) as f64 * round(of_round) + round(tasks % of_round)
    }

    /// Cycles of so many tasks at the same time. Of what they need of memory, the second-level cache, shared memory and the schedulers, that which
    /// takes longest decides; it waits for the others now and then.
    fn cycles_of(self, gpu: &Gpu, extents: &Extents, tasks: i64, stages: u32) -> f64 {
        let Extents { vectors, steps, .. } = *extents;
        let bytes = |rows: i64| (rows * STEPS * size_of::<f32>() as i64) as f64;
        let (matrix, fetched) = (bytes(self.of_task()), bytes(self.of_task() + vectors));
        let share = pieces_of(tasks, i64::from(gpu.multiprocessors)) as f64;
        let memory = gpu.cycles_of_bytes(tasks as f64 * matrix);
        let cache = share * fetched / Gpu::L2_PER_CYCLE;
        let loads = self.rows + vectors;
        let shared = share * (fetched + self.warps as f64 * bytes(loads)) / Gpu::SHARED_PER_CYCLE;
        let results = self.rows * vectors;
        let copies = pieces_of(self.of_task() + vectors, self.warps);
        let instructions = (results * WIDEST + loads + COPY * copies + LOOP) as f64;
        let of_warps = share * self.warps as f64 / WARPS_PER_CYCLE as f64;
        let all = [memory, cache, shared, of_warps * instructions];
        let slowest = all.into_iter().fold(instructions, f64::max);
        let waits = (all.iter().sum::<f64>() - slowest).max(0.0) / 4.0;
        // What is fetched next is asked for when the last of the stages is there.
        let answered = (f64::from(Gpu::LATENCY) + memory) / f64::from(stages.max(2) - 1);
        let times = pieces_of(steps, STEPS) as f64;
        times * (slowest + waits).max(answered) + of_warps * (results * COMBINE) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(gpu: &str, vectors: i64, rows: i64, steps: i64) -> Vec<(String, u32)> {
        let gpu = gpu.parse().expect("a GPU");
        let extents = Extents { vectors, rows, all: rows, steps };
        let stages = |team: Team| team.stages(&gpu, vectors).expect("they have room");
        let candidates = Team::candidates(&gpu, &extents);
        candidates.iter().map(|candidate| (candidate.value.to_string(), stages(candidate.value))).collect()
    }

    #[test]
    fn sixteen_vectors_get_tasks_that_run_in_one_round_and_read_them_less_often() {
        assert_eq!(offered("sm_90", 16, 8192, 4096)[0], ("8x4".to_owned(), 2));
        // A task for each multiprocessor would gain little.
        assert_eq!(offered("sm_90", 16, 4096, 4096)[0], ("4x4".to_owned(), 3));
        assert_eq!(offered("sm_90", 8, 8192, 4096)[0], ("4x4".to_owned(), 4));
    }

    /// Of operations that were timed on an H100.
    #[test]
    fn cycles_are_near_what_was_measured() {
        let gpu: Gpu = "sm_90".parse().expect("a GPU");
        // Threads beside 16 vectors had 168 registers then, so that 132 x 3 tasks ran at the same time.
        for (vectors, stages, rounds, microseconds) in [(8, 4, &[512][..], 53.5), (16, 2, &[396, 116], 71.1)]
        {
            let extents = Extents { vectors, rows: 8192, all: 8192, steps: 4096 };
            let round = |&tasks: &i64| TEAMS[0].cycles_of(&gpu, &extents, tasks, stages);
            let cycles: f64 = rounds.iter().map(round).sum();
            let ratio = cycles / f64::from(gpu.clock) / microseconds;
            assert!((ratio - 1.0).abs() < MARGIN, "{vectors}: {ratio}");
        }
    }

    #[test]
    fn teams_have_warps_for_every_scheduler() {
        // Of 132 multiprocessors with 4 schedulers each.
        let teams: Vec<String> = offered("sm_90", 8, 1056, 512).into_iter().map(|(team, _)| team).collect();
        assert_eq!(teams, ["2x4"]);
        assert!(offered("sm_90", 8, 1048, 512).is_empty());
        assert!(offered("sm_90", 8, 1057, 512).is_empty());
    }

    #[test]
    fn stages_leave_room_for_as_many_tasks() {
        let stages = |gpu: &str, vectors: i64| {
            let gpu = gpu.parse().expect("a GPU");
            Team { rows: 4, warps: 4 }.stages(&gpu, vectors)
        };
        assert_eq!([stages("sm_80", 8), stages("sm_90", 8)], [Some(3), Some(4)]);
        assert_eq!([stages("sm_80", 16), stages("sm_90", 16)], [Some(3), Some(3)]);
    }
}
