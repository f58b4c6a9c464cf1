//! Writing artifacts: deterministic bytes, weights streamed from where they are.

use alloc::vec::Vec;

use sha2::{Digest as _, Sha256};

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

/// A SHA-256 checksum.
type Digest = [u8; 32];

/// A section where it lies.
struct Section<'a> {
    kind: Kind,
    start: usize,
    len: usize,
    pieces: Pieces<'a>,
}

impl Section<'_> {
    fn digest(&self) -> Digest {
        let mut hash = Sha256::new();
        let infallible: Result<(), core::convert::Infallible> = self.pieces.each(|piece| {
            hash.update(piece);
            Ok(())
        });
        let Ok(()) = infallible;
        hash.finalize().into()
    }
}

enum Pieces<'a> {
    Owned(Vec<u8>),
    Borrowed(&'a [&'a [u8]]),
}

impl Pieces<'_> {
    fn len(&self) -> usize {
        match self {
            Pieces::Owned(bytes) => bytes.len(),
            Pieces::Borrowed(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
        }
    }

    fn each<E>(&self, mut visit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match self {
            Pieces::Owned(bytes) => visit(bytes),
            Pieces::Borrowed(pieces) => pieces.iter().try_for_each(|piece| visit(piece)),
        }
    }
}

fn digests(sections: &[Section<'_>]) -> Vec<Digest> {
    sections.iter().map(Section::digest).collect()
}

/// Bytes of header and table of so many sections.
fn head_len(n_sections: usize) -> usize {
    HEADER + n_sections * ENTRY
}

/// Header and section table.
fn head(sections: &[Section<'_>], digests: &[Digest]) -> Vec<u8> {
    let mut table = Vec::with_capacity(sections.len() * ENTRY);
    for (section, digest) in sections.iter().zip(digests) {
        table.extend((section.kind as u32).to_le_bytes());
        table.extend([0; 4]);
        table.extend((section.start as u64).to_le_bytes());
        table.extend((section.len as u64).to_le_bytes());
        table.extend(digest);
        table.extend([0; 8]);
    }
    let end = sections.last().map_or(head_len(0), |last| last.start + last.len);
    let mut head = Vec::with_capacity(HEADER + table.len());
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend((sections.len() as u32).to_le_bytes());
    head.extend((end as u64).to_le_bytes());
    head.extend(&Sha256::digest(&table)[..]);
    head.extend([0; 8]);
    head.extend(table);
    head
}

impl<'a> Contents<'a> {
    /// The sections, one after the other behind the head.
    fn sections(&self) -> Result<Vec<Section<'a>>, ContentsError> {
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

        let mut end = head_len(count);
        let placed = parts.into_iter().map(|(kind, pieces)| {
            let (start, len) = (end.next_multiple_of(kind.align()), pieces.len());
            end = start + len;
            Section { kind, start, len, pieces }
        });
        Ok(placed.collect())
    }

    /// The bytes of the artifact in memory, aligned for loading in place.
    ///
    /// # Errors
    /// When the contents cannot be encoded or there is no memory.
    pub fn to_bytes(&self) -> Result<AlignedBuf, ContentsError> {
        let sections = self.sections()?;
        let head = head(&sections, &digests(&sections));
        let end = sections.last().map_or(head.len(), |last| last.start + last.len);
        let mut bytes = AlignedBuf::zeroed(end)?;
        bytes[..head.len()].copy_from_slice(&head);
        for section in &sections {
            let mut at = section.start;
            section.pieces.each(|piece| {
                bytes[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
                Ok::<(), ContentsError>(())
            })?;
        }
        Ok(bytes)
    }

    /// Writes the artifact; the weights go from their pieces to `out`, while another thread computes the checksums where what is
    /// written can be returned to. Returns the number of bytes.
    ///
    /// # Errors
    /// When the contents cannot be encoded or `out` fails.
    #[cfg(feature = "std")]
    pub fn write_to(&self, out: &mut (impl std::io::Write + std::io::Seek)) -> Result<u64, ContentsError> {
        let sections = self.sections()?;
        let Ok(begin) = out.stream_position() else {
            // A pipe: the checksums come first.
            out.write_all(&head(&sections, &digests(&sections)))?;
            let end = write_sections(&sections, out)?;
            out.flush()?;
            return Ok(end);
        };
        let mut written = Ok(0);
        let computed = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, || digests(&sections));
            written = out
                .write_all(&std::vec![0; head_len(sections.len())])
                .and_then(|()| write_sections(&sections, out));
            thread.ok().and_then(|thread| thread.join().ok())
        });
        let end = written?;
        // Without a second thread, by this one.
        let computed = computed.unwrap_or_else(|| digests(&sections));
        out.seek(std::io::SeekFrom::Start(begin))?;
        out.write_all(&head(&sections, &computed))?;
        out.seek(std::io::SeekFrom::Start(begin + end))?;
        out.flush()?;
        Ok(end)
    }
}

/// Writes what comes after the head; where it ends.
#[cfg(feature = "std")]
fn write_sections(sections: &[Section<'_>], out: &mut impl std::io::Write) -> std::io::Result<u64> {
    let mut at = head_len(sections.len());
    for section in sections {
        out.write_all(&std::vec![0; section.start - at])?;
        section.pieces.each(|piece| out.write_all(piece))?;
        at = section.start + section.len;
    }
    Ok(at as u64)
}
