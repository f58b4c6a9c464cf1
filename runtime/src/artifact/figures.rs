//! What the section table says of a level's need of memory.

/// What a level's entry in the section table says.
#[derive(Clone, Copy, Default)]
pub(super) struct Figures {
    /// The heap with addresses of 4 and of 8 bytes; of each, without names and with them.
    pub(super) heap: [[u32; 2]; 2],
    /// Bytes of tensors, or [`UNKNOWN`].
    pub(super) tensors: u64,
}

/// Bytes of tensors where inputs decide.
pub(super) const UNKNOWN: u64 = u64::MAX;

impl Figures {
    #[cfg(feature = "checksums")]
    pub(super) fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (to, figure) in bytes.chunks_exact_mut(4).zip(self.heap.as_flattened()) {
            to.copy_from_slice(&figure.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&self.tensors.to_le_bytes());
        bytes
    }

    pub(super) fn of_bytes(bytes: [u8; 24]) -> Figures {
        let at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Figures {
            heap: [[at(0), at(4)], [at(8), at(12)]],
            tensors: u64::from(at(16)) | u64::from(at(20)) << 32,
        }
    }
}
