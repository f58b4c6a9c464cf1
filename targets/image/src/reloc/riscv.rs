//! Relocations of 64-bit RISC-V.
//!
//! Names, numbers and formulas are those of the "RISC-V ELF psABI". A reference to data is a pair of instructions, `auipc` and one that adds
//! the lower bits. The relocation of the second names the first, not the data, so it waits until all first ones are known.

use object::elf::{self, RelocationType};
use rustc_hash::FxHashMap;

use super::{Problem, Reference, signed};

/// Lower halves of references: those whose upper halves have not been seen yet.
#[derive(Default)]
pub(crate) struct Pairs {
    /// Differences by the place of the upper half.
    uppers: FxHashMap<u64, i64>,
    lowers: Vec<(RelocationType, Reference)>,
}

impl Pairs {
    /// Applies a relocation, or keeps it for [`Pairs::finish`].
    pub(crate) fn apply(
        &mut self,
        kind: RelocationType,
        place: Reference,
        bytes: &mut [u8],
    ) -> Result<(), Problem> {
        match kind {
            elf::R_RISCV_PCREL_HI20 => {
                self.uppers.insert(place.at, place.relative());
                upper(place, place.relative(), bytes)
            }
            elf::R_RISCV_PCREL_LO12_I | elf::R_RISCV_PCREL_LO12_S => {
                self.lowers.push((kind, place));
                Ok(())
            }
            // A hint that a linker may make code shorter: this one does not.
            elf::R_RISCV_RELAX => Ok(()),
            elf::R_RISCV_CALL | elf::R_RISCV_CALL_PLT => {
                upper(place, place.relative(), bytes)?;
                Reference { at: place.at + 4, ..place }.patch(bytes, 0xfff, 20, place.relative() as u32)
            }
            elf::R_RISCV_32_PCREL => place.put_i32(bytes),
            elf::R_RISCV_JAL => {
                let offset = signed(place.relative(), 2, 20)? << 1;
                let (bits_1, bit_11, bits_12, bit_20) =
                    (offset >> 1 & 0x3ff, offset >> 11 & 1, offset >> 12 & 0xff, offset >> 20 & 1);
                place.patch(bytes, 0xf_ffff, 12, bit_20 << 19 | bits_1 << 9 | bit_11 << 8 | bits_12)
            }
            elf::R_RISCV_BRANCH => {
                let offset = signed(place.relative(), 2, 12)? << 1;
                place.patch(bytes, 0x7f, 25, (offset >> 12 & 1) << 6 | offset >> 5 & 0x3f)?;
                place.patch(bytes, 0x1f, 7, (offset >> 1 & 0xf) << 1 | offset >> 11 & 1)
            }
            elf::R_RISCV_RVC_BRANCH => {
                let offset = signed(place.relative(), 2, 8)? << 1;
                let bits = |at: u32, mask: u32| offset >> at & mask;
                let upper = bits(8, 1) << 2 | bits(3, 3);
                let lower = bits(6, 3) << 3 | bits(1, 3) << 1 | bits(5, 1);
                patch_short(place, bytes, 0x7 << 10 | 0x1f << 2, upper << 10 | lower << 2)
            }
            elf::R_RISCV_RVC_JUMP => {
                let offset = signed(place.relative(), 2, 11)? << 1;
                let bit = |at: u32| offset >> at & 1;
                let order = [11, 4, 9, 8, 10, 6, 7, 3, 2, 1, 5];
                let field = order.into_iter().fold(0, |field, at| field << 1 | bit(at));
                patch_short(place, bytes, 0x7ff << 2, field << 2)
            }
            _ => Err(Problem::Kind),
        }
    }

    /// Applies the lower halves; gives those that belong to no upper half, or have no field.
    pub(crate) fn finish(self, bytes: &mut [u8]) -> Vec<(RelocationType, Reference)> {
        let Pairs { uppers, lowers } = self;
        let mut apply = |(kind, place): &(RelocationType, Reference)| {
            let low =
                *u64::try_from(place.target).ok().and_then(|target| uppers.get(&target))? as u32 & 0xfff;
            let applied = match *kind {
                elf::R_RISCV_PCREL_LO12_S => place
                    .patch(bytes, 0x7f, 25, low >> 5)
                    .and_then(|()| place.patch(bytes, 0x1f, 7, low & 0x1f)),
                _ => place.patch(bytes, 0xfff, 20, low),
            };
            applied.ok()
        };
        lowers.into_iter().filter(|lower| apply(lower).is_none()).collect()
    }
}

/// Writes the upper 20 bits of a difference; the lower 12 are added as a signed number.
fn upper(place: Reference, difference: i64, bytes: &mut [u8]) -> Result<(), Problem> {
    let rounded = i32::try_from(difference + 0x800).map_err(|_| Problem::Range)?;
    place.patch(bytes, 0xf_ffff, 12, (rounded >> 12) as u32)
}

/// Replaces bits of an instruction of 16 bits.
fn patch_short(place: Reference, bytes: &mut [u8], mask: u32, value: u32) -> Result<(), Problem> {
    let field = place.field::<2>(bytes)?;
    let half = u16::from_le_bytes(*field) & !(mask as u16);
    *field = (half | (value & mask) as u16).to_le_bytes();
    Ok(())
}
