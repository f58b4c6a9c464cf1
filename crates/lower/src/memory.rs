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
    let alive = RangeMaximum::new(alive_bytes(buffers, 1));
    let breadth = |i: usize| alive.of(buffers[i].first as usize, buffers[i].last as usize);
    let mut sorted = order.to_vec();
    sorted.sort_by_cached_key(|&i| std::cmp::Reverse(breadth(i)));
    sorted
}

/// The greatest of consecutive numbers: row `k` of the table has that of each `2^k` of them.
struct RangeMaximum {
    rows: Vec<Vec<u64>>,
}

impl RangeMaximum {
    fn new(numbers: Vec<u64>) -> RangeMaximum {
        let mut rows = vec![numbers];
        let mut step = 1;
        while let Some(last) = rows.last().filter(|row| row.len() > step) {
            rows.push((0..last.len() - step).map(|i| last[i].max(last[i + step])).collect());
            step *= 2;
        }
        RangeMaximum { rows }
    }

    /// The greatest of numbers `first..=last`.
    fn of(&self, first: usize, last: usize) -> u64 {
        let k = (last + 1 - first).ilog2() as usize;
        self.rows[k][first].max(self.rows[k][last + 1 - (1 << k)])
    }
}

fn place_in_order(buffers: &[Lifetime], order: &[usize], align: u64) -> Placement {
    let round = |n: u64| n.div_ceil(align) * align;
    let mut offsets = vec![0; buffers.len()];
    let mut placed = PlacedBuffers::new(buffers.iter().map(|b| b.last + 1).max().unwrap_or(0));
    let mut total = 0;
    for &i in order {
        let size = round(buffers[i].size);
        let mut alive: Vec<(u64, u64)> = Vec::new();
        placed.for_each_alive(&buffers[i], |j| alive.push((offsets[j], offsets[j] + round(buffers[j].size))));
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
        placed.insert(i, &buffers[i]);
    }
    Placement { offsets, total }
}

/// Placed buffers by when they are alive: a segment tree over instructions. Each buffer is kept at the largest ranges of
/// instructions that together are its lifetime.
struct PlacedBuffers {
    /// Instructions, rounded up to a power of two.
    width: usize,
    /// What is alive in the whole of each range; range `n` is made of ranges `2n` and `2n + 1`.
    whole: Vec<Vec<usize>>,
    /// Whether anything is alive in a part of each range.
    any: Vec<bool>,
}

impl PlacedBuffers {
    fn new(n_instructions: u32) -> PlacedBuffers {
        let width = (n_instructions as usize).next_power_of_two();
        PlacedBuffers { width, whole: vec![Vec::new(); 2 * width], any: vec![false; 2 * width] }
    }

    fn insert(&mut self, index: usize, lifetime: &Lifetime) {
        let (mut low, mut high) =
            (lifetime.first as usize + self.width, lifetime.last as usize + 1 + self.width);
        while low < high {
            if low % 2 == 1 {
                self.keep(low, index);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.keep(high, index);
            }
            (low, high) = (low / 2, high / 2);
        }
    }

    fn keep(&mut self, range: usize, index: usize) {
        self.whole[range].push(index);
        let mut above = range;
        while above > 0 && !self.any[above] {
            self.any[above] = true;
            above /= 2;
        }
    }

    /// Calls `visit` with every buffer that is alive together with one, perhaps more than once.
    fn for_each_alive(&self, lifetime: &Lifetime, mut visit: impl FnMut(usize)) {
        let (first, last) = (lifetime.first as usize + self.width, lifetime.last as usize + self.width);
        // Ranges around the first or the last instruction, each once.
        let mut inside: Vec<usize> = Vec::new();
        let (mut low, mut high) = (first, last);
        while low > 0 {
            self.whole[low].iter().for_each(|&index| visit(index));
            if high != low {
                self.whole[high].iter().for_each(|&index| visit(index));
                if low % 2 == 0 && low + 1 < high {
                    inside.push(low + 1);
                }
                if high % 2 == 1 && high - 1 > low {
                    inside.push(high - 1);
                }
            }
            (low, high) = (low / 2, high / 2);
        }
        while let Some(range) = inside.pop() {
            if self.any[range] {
                self.whole[range].iter().for_each(|&index| visit(index));
                if range < self.width {
                    inside.extend([2 * range, 2 * range + 1]);
                }
            }
        }
    }
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
                        a.last < b.first
                            || b.last < a.first
                            || x + a.size <= y
                            || y + b.size <= x
                            || a.size == 0
                            || b.size == 0
                    );
                }
            }
        }
    }

    /// What is alive together is found as by looking at all, and what is not is not looked at.
    #[test]
    fn only_what_is_alive_is_looked_at() {
        let mut state = 7u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let buffers: Vec<Lifetime> = (0..500)
            .map(|_| {
                let first = random(300) as u32;
                Lifetime { size: 64, first, last: first + random(20) as u32 }
            })
            .collect();
        let mut placed = PlacedBuffers::new(320);
        let mut visits = 0;
        for (i, buffer) in buffers.iter().enumerate() {
            let mut found = std::collections::BTreeSet::new();
            placed.for_each_alive(buffer, |j| {
                visits += 1;
                found.insert(j);
            });
            let expected =
                (0..i).filter(|&j| buffer.first <= buffers[j].last && buffers[j].first <= buffer.last);
            assert!(found.into_iter().eq(expected), "{buffer:?}");
            placed.insert(i, buffer);
        }
        assert!(visits < 500 * 500 / 4, "{visits} visits");
        let numbers: Vec<u64> = (0..100).map(|_| random(1000)).collect();
        let maximum = RangeMaximum::new(numbers.clone());
        for _ in 0..1000 {
            let (a, b) = (random(100) as usize, random(100) as usize);
            let (first, last) = (a.min(b), a.max(b));
            assert_eq!(Some(&maximum.of(first, last)), numbers[first..=last].iter().max());
        }
    }
}
