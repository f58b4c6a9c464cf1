//! Seeded numbers, and those on the edge of something.

/// Numbers on the edge of something.
const EDGES: [i64; 16] = [
    0,
    -1,
    1,
    2,
    3,
    7,
    16,
    255,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    -(1 << 31),
    1 << 40,
    1 << 62,
    i64::MAX,
    i64::MIN,
];

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 if there is none.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn edge(&mut self) -> i64 {
        EDGES[self.below(EDGES.len())]
    }

    /// One of a list.
    pub(crate) fn pick<'a, T>(&mut self, list: &'a mut [T]) -> Option<&'a mut T> {
        let index = self.below(list.len());
        list.get_mut(index)
    }
}
