//! Random schedules over all primitives: what they accept is legal, keeps the results and has no race; what they refuse is an
//! error and changes nothing.

mod common;

use common::*;
use tilewright_te::interp::evaluate_index;
use tilewright_te::schedule::compact::compact;
use tilewright_te::schedule::{
    Bind, CacheInplace, CacheRead, CacheWrite, CollapseDims, ComputeAt, ComputeInline, ComputeWith,
    DecomposeReduction, ExpandDim, Fuse, PadEinsum, Padding, Parallel, Piece, Pipeline, Prefetch, Primitive,
    PrimitiveKind, Reindex, Reorder, ReverseComputeAt, ReverseComputeInline, Rfactor, Schedule, SetScope,
    Split, SplitIter, StorageAlign, Tile, TransformLayout, Unroll, Vectorize,
};
use tilewright_te::verify::{Stage, verify};
use tilewright_te::{Block, ExprKind, Func, Loop, LoopKind, Scope, Stmt, ThreadLevel};

/// Schedules to try for each function, 2,240 in all; `TILEWRIGHT_SCHEDULES` in the environment overrides it.
const SCHEDULES: usize = 160;

/// Schedules that would do more than this are not followed (splits of splits multiply skipped iterations).
const MAX_ITERATIONS: i64 = 40_000;

/// The names that primitives can speak of.
struct Names {
    loops: Vec<String>,
    blocks: Vec<String>,
    buffers: Vec<String>,
}

impl Names {
    fn of(schedule: &Schedule) -> Names {
        let blocks = schedule.blocks();
        let mut loops: Vec<String> = Vec::new();
        for block in &blocks {
            for name in schedule.loop_names(block).unwrap() {
                if !loops.contains(&name) {
                    loops.push(name);
                }
            }
        }
        let buffers = schedule.func().buffers.values().map(|b| b.name.clone()).collect();
        Names { loops, blocks, buffers }
    }
}

/// The blocks, each with another one that reads what it writes.
fn pairs(func: &Func) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for producer in func.blocks() {
        for consumer in func.consumers(producer) {
            pairs.push((producer.name.clone(), consumer.name.clone()));
        }
    }
    pairs
}

/// Pairs of loops that follow one another.
fn loops_beside(func: &Func) -> Vec<(String, String)> {
    fn collect(func: &Func, stmts: &[Stmt], found: &mut Vec<(String, String)>) {
        let name = |l: &Loop| func.vars[l.var].name.clone();
        for pair in stmts.windows(2) {
            if let [Stmt::Loop(first), Stmt::Loop(second)] = pair {
                found.push((name(first), name(second)));
            }
        }
        for stmt in stmts {
            if let Stmt::Loop(l) = stmt {
                collect(func, &l.body, found);
            }
        }
    }
    let mut found = Vec::new();
    collect(func, &func.body, &mut found);
    found
}

/// The block that a primitive speaks of, if it does.
fn subject(primitive: &Primitive) -> Option<&String> {
    match primitive {
        Primitive::ComputeInline(ComputeInline { block })
        | Primitive::ReverseComputeInline(ReverseComputeInline { block })
        | Primitive::ComputeAt(ComputeAt { block, .. })
        | Primitive::ReverseComputeAt(ReverseComputeAt { block, .. })
        | Primitive::CacheRead(CacheRead { block, .. })
        | Primitive::Reindex(Reindex { block, .. })
        | Primitive::CacheWrite(CacheWrite { block, .. })
        | Primitive::CacheInplace(CacheInplace { block, .. })
        | Primitive::DecomposeReduction(DecomposeReduction { block, .. })
        | Primitive::SplitIter(SplitIter { block, .. })
        | Primitive::PadEinsum(PadEinsum { block, .. })
        | Primitive::Rfactor(Rfactor { block, .. })
        | Primitive::Prefetch(Prefetch { block, .. }) => Some(block),
        Primitive::Split(_)
        | Primitive::Fuse(_)
        | Primitive::Reorder(_)
        | Primitive::Tile(_)
        | Primitive::Unroll(_)
        | Primitive::Vectorize(_)
        | Primitive::Parallel(_)
        | Primitive::Bind(_)
        | Primitive::Pipeline(_)
        | Primitive::ComputeWith(_)
        | Primitive::SetScope(_)
        | Primitive::StorageAlign(_)
        | Primitive::TransformLayout(_)
        | Primitive::CollapseDims(_)
        | Primitive::ExpandDim(_) => None,
    }
}

/// Whether a primitive of a kind may fit a block, as far as that can be seen at once.
fn may_fit(kind: PrimitiveKind, block: &Block) -> bool {
    use PrimitiveKind as Kind;
    let mut accumulates = false;
    block.for_each_expr(|e| {
        let own = |b: &tilewright_te::Buffer| block.body.iter().any(|store| store.buffer == *b);
        e.walk(&mut |x| accumulates |= matches!(x.kind(), ExprKind::Load(b, _) if own(b)));
    });
    match kind {
        Kind::CacheInplace => accumulates && block.init.is_empty(),
        Kind::DecomposeReduction | Kind::Rfactor => accumulates && !block.init.is_empty(),
        Kind::ComputeInline => !accumulates && block.body.len() == 1,
        Kind::Split
        | Kind::Fuse
        | Kind::Reorder
        | Kind::Tile
        | Kind::Unroll
        | Kind::Vectorize
        | Kind::Parallel
        | Kind::Bind
        | Kind::ReverseComputeInline
        | Kind::ComputeAt
        | Kind::ReverseComputeAt
        | Kind::ComputeWith
        | Kind::CacheRead
        | Kind::Reindex
        | Kind::CacheWrite
        | Kind::SetScope
        | Kind::StorageAlign
        | Kind::TransformLayout
        | Kind::CollapseDims
        | Kind::ExpandDim
        | Kind::SplitIter
        | Kind::PadEinsum
        | Kind::Prefetch
        | Kind::Pipeline => true,
    }
}

/// How often each kind is tried; a kind that is new has to be given its share.
fn share_of(kind: PrimitiveKind) -> usize {
    use PrimitiveKind as Kind;
    match kind {
        Kind::Split => 6,
        Kind::Reorder => 6,
        Kind::Vectorize | Kind::ComputeAt | Kind::ReverseComputeAt | Kind::ComputeInline => 4,
        Kind::Fuse
        | Kind::Tile
        | Kind::Unroll
        | Kind::Parallel
        | Kind::Bind
        | Kind::ReverseComputeInline
        | Kind::CacheRead
        | Kind::Reindex
        | Kind::CacheWrite
        | Kind::CacheInplace
        | Kind::SetScope
        | Kind::StorageAlign
        | Kind::DecomposeReduction
        | Kind::TransformLayout
        | Kind::PadEinsum
        | Kind::Rfactor
        | Kind::Prefetch
        | Kind::Pipeline
        | Kind::ComputeWith
        | Kind::CollapseDims => 2,
        Kind::SplitIter | Kind::ExpandDim => 1,
    }
}

fn random_kind(random: &mut Random) -> PrimitiveKind {
    let shares = || PrimitiveKind::ALL.iter().map(|&kind| (kind, share_of(kind)));
    let mut at = random.below(shares().map(|(_, share)| share).sum());
    let chosen = shares().find(|&(_, share)| {
        let found = at < share;
        at = at.saturating_sub(share);
        found
    });
    chosen.expect("a share").0
}

/// A random kind, or one that goes with the last: of a block that was computed for another one the repeated work shows only when that
/// one is gone, and the loops that are left take another order.
fn next_kind(last: Option<PrimitiveKind>, random: &mut Random) -> PrimitiveKind {
    match last {
        Some(PrimitiveKind::CacheRead | PrimitiveKind::Reindex) if random.below(2) == 0 => {
            PrimitiveKind::ComputeAt
        }
        Some(PrimitiveKind::ComputeAt) if random.below(3) == 0 => PrimitiveKind::ComputeInline,
        Some(PrimitiveKind::ComputeAt) if random.below(2) == 0 => PrimitiveKind::Pipeline,
        Some(PrimitiveKind::ComputeInline) if random.below(3) == 0 => PrimitiveKind::Reorder,
        Some(_) | None => random_kind(random),
    }
}

/// A primitive of a kind on random names, legal or not. Names that primitives can speak of are many and few fit, so most are taken
/// among those that may, and half of those among what concerns the block `focus`: faults want several primitives in one place.
#[expect(clippy::too_many_lines, reason = "a table of one arm a primitive")]
fn random_primitive(kind: PrimitiveKind, schedule: &Schedule, focus: &str, random: &mut Random) -> Primitive {
    use PrimitiveKind as Kind;
    let names = Names::of(schedule);
    let word = |random: &mut Random, list: &[String]| random.pick(list).cloned().unwrap_or_default();
    let fits = |name: &String| schedule.func().block(name).is_some_and(|block| may_fit(kind, block));
    let (is_aimed, is_focused) = (random.below(4) > 0, random.below(2) > 0);
    let fitting: Vec<String> = names.blocks.iter().filter(|name| is_aimed && fits(name)).cloned().collect();
    let block = match fitting.iter().find(|name| is_focused && *name == focus) {
        Some(focus) => focus.clone(),
        None => word(random, if fitting.is_empty() { &names.blocks } else { &fitting }),
    };
    let loop_name = word(random, &names.loops);
    let buffer = word(random, &names.buffers);
    let own_loops = schedule.loop_names(&block).unwrap();
    let some_loops = |random: &mut Random| -> Vec<String> {
        if own_loops.is_empty() {
            return vec![loop_name.clone()];
        }
        let first = random.below(own_loops.len());
        own_loops[first..].iter().take(2 + random.below(2)).cloned().collect()
    };
    // A loop and those around and inside it, in any order.
    let permuted_loops = |random: &mut Random| -> Vec<String> {
        let mut left: Vec<String> = own_loops.iter().filter(|_| random.below(4) > 0).cloned().collect();
        (0..left.len()).map(|_| left.swap_remove(random.below(left.len()))).collect()
    };
    let own_loop = word(random, &own_loops);
    let mut pairs = pairs(schedule.func());
    pairs.retain(|(producer, _)| is_aimed && fits(producer));
    if is_focused && pairs.iter().any(|(producer, consumer)| producer == focus || consumer == focus) {
        pairs.retain(|(producer, consumer)| producer == focus || consumer == focus);
    }
    // Copies in shared memory are there to be taken inside of loops.
    let is_shared = |(producer, _): &&(String, String)| {
        let block = schedule.func().block(producer);
        block.is_some_and(|b| b.body.iter().all(|s| schedule.func().buffers[s.buffer].scope == Scope::Shared))
    };
    let shared: Vec<(String, String)> = pairs.iter().filter(is_shared).cloned().collect();
    let pair = random.pick(if is_focused && !shared.is_empty() { &shared } else { &pairs }).cloned();
    let producer = || pair.as_ref().map_or_else(|| block.clone(), |(producer, _)| producer.clone());
    let consumer = || pair.as_ref().map_or_else(|| block.clone(), |(_, consumer)| consumer.clone());
    let loop_around = |random: &mut Random, partner: Option<&String>| {
        let loops = partner.map(|partner| schedule.loop_names(partner).unwrap());
        loops.and_then(|loops| random.pick(&loops).cloned()).unwrap_or_else(|| loop_name.clone())
    };
    let factor = |random: &mut Random| [1, 2, 3, 4, 5, 8, 16][random.below(7)];
    // Most copies are in shared memory, where more can be done with them.
    let scopes = [Scope::Global, Scope::Stack, Scope::Register, Scope::Shared, Scope::Shared, Scope::Shared];
    let is_copy = matches!(kind, Kind::CacheRead | Kind::Reindex);
    let scope = scopes[random.below(if is_copy { 6 } else { 4 })];
    let level = [ThreadLevel::Warp, ThreadLevel::Lane][random.below(2)];
    match kind {
        Kind::Split => {
            let inner = Some(factor(random));
            let factors = match random.below(4) {
                0 => vec![None, Some(factor(random)), inner],
                1 => vec![inner, None],
                _ => vec![None, inner],
            };
            Split { loop_name, factors }.into()
        }
        Kind::Fuse => Fuse { loops: some_loops(random) }.into(),
        Kind::Reorder => {
            let mut loops = some_loops(random);
            match random.below(2) {
                0 => loops.reverse(),
                _ => loops = permuted_loops(random),
            }
            Reorder { loops }.into()
        }
        Kind::Tile => {
            let loops = some_loops(random);
            let factors = loops.iter().map(|_| factor(random)).collect();
            Tile { loops, factors }.into()
        }
        Kind::Unroll => Unroll { loop_name }.into(),
        Kind::Vectorize => Vectorize { loop_name }.into(),
        // Only an outermost loop can be one of tasks, or the one alone inside it.
        Kind::Parallel => {
            let outer = own_loops.get(random.below(2)).cloned().unwrap_or(loop_name);
            Parallel { loop_name: outer }.into()
        }
        Kind::Bind => Bind { loop_name, level }.into(),
        Kind::ComputeInline => ComputeInline { block: producer() }.into(),
        Kind::ReverseComputeInline => ReverseComputeInline { block: consumer() }.into(),
        Kind::ComputeAt => {
            let loop_name = loop_around(random, pair.as_ref().map(|(_, consumer)| consumer));
            ComputeAt { block: producer(), loop_name }.into()
        }
        Kind::ReverseComputeAt => {
            let loop_name = loop_around(random, pair.as_ref().map(|(producer, _)| producer));
            ReverseComputeAt { block: consumer(), loop_name }.into()
        }
        Kind::ComputeWith => {
            let beside = loops_beside(schedule.func());
            match random.pick(&beside).filter(|_| is_aimed).cloned() {
                Some((with, loop_name)) => ComputeWith { loop_name, with }.into(),
                None => ComputeWith { loop_name, with: own_loop }.into(),
            }
        }
        Kind::CacheRead => CacheRead { block, buffer, scope }.into(),
        Kind::Reindex => {
            let mut iters = read_by(schedule.func(), &block, &buffer);
            if random.below(2) == 0 {
                iters.reverse();
            }
            Reindex { block, buffer, iters, scope }.into()
        }
        Kind::CacheWrite => CacheWrite { block, scope }.into(),
        Kind::CacheInplace => CacheInplace { block, loop_name: own_loop, scope }.into(),
        Kind::SetScope => SetScope { buffer, scope }.into(),
        Kind::DecomposeReduction => DecomposeReduction { block, loop_name: own_loop }.into(),
        Kind::TransformLayout => {
            let rank =
                schedule.func().buffers.values().find(|b| b.name == buffer).map_or(0, |b| b.shape.len());
            let mut pieces: Vec<Piece> = (0..rank).map(|dim| Piece { dim, factor: None }).collect();
            if rank > 0 {
                let dim = random.below(rank);
                pieces.push(Piece { dim, factor: Some(factor(random)) });
            }
            if rank > 1 && random.below(2) == 0 {
                pieces.swap(0, 1);
            }
            let padding = if random.below(2) == 0 { Padding::Zero } else { Padding::Undefined };
            TransformLayout { buffer, pieces, padding }.into()
        }
        Kind::StorageAlign => {
            let factor = [4, 8, 32][random.below(3)];
            StorageAlign { buffer, factor, offset: random.below(5) as i64 }.into()
        }
        Kind::CollapseDims => {
            let ends = if random.below(2) == 0 { vec![consumer()] } else { Vec::new() };
            CollapseDims { buffer, dim: random.below(3), ends }.into()
        }
        Kind::ExpandDim => ExpandDim { buffer, dim: random.below(3), inner: factor(random) }.into(),
        Kind::SplitIter => SplitIter { block, iter: random.below(4), inner: factor(random) }.into(),
        Kind::PadEinsum => {
            let n = schedule.func().block(&block).map_or(0, |b| b.iters.len());
            PadEinsum { block, factors: (0..n).map(|_| factor(random)).collect() }.into()
        }
        Kind::Rfactor => Rfactor { block, loop_name: own_loop }.into(),
        Kind::Pipeline => {
            let copying = loops_that_copy(schedule.func());
            let loop_name = random.pick(&copying).filter(|_| is_aimed).cloned().unwrap_or(own_loop);
            Pipeline { loop_name, stages: [2, 3, 4][random.below(3)] }.into()
        }
        Kind::Prefetch => {
            let along = if random.below(2) == 0 { some_loops(random) } else { Vec::new() };
            let distance = random.below(4) as i64;
            let (assumed, line) = (4, [1, 16][random.below(2)]);
            let first_of = if random.below(2) == 0 { some_loops(random) } else { Vec::new() };
            let (loop_name, around) = (own_loop, loop_name);
            Prefetch { loop_name, block, buffer, around, distance, assumed, along, first_of, line }.into()
        }
    }
}

/// Serial loops that begin with what fills shared memory.
fn loops_that_copy(func: &Func) -> Vec<String> {
    fn visit(func: &Func, stmts: &[Stmt], found: &mut Vec<String>) {
        for stmt in stmts {
            let Stmt::Loop(l) = stmt else { continue };
            let mut first = &l.body[0];
            while let Stmt::Loop(inner) = first {
                first = &inner.body[0];
            }
            let Stmt::Block(block) = first else { continue };
            let is_shared = block.body.iter().all(|s| func.buffers[s.buffer].scope == Scope::Shared);
            if is_shared && l.body.len() > 1 && l.kind == LoopKind::Serial {
                found.push(func.vars[l.var].name.clone());
            }
            visit(func, &l.body, found);
        }
    }
    let mut found = Vec::new();
    visit(func, &func.body, &mut found);
    found
}

/// The positions of the variables by which a block reads a buffer.
fn read_by(func: &Func, block: &str, buffer: &str) -> Vec<usize> {
    let Some(block) = func.block(block) else { return Vec::new() };
    let mut used = vec![false; block.iters.len()];
    block.for_each_expr(|e| {
        e.walk(&mut |x| {
            if let ExprKind::Load(b, indices) = x.kind()
                && func.buffers[*b].name == buffer
            {
                for (used, iter) in used.iter_mut().zip(&block.iters) {
                    *used |= indices.iter().any(|index| index.uses(iter.var));
                }
            }
        });
    });
    (0..used.len()).filter(|&n| used[n]).collect()
}

/// Iterations of all blocks, with symbolic extents at their greatest: what the interpreter will have to do.
fn iterations(func: &Func) -> i64 {
    fn of(stmts: &[Stmt]) -> i64 {
        let count = |s: &Stmt| match s {
            Stmt::Block(_) => 1,
            Stmt::Loop(l) => {
                let extent = evaluate_index(&l.extent, &|_| Some(20)).unwrap().max(0);
                extent.saturating_mul(of(&l.body))
            }
        };
        stmts.iter().map(count).fold(0, i64::saturating_add)
    }
    of(&func.body)
}

/// Whether the primitive would change the function's contract with its caller.
fn changes_contract(schedule: &Schedule, primitive: &Primitive) -> bool {
    let Primitive::TransformLayout(transform) = primitive else { return false };
    let func = schedule.func();
    func.params.iter().any(|p| func.buffers[*p].name == transform.buffer)
}

/// How often primitives of each kind were accepted and refused.
type Counts = std::collections::BTreeMap<PrimitiveKind, (usize, usize)>;

/// A schedule of random primitives, of which an error must change nothing.
fn random_schedule(original: &Func, random: &mut Random, counts: &mut Counts) -> Schedule {
    let mut schedule = Schedule::new(original.clone());
    let (mut focus, mut last) = (String::new(), None);
    for _ in 0..8 + random.below(30) {
        let primitive = random_primitive(next_kind(last, random), &schedule, &focus, random);
        if changes_contract(&schedule, &primitive) {
            continue;
        }
        let before = schedule.func().to_string();
        let counts = counts.entry(primitive.kind()).or_default();
        let mut next = schedule.clone();
        let result = next.apply(primitive.clone());
        if iterations(next.func()) > MAX_ITERATIONS {
            continue;
        }
        schedule = next;
        match result {
            Ok(_) => {
                counts.0 += 1;
                last = Some(primitive.kind());
                let is_there = |name: &&String| schedule.func().block(name).is_some();
                focus = subject(&primitive).filter(is_there).cloned().unwrap_or(focus);
            }
            Err(error) => {
                counts.1 += 1;
                assert!(!error.reason.is_empty());
                assert_eq!(schedule.func().to_string(), before, "an error changed the function");
            }
        }
    }
    schedule
}

/// Demands that a function is legal and computes the same as the original, whatever tasks and lanes run at the same time.
///
/// What nothing proves to be free of races is watched while it runs: of guarded remainders of remainders, of which
/// primitives make many, no proof finds that they are distinct elements.
fn check_legal(original: &Func, func: &Func, seed: u64) {
    let mut violations = verify(func, Stage::Scheduled);
    violations.retain(|violation| !violation.is_unproven);
    assert_eq!(violations, []);
    assert_same_results(original, func, seed);
}

fn check_seed(original: &Func, seed: u64, counts: &mut Counts) -> bool {
    let mut random = Random(seed);
    let schedule = random_schedule(original, &mut random, counts);
    let text = schedule.func().to_string();
    let replayed = Schedule::replay(original.clone(), schedule.trace()).expect("the trace replays");
    assert_eq!(replayed.func().to_string(), text);
    let trace = schedule.trace().to_vec();
    let context = || format!("seed {seed}, trace {trace:#?}\n{text}");
    let parsed: Func = text.parse().unwrap_or_else(|e| panic!("{e}\n{}", context()));
    assert_eq!(parsed.to_string(), text);
    let unfinished = schedule.func();
    let result = std::panic::catch_unwind(|| check_legal(original, unfinished, seed));
    assert!(result.is_ok(), "{}", context());
    let mut finished = unfinished.clone();
    if compact(&mut finished).is_err() {
        return false;
    }
    let result = std::panic::catch_unwind(|| check_legal(original, &finished, seed));
    assert!(result.is_ok(), "finished {finished}\n{}", context());
    true
}

fn check(original: Func) {
    let schedules = std::env::var("TILEWRIGHT_SCHEDULES").map_or(SCHEDULES, |n| n.parse().expect("a number"));
    let mut counts = Counts::new();
    let finished = (0..schedules as u64).filter(|&seed| check_seed(&original, seed, &mut counts)).count();
    assert!(finished > schedules * 3 / 4, "only {finished} schedules could be finished");
    let (accepted, refused) = counts.values().fold((0, 0), |sum, c| (sum.0 + c.0, sum.1 + c.1));
    let kinds = counts.values().filter(|c| c.0 > 0).count();
    assert!(kinds > 12 && accepted > 6 * schedules && refused > 4 * schedules, "{counts:?}");
}

/// The functions of the tests below.
fn all_functions() -> Vec<Func> {
    vec![
        matmul_bias_relu(Dim::Fixed(9), Dim::Fixed(16), Dim::Fixed(6)),
        matmul_bias_relu(Dim::Open, Dim::Open, Dim::Fixed(7)),
        conv2d(1, 2, 5, 6, 3, 1, 1),
        softmax(4, 19),
        transpose(4, 9, 5),
        transforms(6, 8, 12),
    ]
}

/// Of every kind some primitives are accepted, and some refused: the schedules of the other tests are over all of them.
#[test]
fn every_primitive_is_tried() {
    let mut counts = Counts::new();
    for original in all_functions() {
        for seed in 0..100 {
            random_schedule(&original, &mut Random(seed), &mut counts);
        }
    }
    for kind in PrimitiveKind::ALL {
        let (accepted, refused) = counts.get(kind).copied().unwrap_or_default();
        assert!(accepted >= 5 && refused >= 5, "{kind:?}: {accepted} accepted, {refused} refused");
    }
}

#[test]
fn matmul() {
    check(matmul_bias_relu(Dim::Fixed(9), Dim::Fixed(16), Dim::Fixed(6)));
}

#[test]
fn matmul_of_symbolic_extents() {
    check(matmul_bias_relu(Dim::Open, Dim::Open, Dim::Fixed(7)));
}

#[test]
fn convolution() {
    check(conv2d(1, 2, 5, 6, 3, 1, 1));
}

#[test]
fn strided_convolution() {
    check(conv2d(1, 2, 4, 7, 3, 2, 1));
}

#[test]
fn depthwise_convolution() {
    check(depthwise(6, 7, 3, 1));
}

#[test]
fn row_softmax() {
    check(softmax(4, 19));
}

#[test]
fn row_norm() {
    check(layer_norm(Dim::Open, 16));
}

#[test]
fn pooling() {
    check(max_pool(5, 9, 3, 2));
}

#[test]
fn gathered_rows() {
    check(gather(10, 12, 7));
}

#[test]
fn first_hits_of_rows() {
    check(first_hits(5, 9));
}

#[test]
fn centred_rows() {
    check(centred(Dim::Fixed(5), 9));
}

#[test]
fn centred_rows_of_an_open_number() {
    check(centred(Dim::Open, 6));
}

#[test]
fn transposition() {
    check(transpose(4, 9, 5));
}

#[test]
fn transforms_there_and_back() {
    check(transforms(6, 8, 12));
}
