//! Reading artifacts: trusts nothing, allocates in proportion to the file.

use alloc::vec::Vec;
use core::ops::Range;

use serde::de::DeserializeOwned;
#[cfg(not(any(feature = "devices", feature = "std")))]
use serde::de::{Deserialize, Deserializer, Error};

#[cfg(not(any(feature = "devices", feature = "std")))]
use super::DeviceDef;
use super::figures::Figures;
use super::{
    Artifact, ArtifactError, Checksum, ENTRY, HEADER, Kind, MAGIC, MAX_SECTIONS, Manifest, Plans, ProgramDef,
    VERSION,
};
use crate::plan::{KernelDef, Plan, Space};

pub(super) struct Section {
    kind: Kind,
    range: Range<usize>,
    checksum: Checksum,
}

impl Artifact {
    /// Reads an artifact and checks all of it but the contents of the weights.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn read(bytes: &[u8]) -> Result<Artifact, ArtifactError> {
        let sections = sections(bytes)?;
        let [manifest, notes, levels @ .., weights] = &sections[..] else {
            return Err(ArtifactError::Table("number of sections"));
        };
        let kinds = [manifest.kind, notes.kind, weights.kind];
        if kinds != [Kind::Manifest, Kind::Notes, Kind::Weights] {
            return Err(ArtifactError::Table("order of sections"));
        }
        let notes = Some(notes).filter(|_| cfg!(feature = "names"));
        for section in core::iter::once(manifest).chain(notes).chain(levels) {
            check(section.kind, &bytes[section.range.clone()], &section.checksum)?;
        }
        let left_out = |section: &Section| !DEVICES && section.kind == Kind::DeviceCode;
        if levels.iter().any(left_out) {
            return Err(ArtifactError::LeftOut("code for a device"));
        }
        let n_levels = levels.iter().filter(|section| section.kind == Kind::Plans).count();
        let mut artifact = Artifact {
            manifest: decode::<Manifest>(bytes, manifest)?,
            plans: Vec::with_capacity(n_levels),
            images: Vec::with_capacity(n_levels),
            device_code: Vec::with_capacity(n_levels),
            weights: weights.range.clone(),
            weights_checksum: weights.checksum,
        };
        #[cfg(feature = "names")]
        if let Some(notes) = notes {
            decode::<super::notes::Notes>(bytes, notes)?.give(&mut artifact.manifest);
        }
        let mut rest = levels;
        while let [plans, code, after @ ..] = rest {
            if plans.kind != Kind::Plans || code.kind != Kind::Code {
                break;
            }
            artifact.plans.push(decode_plans(bytes, plans)?);
            artifact.images.push(code.range.clone());
            let device = after.first().filter(|next| next.kind == Kind::DeviceCode);
            rest = &after[usize::from(device.is_some())..];
            artifact.device_code.push(device.map_or(0..0, |device| device.range.clone()));
        }
        if !rest.is_empty() {
            return Err(ArtifactError::Table("order of sections"));
        }
        artifact.check()?;
        Ok(artifact)
    }

    /// Checks the contents of the weights; `bytes` is what the artifact was read from.
    ///
    /// # Errors
    /// When they are not what the compiler wrote.
    pub fn verify_weights(&self, bytes: &[u8]) -> Result<(), ArtifactError> {
        let weights = bytes.get(self.weights.clone()).ok_or(ArtifactError::Table("weights"))?;
        check(Kind::Weights, weights, &self.weights_checksum)
    }

    /// Whether manifest, plans and sections fit each other.
    pub(crate) fn check(&self) -> Result<(), ArtifactError> {
        if self.manifest.images.len() != self.images.len() {
            return Err(ArtifactError::Mismatch("number of code images"));
        }
        for (i, (image, plans)) in self.manifest.images.iter().zip(&self.plans).enumerate() {
            if image.specialised.len() != plans.specialised.len() {
                return Err(ArtifactError::Mismatch("number of programs"));
            }
            let bytes = image.device.iter().flat_map(|def| &def.parts).map(|(_, bytes)| *bytes);
            if bytes.fold(0, u64::saturating_add) != self.device_code[i].len() as u64 {
                return Err(ArtifactError::Mismatch("size of the code for a device"));
            }
            let n_device = image.device.as_ref().map_or(0, |def| def.kernels.len());
            for (program, plan) in image.programs().zip(plans.all()) {
                self.check_program(program, plan, self.images[i].len(), n_device)?;
            }
        }
        Ok(())
    }

    /// A program fits an image of so many bytes, and so many kernels for a device.
    fn check_program(
        &self,
        program: &ProgramDef,
        plan: &Plan,
        code: usize,
        n_device: usize,
    ) -> Result<(), ArtifactError> {
        if let Err(mut errors) = plan.validate() {
            return Err(ArtifactError::Plan(errors.swap_remove(0)));
        }
        if plan.weight_bytes != self.weights.len() as u64 {
            return Err(ArtifactError::Mismatch("size of the weights"));
        }
        if program.entries.len() != plan.kernels.len() {
            return Err(ArtifactError::Mismatch("number of kernels"));
        }
        let is_outside = |(&entry, kernel): (&u64, &KernelDef)| match kernel.space {
            Space::Host => entry >= code as u64,
            Space::Device => entry >= n_device as u64,
        };
        if program.entries.iter().zip(&plan.kernels).any(is_outside) {
            return Err(ArtifactError::Mismatch("entry of a kernel"));
        }
        Ok(())
    }
}

#[cfg(feature = "checksums")]
fn check(kind: Kind, bytes: &[u8], expected: &Checksum) -> Result<(), ArtifactError> {
    if super::checksum(bytes) == *expected { Ok(()) } else { Err(ArtifactError::Checksum(kind.name())) }
}

/// Bytes in flash are trusted where a program leaves checksums out.
#[cfg(not(feature = "checksums"))]
fn check(_kind: Kind, _bytes: &[u8], _expected: &Checksum) -> Result<(), ArtifactError> {
    Ok(())
}

#[cfg(feature = "specialised")]
fn decode_plans(bytes: &[u8], section: &Section) -> Result<Plans, ArtifactError> {
    decode(bytes, section)
}

/// The plan for all extents of the inputs, which comes first, where no other is there.
#[cfg(not(feature = "specialised"))]
fn decode_plans(bytes: &[u8], section: &Section) -> Result<Plans, ArtifactError> {
    match postcard::take_from_bytes(&bytes[section.range.clone()]) {
        Ok((open, [0])) => Ok(Plans { open, specialised: Vec::new() }),
        Ok(_) => Err(ArtifactError::LeftOut("specialised programs")),
        Err(_) => Err(ArtifactError::Decode(section.kind.name())),
    }
}

/// Whether descriptions of code for devices are read, be it to refuse them by their names.
const DEVICES: bool = cfg!(any(feature = "devices", feature = "std"));

/// Reads that there is no code for a device.
#[cfg(not(any(feature = "devices", feature = "std")))]
pub(super) fn no_device<'de, D: Deserializer<'de>>(from: D) -> Result<Option<DeviceDef>, D::Error> {
    match Option::<()>::deserialize(from)? {
        None => Ok(None),
        Some(()) => Err(D::Error::custom("")),
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8], section: &Section) -> Result<T, ArtifactError> {
    match postcard::take_from_bytes(&bytes[section.range.clone()]) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(ArtifactError::Decode(section.kind.name())),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(&bytes[at..at + 4]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(&bytes[at..at + 8]))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

/// Reads the header; gives the section table, which is what a writer wrote.
fn table(bytes: &[u8]) -> Result<&[u8], ArtifactError> {
    if bytes.len() < HEADER || bytes[..8] != MAGIC {
        return Err(ArtifactError::Magic);
    }
    let found = u32_at(bytes, 8);
    if found != VERSION {
        return Err(ArtifactError::Version { found });
    }
    let (expected, got) = (u64_at(bytes, 16), bytes.len() as u64);
    if expected != got {
        return Err(ArtifactError::Length { expected, got });
    }
    let count = u32_at(bytes, 12) as usize;
    if count > MAX_SECTIONS || bytes[40..64] != [0; 24] {
        return Err(ArtifactError::Table("header"));
    }
    let table =
        bytes.get(HEADER..HEADER + count * ENTRY).ok_or(ArtifactError::Table("number of sections"))?;
    #[cfg(feature = "checksums")]
    if super::checksum(table)[..] != bytes[24..40] {
        return Err(ArtifactError::Checksum("the section table"));
    }
    Ok(table)
}

/// What each level says it needs.
pub(super) fn figures(bytes: &[u8]) -> Result<impl Iterator<Item = Figures>, ArtifactError> {
    let levels = table(bytes)?.chunks_exact(ENTRY).filter(|entry| u32_at(entry, 0) == Kind::Plans as u32);
    Ok(levels.map(|entry| Figures::of_bytes(array(&entry[40..]))))
}

/// Reads header and table; the sections are exactly where a writer puts them.
fn sections(bytes: &[u8]) -> Result<Vec<Section>, ArtifactError> {
    let table = table(bytes)?;
    let count = table.len() / ENTRY;
    let mut sections = Vec::with_capacity(count);
    let mut end = HEADER + table.len();
    for entry in table.chunks_exact(ENTRY) {
        let kind = Kind::from_u32(u32_at(entry, 0)).ok_or(ArtifactError::Table("kind of section"))?;
        if entry[4..8] != [0; 4] || (kind != Kind::Plans && entry[40..64] != [0; 24]) {
            return Err(ArtifactError::Table("section"));
        }
        let start = end.next_multiple_of(kind.align());
        let section_end = usize::try_from(u64_at(entry, 16)).ok().and_then(|len| start.checked_add(len));
        let range = match section_end {
            Some(section_end) if u64_at(entry, 8) == start as u64 => start..section_end,
            Some(_) | None => return Err(ArtifactError::Table("place of a section")),
        };
        let padding = bytes.get(end..start);
        if range.end > bytes.len() || padding.is_none_or(|padding| padding.iter().any(|&byte| byte != 0)) {
            return Err(ArtifactError::Table("place of a section"));
        }
        end = range.end;
        sections.push(Section { kind, range, checksum: array(&entry[24..40]) });
    }
    if end != bytes.len() {
        return Err(ArtifactError::Table("end of the last section"));
    }
    Ok(sections)
}
