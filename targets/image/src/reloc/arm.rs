//! Relocations of 32-bit ARM.
//!
//! Names, numbers and formulas are those of "ELF for the Arm Architecture" (AAELF32). Objects keep addends in the field that is relocated.

use object::elf::{self, RelocationType};

use super::{Problem, Reference, signed};

/// Applies a relocation.
pub(crate) fn apply(kind: RelocationType, place: Reference, bytes: &mut [u8]) -> Result<(), Problem> {
    let word = u32::from_le_bytes(*place.field::<4>(bytes)?);
    let with = |addend: i64| Reference { target: place.target + addend, ..place };
    match kind {
        elf::R_ARM_REL32 => with(i64::from(word as i32)).put_i32(bytes),
        elf::R_ARM_CALL | elf::R_ARM_JUMP24 => {
            let addend = i64::from((word << 8) as i32 >> 8) * 4;
            place.patch(bytes, 0xff_ffff, 0, signed(with(addend).relative(), 4, 24)?)
        }
        elf::R_ARM_MOVW_PREL_NC | elf::R_ARM_MOVT_PREL => {
            let addend = (word >> 4 & 0xf000 | word & 0xfff) as i16;
            let difference = with(i64::from(addend)).relative();
            let half = if kind == elf::R_ARM_MOVT_PREL { difference >> 16 } else { difference } as u32;
            place.patch(bytes, 0xf, 16, half >> 12)?;
            place.patch(bytes, 0xfff, 0, half)
        }
        _ => Err(Problem::Kind),
    }
}
