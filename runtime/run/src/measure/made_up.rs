//! Made-up data that functions are measured on.

use std::ops::Range;

use tilewright_runtime::plan::ALIGN;

/// `n` 32-bit floats between -0.5 and 0.5, the same for the same seed.
pub fn noise(seed: u64, n: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).flat_map(|_| (random.f32() - 0.5).to_le_bytes()).collect()
}

/// Memory of which pieces are taken one after the other, and from the start again when it is at its end: what is taken was not read
/// for as long as possible.
#[derive(Debug, Default)]
pub struct Ring {
    bytes: Vec<u8>,
    /// The first byte at a multiple of [`ALIGN`].
    start: usize,
    /// Where the next piece begins, from there.
    at: usize,
}

impl Ring {
    /// Makes it at least so large. What was taken of it before is void.
    pub fn grow(&mut self, bytes: usize) {
        if self.bytes.len() < bytes + ALIGN {
            self.bytes = noise(bytes as u64, (bytes + ALIGN).div_ceil(4));
            self.start = self.bytes.as_ptr().align_offset(ALIGN);
            self.at = 0;
        }
    }

    /// Begins from the start again.
    pub fn rewind(&mut self) {
        self.at = 0;
    }

    /// The next piece, of so many bytes: at a multiple of [`ALIGN`], and within the first `span` bytes where it is no larger than that.
    ///
    /// # Panics
    /// If a piece or the span is larger than the ring.
    pub fn take(&mut self, bytes: usize, span: usize) -> Range<usize> {
        let len = self.bytes.len() - self.start;
        assert!(bytes.max(span) <= len, "a piece of {} bytes of a ring of {len}", bytes.max(span));
        let begin = if self.at + bytes <= span { self.at } else { 0 };
        self.at = (begin + bytes).next_multiple_of(ALIGN);
        begin..begin + bytes
    }

    /// What was taken.
    pub fn piece(&self, place: &Range<usize>) -> &[u8] {
        &self.bytes[self.start..][place.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_again_as_late_as_they_can() {
        let mut ring = Ring::default();
        ring.grow(1000);
        let taken: Vec<Range<usize>> = (0..4).map(|_| ring.take(300, 1000)).collect();
        assert_eq!(taken, [0..300, 320..620, 640..940, 0..300]);
        assert_eq!(
            [ring.take(100, 400), ring.take(100, 400), ring.take(500, 400)],
            [0..100, 128..228, 0..500]
        );
        for place in &taken {
            let piece = ring.piece(place);
            assert_eq!((piece.len(), piece.as_ptr().addr() % ALIGN), (300, 0));
        }
    }
}
