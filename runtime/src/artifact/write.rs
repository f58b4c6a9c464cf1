//! Writing artifacts: deterministic bytes, weights streamed from where they are.

use alloc::vec::Vec;

use sha2::{Digest, Sha256};

use super::{ENTRY, HEADER, Kind, MAGIC, MAX_SECTIONS, Manifest, VERSION};
use crate::memory::{AlignedBuf, OutOfMemory};
use crate::plan::Plan;

/// The code for one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Level<'a> {
    /// The plan for all extents of the inputs.
    pub plan: &'a Plan,
    /// Those that are specialised for some.
    pub specialised: &'a [Plan],
    /// The code image, of all plans.
    pub image: &'a [u8],
}

/// What goes into an artifact. Images and weights are borrowed: nothing of them is held twice.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The manifest; its images describe those of `levels` in order.
    pub manifest: &'a Manifest,
    /// The levels, at least one.
    pub levels: &'a [Level<'a>],
    /// The weights section in pieces, padding included, that follow each other without a gap.
    pub weights: &'a [&'a [u8]],
}

/// Contents that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// Too many levels, or none.
    #[error("code for {0} instruction sets; 1 to {max} fit", max = (MAX_SECTIONS - 2) / 2)]
    Levels(usize),
    /// Manifest or plans could not be encoded.
    #[error("manifest or plans cannot be encoded: {0}")]
    Encode(postcard::Error),
    /// No memory for the bytes.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The file could not be written.
    #[cfg(feature = "std")]
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl From<postcard::Error> for ContentsError {
    fn from(error: postcard::Error) -> ContentsError {
        ContentsError::Encode(error)
    }
}

struct Layout<'a> {
    /// Header and section table.
    head: Vec<u8>,
    sections: Vec<(usize, Pieces<'a>)>,
    len: usize,
}

enum Pieces<'a> {
    Owned(Vec<u8>),
    Borrowed(&'a [&'a [u8]]),
}

impl Pieces<'_> {
    fn each<E>(&self, mut visit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Pieces::Owned(bytes) => visit(bytes),
            Pieces::Borrowed(pieces) => pieces.iter().try_for_each(|piece| visit(piece)),
        }
    }
}

impl<'a> Contents<'a> {
    fn layout(&self) -> Result<Layout<'a>, ContentsError> {
        let count = 2 + 2 * self.levels.len();
        if self.levels.is_empty() || count > MAX_SECTIONS {
            return Err(ContentsError::Levels(self.levels.len()));
        }
        let mut parts = Vec::with_capacity(count);
        parts.push((Kind::Manifest, Pieces::Owned(postcard::to_allocvec(self.manifest)?)));
        for level in self.levels {
            // As `Plans` reads them.
            let plans = postcard::to_allocvec(&(level.plan, level.specialised))?;
            parts.push((Kind::Plans, Pieces::Owned(plans)));
            parts.push((Kind::Code, Pieces::Borrowed(core::slice::from_ref(&level.image))));
        }
        parts.push((Kind::Weights, Pieces::Borrowed(self.weights)));

        let mut table = Vec::with_capacity(count * ENTRY);
        let mut sections = Vec::with_capacity(count);
        let mut end = HEADER + count * ENTRY;
        for (kind, pieces) in parts {
            let mut hash = Sha256::new();
            let mut len = 0;
            let infallible: Result<(), core::convert::Infallible> = pieces.each(|piece| {
                hash.update(piece);
                len += piece.len();
                Ok(())
            });
            let Ok(()) = infallible;
            let start = end.next_multiple_of(kind.align());
            table.extend((kind as u32).to_le_bytes());
            table.extend([0; 4]);
            table.extend((start as u64).to_le_bytes());
            table.extend((len as u64).to_le_bytes());
            table.extend(&hash.finalize()[..]);
            table.extend([0; 8]);
            sections.push((start, pieces));
            end = start + len;
        }
        let mut head = Vec::with_capacity(HEADER + table.len());
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.extend((count as u32).to_le_bytes());
        head.extend((end as u64).to_le_bytes());
        head.extend(&Sha256::digest(&table)[..]);
        head.extend([0; 8]);
        head.extend(table);
        Ok(Layout { head, sections, len: end })
    }

    /// The bytes of the artifact in memory, aligned for loading in place.
    ///
    /// # Errors
    /// When the contents cannot be encoded or there is no memory.
    pub fn to_bytes(&self) -> Result<AlignedBuf, ContentsError> {
        let layout = self.layout()?;
        let mut bytes = AlignedBuf::zeroed(layout.len)?;
        bytes[..layout.head.len()].copy_from_slice(&layout.head);
        for (start, pieces) in &layout.sections {
            let mut at = *start;
            pieces.each(|piece| {
                bytes[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
                Ok::<(), ContentsError>(())
            })?;
        }
        Ok(bytes)
    }

    /// Writes the artifact; the weights go from their pieces to `out`. Returns the number of bytes.
    ///
    /// # Errors
    /// When the contents cannot be encoded or `out` fails.
    #[cfg(feature = "std")]
    pub fn write_to(&self, out: &mut impl std::io::Write) -> Result<u64, ContentsError> {
        let layout = self.layout()?;
        out.write_all(&layout.head)?;
        let mut at = layout.head.len();
        for (start, pieces) in &layout.sections {
            out.write_all(&std::vec![0; start - at])?;
            at = *start;
            pieces.each(|piece| {
                at += piece.len();
                out.write_all(piece)
            })?;
        }
        out.flush()?;
        Ok(at as u64)
    }
}
