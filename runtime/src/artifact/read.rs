//! Reading artifacts: trusts nothing, allocates in proportion to the file.

use alloc::vec::Vec;
use core::ops::Range;

use serde::de::DeserializeOwned;

use super::{
    Artifact, ArtifactError, Checksum, ENTRY, HEADER, Kind, MAGIC, MAX_SECTIONS, Manifest, ProgramDef,
    VERSION, checksum,
};
use crate::plan::Plan;

struct Section {
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
        let [manifest, levels @ .., weights] = &sections[..] else {
            return Err(ArtifactError::Table("number of sections"));
        };
        let (levels, rest) = levels.split_at(levels.len() / 2 * 2);
        let is_level = |pair: &[Section]| pair[0].kind == Kind::Plans && pair[1].kind == Kind::Code;
        let in_order = manifest.kind == Kind::Manifest
            && levels.chunks_exact(2).all(is_level)
            && rest.is_empty()
            && weights.kind == Kind::Weights;
        if !in_order {
            return Err(ArtifactError::Table("order of sections"));
        }
        for section in core::iter::once(manifest).chain(levels) {
            check(section.kind, &bytes[section.range.clone()], &section.checksum)?;
        }
        let artifact = Artifact {
            manifest: decode::<Manifest>(bytes, manifest)?,
            plans: levels.iter().step_by(2).map(|plans| decode(bytes, plans)).collect::<Result<_, _>>()?,
            images: levels.iter().skip(1).step_by(2).map(|code| code.range.clone()).collect(),
            weights: weights.range.clone(),
            weights_checksum: weights.checksum,
        };
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

    fn check(&self) -> Result<(), ArtifactError> {
        if self.manifest.images.len() != self.images.len() {
            return Err(ArtifactError::Mismatch("number of code images"));
        }
        for ((image, range), plans) in self.manifest.images.iter().zip(&self.images).zip(&self.plans) {
            if image.specialised.len() != plans.specialised.len() {
                return Err(ArtifactError::Mismatch("number of programs"));
            }
            for (program, plan) in image.programs().zip(plans.all()) {
                self.check_program(program, plan, range.len())?;
            }
        }
        Ok(())
    }

    fn check_program(&self, program: &ProgramDef, plan: &Plan, code: usize) -> Result<(), ArtifactError> {
        if let Err(mut errors) = plan.validate() {
            return Err(ArtifactError::Plan(errors.swap_remove(0)));
        }
        if plan.weight_bytes != self.weights.len() as u64 {
            return Err(ArtifactError::Mismatch("size of the weights"));
        }
        if program.entries.len() != plan.kernels.len() {
            return Err(ArtifactError::Mismatch("number of kernels"));
        }
        if program.entries.iter().any(|&entry| entry >= code as u64) {
            return Err(ArtifactError::Mismatch("entry of a kernel"));
        }
        Ok(())
    }
}

fn check(kind: Kind, bytes: &[u8], expected: &Checksum) -> Result<(), ArtifactError> {
    if checksum(bytes) == *expected { Ok(()) } else { Err(ArtifactError::Checksum(kind.name())) }
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

/// Reads header and table; the sections are exactly where a writer puts them.
fn sections(bytes: &[u8]) -> Result<Vec<Section>, ArtifactError> {
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
    if checksum(table)[..] != bytes[24..40] {
        return Err(ArtifactError::Checksum("the section table"));
    }
    let mut sections = Vec::with_capacity(count);
    let mut end = HEADER + count * ENTRY;
    for entry in table.chunks_exact(ENTRY) {
        let kind = Kind::from_u32(u32_at(entry, 0)).ok_or(ArtifactError::Table("kind of section"))?;
        if entry[4..8] != [0; 4] || entry[40..64] != [0; 24] {
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
