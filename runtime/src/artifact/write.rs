//! Writing artifacts: deterministic bytes, weights streamed from where they are or as they are made.

use alloc::string::String;
use alloc::vec::Vec;

#[cfg(feature = "std")]
use xxhash_rust::xxh3::Xxh3;

use super::figures::Figures;
use super::needs::figures;
use super::notes::Notes;
use super::{Checksum, ENTRY, HEADER, Kind, MAGIC, MAX_SECTIONS, Manifest, VERSION, checksum};
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
    /// The code for a device, if there is any.
    pub device_code: Option<&'a [u8]>,
}

/// What goes into an artifact. Images and weights are borrowed: nothing of them is held twice.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// The manifest; its images describe those of `levels` in order.
    pub manifest: &'a Manifest,
    /// The levels, at least one.
    pub levels: &'a [Level<'a>],
    /// The weights section.
    pub weights: &'a dyn Pieces,
}

/// A section in pieces that follow each other without a gap, padding included.
pub trait Pieces: core::fmt::Debug + Sync {
    /// Bytes of all pieces together.
    fn total(&self) -> usize;

    /// Gives the pieces to `visit` in order, the same each time; they may be made meanwhile, and need not outlive the call.
    ///
    /// # Errors
    /// The first that `visit` gives, and pieces that cannot be made.
    fn each(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), ContentsError>) -> Result<(), ContentsError>;
}

impl<T: AsRef<[u8]> + core::fmt::Debug + Sync, const N: usize> Pieces for [T; N] {
    fn total(&self) -> usize {
        self.iter().map(|piece| piece.as_ref().len()).sum()
    }

    fn each(&self, visit: &mut dyn FnMut(&[u8]) -> Result<(), ContentsError>) -> Result<(), ContentsError> {
        self.iter().try_for_each(|piece| visit(piece.as_ref()))
    }
}

/// Contents that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// Too many levels, or none.
    #[error("code for {0} instruction sets; 1 to {max} fit", max = (MAX_SECTIONS - 3) / 3)]
    Levels(usize),
    /// Manifest or plans could not be encoded.
    #[error("manifest or plans cannot be encoded: {0}")]
    Encode(postcard::Error),
    /// Pieces that could not be made.
    #[error("weights cannot be made: {0}")]
    Pieces(String),
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

/// A section where it lies.
struct Section<'a> {
    kind: Kind,
    /// What a level needs, for its plans.
    figures: Figures,
    start: usize,
    len: usize,
    bytes: SectionBytes<'a>,
}

enum SectionBytes<'a> {
    Owned(Vec<u8>),
    Borrowed(&'a [u8]),
    Pieces(&'a dyn Pieces),
}

impl Section<'_> {
    /// Gives the section's bytes in order; as many as it has room for.
    fn each(&self, mut visit: impl FnMut(&[u8]) -> Result<(), ContentsError>) -> Result<(), ContentsError> {
        let pieces = match &self.bytes {
            SectionBytes::Owned(bytes) => return visit(bytes),
            SectionBytes::Borrowed(bytes) => return visit(bytes),
            SectionBytes::Pieces(pieces) => pieces,
        };
        let mut left = self.len;
        pieces.each(&mut |piece| {
            left = left.checked_sub(piece.len()).ok_or_else(wrong_total)?;
            visit(piece)
        })?;
        if left == 0 { Ok(()) } else { Err(wrong_total()) }
    }

    #[cfg(feature = "std")]
    fn checksum(&self) -> Result<Checksum, ContentsError> {
        let mut hash = Xxh3::new();
        self.each(|piece| {
            hash.update(piece);
            Ok(())
        })?;
        Ok(hash.digest128().to_le_bytes())
    }
}

fn wrong_total() -> ContentsError {
    ContentsError::Pieces("they are not as long as was said".into())
}

/// Bytes of header and table of so many sections.
fn head_len(n_sections: usize) -> usize {
    HEADER + n_sections * ENTRY
}

/// Header and section table.
fn head(sections: &[Section<'_>], checksums: &[Checksum]) -> Vec<u8> {
    let mut table = Vec::with_capacity(sections.len() * ENTRY);
    for (section, checksum) in sections.iter().zip(checksums) {
        table.extend((section.kind as u32).to_le_bytes());
        table.extend([0; 4]);
        table.extend((section.start as u64).to_le_bytes());
        table.extend((section.len as u64).to_le_bytes());
        table.extend(checksum);
        table.extend(section.figures.to_bytes());
    }
    let end = sections.last().map_or(head_len(0), |last| last.start + last.len);
    let mut head = Vec::with_capacity(HEADER + table.len());
    head.extend(MAGIC);
    head.extend(VERSION.to_le_bytes());
    head.extend((sections.len() as u32).to_le_bytes());
    head.extend((end as u64).to_le_bytes());
    head.extend(checksum(&table));
    head.extend([0; 24]);
    head.extend(table);
    head
}

impl<'a> Contents<'a> {
    /// The sections, one after the other behind the head.
    fn sections(&self) -> Result<Vec<Section<'a>>, ContentsError> {
        let n_device = self.levels.iter().filter(|level| level.device_code.is_some()).count();
        let count = 3 + 2 * self.levels.len() + n_device;
        if self.levels.is_empty() || self.levels.len() > (MAX_SECTIONS - 3) / 3 {
            return Err(ContentsError::Levels(self.levels.len()));
        }
        let mut parts = Vec::with_capacity(count);
        let none = Figures::default();
        parts.push((Kind::Manifest, none, SectionBytes::Owned(postcard::to_allocvec(self.manifest)?)));
        parts.push((
            Kind::Notes,
            none,
            SectionBytes::Owned(postcard::to_allocvec(&Notes::of(self.manifest))?),
        ));
        let all: Vec<(&Plan, &[Plan])> =
            self.levels.iter().map(|level| (level.plan, level.specialised)).collect();
        for (i, level) in self.levels.iter().enumerate() {
            // As `Plans` reads them.
            let plans = postcard::to_allocvec(&(level.plan, level.specialised))?;
            parts.push((Kind::Plans, figures(self.manifest, &all, i), SectionBytes::Owned(plans)));
            parts.push((Kind::Code, none, SectionBytes::Borrowed(level.image)));
            parts
                .extend(level.device_code.map(|code| (Kind::DeviceCode, none, SectionBytes::Borrowed(code))));
        }
        parts.push((Kind::Weights, none, SectionBytes::Pieces(self.weights)));

        let mut end = head_len(count);
        let placed = parts.into_iter().map(|(kind, figures, bytes)| {
            let len = match &bytes {
                SectionBytes::Owned(bytes) => bytes.len(),
                SectionBytes::Borrowed(bytes) => bytes.len(),
                SectionBytes::Pieces(pieces) => pieces.total(),
            };
            let start = end.next_multiple_of(kind.align());
            end = start + len;
            Section { kind, figures, start, len, bytes }
        });
        Ok(placed.collect())
    }

    /// The bytes of the artifact in memory, aligned for loading in place.
    ///
    /// # Errors
    /// When the contents cannot be encoded or made, or there is no memory.
    pub fn to_bytes(&self) -> Result<AlignedBuf, ContentsError> {
        let sections = self.sections()?;
        let head_len = head_len(sections.len());
        let end = sections.last().map_or(head_len, |last| last.start + last.len);
        let mut bytes = AlignedBuf::zeroed(end)?;
        let mut checksums = Vec::with_capacity(sections.len());
        for section in &sections {
            let mut at = section.start;
            section.each(|piece| {
                bytes[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
                Ok(())
            })?;
            checksums.push(checksum(&bytes[section.start..at]));
        }
        bytes[..head_len].copy_from_slice(&head(&sections, &checksums));
        Ok(bytes)
    }

    /// Writes the artifact, its weights as their pieces come; the checksums come last where what is written can be returned to, else first,
    /// from pieces that are made once more. Returns the number of bytes.
    ///
    /// # Errors
    /// When the contents cannot be encoded or made, or `out` fails.
    #[cfg(feature = "std")]
    pub fn write_to(&self, out: &mut (impl std::io::Write + std::io::Seek)) -> Result<u64, ContentsError> {
        let sections = self.sections()?;
        let Ok(begin) = out.stream_position() else {
            let checksums: Result<Vec<Checksum>, ContentsError> =
                sections.iter().map(Section::checksum).collect();
            out.write_all(&head(&sections, &checksums?))?;
            let (end, _) = write_sections(&sections, out)?;
            out.flush()?;
            return Ok(end);
        };
        out.write_all(&std::vec![0; head_len(sections.len())])?;
        let (end, checksums) = write_sections(&sections, out)?;
        out.seek(std::io::SeekFrom::Start(begin))?;
        out.write_all(&head(&sections, &checksums))?;
        out.seek(std::io::SeekFrom::Start(begin + end))?;
        out.flush()?;
        Ok(end)
    }
}

/// Writes what comes after the head; where it ends, and the checksums.
#[cfg(feature = "std")]
fn write_sections(
    sections: &[Section<'_>],
    out: &mut impl std::io::Write,
) -> Result<(u64, Vec<Checksum>), ContentsError> {
    let mut at = head_len(sections.len());
    let mut checksums = Vec::with_capacity(sections.len());
    for section in sections {
        out.write_all(&std::vec![0; section.start - at])?;
        let mut hash = Xxh3::new();
        section.each(|piece| {
            hash.update(piece);
            Ok(out.write_all(piece)?)
        })?;
        checksums.push(hash.digest128().to_le_bytes());
        at = section.start + section.len;
    }
    Ok((at as u64, checksums))
}
