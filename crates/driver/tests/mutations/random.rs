//! Seeded numbers, and those on the edge of something.

#[path = "../../../../tools/random.rs"]
mod seeded;

pub(crate) use seeded::Random;

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

impl Random {
    pub(crate) fn edge(&mut self) -> i64 {
        EDGES[self.below(EDGES.len())]
    }

    /// One of a list.
    pub(crate) fn pick<'a, T>(&mut self, list: &'a mut [T]) -> Option<&'a mut T> {
        let index = self.below(list.len());
        list.get_mut(index)
    }
}
