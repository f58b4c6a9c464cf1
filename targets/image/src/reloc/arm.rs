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
        elf::R_ARM_THM_PC22 | elf::R_ARM_THM_JUMP24 => branch(place, bytes),
        elf::R_ARM_THM_MOVW_PREL_NC | elf::R_ARM_THM_MOVT_PREL => {
            let [first, second] = halves(place, bytes)?;
            let addend = (first << 12 | (first & 0x400) << 1 | second >> 4 & 0x700 | second & 0xff) as i16;
            let difference = with(i64::from(addend)).relative();
            let half = if kind == elf::R_ARM_THM_MOVT_PREL { difference >> 16 } else { difference } as u16;
            let first = first & !0x40f | half >> 12 | half >> 1 & 0x400;
            let second = second & !0x70ff | half << 4 & 0x7000 | half & 0xff;
            put_halves(place, bytes, [first, second])
        }
        _ => Err(Problem::Kind),
    }
}

/// A branch of Thumb-2: 25 bits of distance, of which two are stored against the sign. Both ends are Thumb, so that the lowest bit of the
/// target, which says so, is no part of the distance.
fn branch(place: Reference, bytes: &mut [u8]) -> Result<(), Problem> {
    let [first, second] = halves(place, bytes)?.map(u32::from);
    let sign = first >> 10 & 1;
    let stored = |bit: u32| (second >> bit & 1 ^ sign ^ 1) & 1;
    let field =
        sign << 24 | stored(13) << 23 | stored(11) << 22 | (first & 0x3ff) << 12 | (second & 0x7ff) << 1;
    let addend = i64::from((field << 7) as i32 >> 7);
    let distance = (place.target & !1) + addend - place.at as i64;
    let offset = signed(distance, 2, 24)? << 1;
    let bit = |at: u32| offset >> at & 1;
    let sign = bit(24);
    let first = first & 0xf800 | sign << 10 | offset >> 12 & 0x3ff;
    let second =
        second & 0xd000 | (bit(23) ^ sign ^ 1) << 13 | (bit(22) ^ sign ^ 1) << 11 | offset >> 1 & 0x7ff;
    put_halves(place, bytes, [first as u16, second as u16])
}

fn halves(place: Reference, bytes: &mut [u8]) -> Result<[u16; 2], Problem> {
    let field = place.field::<4>(bytes)?;
    Ok([u16::from_le_bytes([field[0], field[1]]), u16::from_le_bytes([field[2], field[3]])])
}

fn put_halves(place: Reference, bytes: &mut [u8], [first, second]: [u16; 2]) -> Result<(), Problem> {
    let ([a, b], [c, d]) = (first.to_le_bytes(), second.to_le_bytes());
    *place.field::<4>(bytes)? = [a, b, c, d];
    Ok(())
}
