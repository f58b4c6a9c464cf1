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

/// Places buffers so that no two with overlapping lifetimes overlap in memory.
///
/// Greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020):
/// the largest buffer first, each into the smallest gap between the buffers alive with it that holds it,
/// else behind them. Offsets are multiples of `align`.
pub fn place(buffers: &[Lifetime], align: u64) -> Placement {
    let round = |n: u64| n.div_ceil(align) * align;
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&i| (std::cmp::Reverse(buffers[i].size), buffers[i].first, i));
    let mut offsets = vec![0; buffers.len()];
    let mut placed: Vec<usize> = Vec::new();
    let mut total = 0;
    for i in order {
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
    let last = buffers.iter().map(|b| b.last).max().map_or(0, |n| n + 1);
    let mut change = vec![0i64; last as usize + 1];
    for buffer in buffers {
        let size = (buffer.size.div_ceil(align) * align) as i64;
        change[buffer.first as usize] += size;
        change[buffer.last as usize + 1] -= size;
    }
    let mut alive = 0;
    change
        .iter()
        .map(|c| {
            alive += c;
            alive
        })
        .max()
        .unwrap_or(0) as u64
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
