//! Static memory planning: offsets in one arena for buffers whose lifetimes are known.

/// A buffer to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Bytes.
    pub size: u64,
    /// The first instruction that touches it.
    pub first: u32,
    /// The last instruction that touches it.
    pub last: u32,
}

/// Where the buffers lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Offset of each buffer, in the order given.
    pub offsets: Vec<u64>,
    /// Bytes of the arena.
    pub total: u64,
}

impl Lifetime {
    fn overlaps(&self, other: &Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Buffers up to which orders are mended: each takes time in the square of their number.
const MAX_TRIED: usize = 2000;

/// How often a buffer that sticks out is placed earlier.
const ROUNDS: usize = 32;

/// Places buffers so that no two with overlapping lifetimes overlap in memory.
///
/// Greedy by size and by breadth (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020):
/// in some order, each buffer into the smallest gap between the buffers alive with it that holds it, else behind them. While
/// that needs more than [`lower_bound`], the buffer that ends last is placed first the next time. Offsets are multiples of
/// `align`.
pub fn place(buffers: &[Lifetime], align: u64) -> Placement {
    let bound = lower_bound(buffers, align);
    let mut by_size: Vec<usize> = (0..buffers.len()).collect();
    by_size.sort_by_key(|&i| (std::cmp::Reverse(buffers[i].size), buffers[i].first, i));
    let rounds = if buffers.len() > MAX_TRIED { 1 } else { ROUNDS };
    let mut best = Placement { offsets: Vec::new(), total: u64::MAX };
    for start in [by_size.clone(), by_breadth(buffers, &by_size)] {
        let mut order = start;
        for _ in 0..rounds {
            let placement = place_in_order(buffers, &order, align);
            let end = |&n: &usize| placement.offsets[order[n]] + buffers[order[n]].size;
            if let Some(last) = (0..order.len()).max_by_key(end) {
                order[..=last].rotate_right(1);
            }
            if placement.total < best.total {
                best = placement;
            }
            if best.total <= bound {
                return best;
            }
        }
    }
    best
}

/// Buffers by how much is alive together with them at most, those of equal breadth in the order given.
fn by_breadth(buffers: &[Lifetime], order: &[usize]) -> Vec<usize> {
    let alive = alive_bytes(buffers, 1);
    let breadth = |i: usize| {
        let span = buffers[i].first as usize..=buffers[i].last as usize;
        alive.get(span).and_then(|alive| alive.iter().max()).copied().unwrap_or(0)
    };
    let mut sorted = order.to_vec();
    sorted.sort_by_key(|&i| std::cmp::Reverse(breadth(i)));
    sorted
}

fn place_in_order(buffers: &[Lifetime], order: &[usize], align: u64) -> Placement {
    let round = |n: u64| n.div_ceil(align) * align;
    let mut offsets = vec![0; buffers.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for &i in order {
        let size = round(buffers[i].size);
        let mut alive: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&j| buffers[i].overlaps(&buffers[j]))
            .map(|&j| (offsets[j], offsets[j] + round(buffers[j].size)))
            .collect();
        alive.sort_unstable();
        let mut end = 0;
        let mut best: Option<(u64, u64)> = None;
        for (begin, stop) in alive {
            if begin > end {
                let gap = begin - end;
                if gap >= size && best.is_none_or(|(least, _)| gap < least) {
                    best = Some((gap, end));
                }
            }
            end = end.max(stop);
        }
        offsets[i] = best.map_or(end, |(_, offset)| offset);
        total = total.max(offsets[i] + size);
        placed.push(i);
    }
    Placement { offsets, total }
}

/// The least arena any placement needs: the largest sum of sizes alive at one instruction.
pub fn lower_bound(buffers: &[Lifetime], align: u64) -> u64 {
    alive_bytes(buffers, align).into_iter().max().unwrap_or(0)
}

/// The sum of sizes, rounded up to multiples of `align`, that are alive at each instruction.
fn alive_bytes(buffers: &[Lifetime], align: u64) -> Vec<u64> {
    let last = buffers.iter().map(|b| b.last).max().map_or(0, |n| n + 1);
    let mut change = vec![0i64; last as usize + 1];
    for buffer in buffers {
        let size = (buffer.size.div_ceil(align) * align) as i64;
        change[buffer.first as usize] += size;
        change[buffer.last as usize + 1] -= size;
    }
    let mut alive = 0;
    let sums = change.iter().map(|c| {
        alive += c;
        alive as u64
    });
    sums.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(size: u64, first: u32, last: u32) -> Lifetime {
        Lifetime { size, first, last }
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let chain: Vec<Lifetime> = (0..10).map(|i| buffer(100, i, i + 1)).collect();
        let placement = place(&chain, 64);
        assert_eq!(placement.total, 256);
        assert_eq!(lower_bound(&chain, 64), 256);
    }

    #[test]
    fn what_sticks_out_is_placed_earlier() {
        // By size the third lies between the others, and leaves no room for the last two beside it.
        let buffers =
            [buffer(640, 0, 1), buffer(512, 1, 3), buffer(448, 3, 5), buffer(448, 2, 3), buffer(320, 4, 5)];
        let by_size = place_in_order(&buffers, &[0, 1, 2, 3, 4], 64).total;
        let placement = place(&buffers, 64);
        assert!(by_size > lower_bound(&buffers, 64), "the case shows nothing");
        assert_eq!(placement.total, lower_bound(&buffers, 64), "{placement:?}");
    }

    #[test]
    fn buffers_alive_together_never_overlap() {
        let mut state = 7u64;
        let mut next = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let buffers: Vec<Lifetime> = (0..next(30))
                .map(|_| {
                    let first = next(20) as u32;
                    buffer(next(5000), first, first + next(6) as u32)
                })
                .collect();
            let placement = place(&buffers, 64);
            assert!(placement.total >= lower_bound(&buffers, 64));
            for (i, a) in buffers.iter().enumerate() {
                for (j, b) in buffers.iter().enumerate().take(i) {
                    let (x, y) = (placement.offsets[i], placement.offsets[j]);
                    assert_eq!(x % 64, 0);
                    assert!(
                        !a.overlaps(b) || x + a.size <= y || y + b.size <= x || a.size == 0 || b.size == 0
                    );
                }
            }
        }
    }
}
