//! Relocations: how a reference is written into an instruction or into data.
//!
//! Names, numbers and formulas of x86-64 and AArch64 are those of the ELF supplements: "System V ABI, AMD64 Architecture Processor
//! Supplement" (4.4) and "ELF for the Arm 64-bit Architecture" (5.7). `S + A` is [`Reference::target`], `P` is
//! [`Reference::at`], both as offsets in the image; only differences of them, and page offsets, are ever stored.

mod arm;
mod riscv;
pub(crate) mod section;

use object::elf::{self, RelocationType};

/// A reference: where it is and what it refers to, addend included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reference {
    pub(crate) at: u64,
    pub(crate) target: i64,
}

pub(crate) enum Problem {
    /// Not position-independent, or not known.
    Kind,
    /// Out of the reach of the field.
    Range,
}

impl Reference {
    fn relative(self) -> i64 {
        self.target - self.at as i64
    }

    fn field<const N: usize>(self, bytes: &mut [u8]) -> Result<&mut [u8; N], Problem> {
        let at = usize::try_from(self.at).map_err(|_| Problem::Range)?;
        let field = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<N>());
        field.ok_or(Problem::Range)
    }

    /// Stores the difference in 32 bits.
    fn put_i32(self, bytes: &mut [u8]) -> Result<(), Problem> {
        let value = i32::try_from(self.relative()).map_err(|_| Problem::Range)?;
        *self.field(bytes)? = value.to_le_bytes();
        Ok(())
    }

    /// Stores the difference in 64 bits.
    fn put_i64(self, bytes: &mut [u8]) -> Result<(), Problem> {
        *self.field(bytes)? = self.relative().to_le_bytes();
        Ok(())
    }

    /// Replaces the bits `mask << shift` of an instruction.
    fn patch(self, bytes: &mut [u8], mask: u32, shift: u32, value: u32) -> Result<(), Problem> {
        let field = self.field::<4>(bytes)?;
        let word = u32::from_le_bytes(*field) & !(mask << shift);
        *field = (word | (value & mask) << shift).to_le_bytes();
        Ok(())
    }
}

/// `value` in units of `unit` bytes, as a signed field of `bits` bits.
fn signed(value: i64, unit: i64, bits: u32) -> Result<u32, Problem> {
    let reach = 1i64 << (bits - 1);
    let scaled = value / unit;
    if value % unit != 0 || scaled < -reach || scaled >= reach {
        Err(Problem::Range)
    } else {
        Ok(scaled as u32)
    }
}

/// Applies a relocation of x86-64.
pub(crate) fn x86_64(kind: RelocationType, place: Reference, bytes: &mut [u8]) -> Result<(), Problem> {
    match kind {
        // A call through the procedure linkage table to a function in the image is a direct call.
        elf::R_X86_64_PC32 | elf::R_X86_64_PLT32 => place.put_i32(bytes),
        elf::R_X86_64_PC64 => place.put_i64(bytes),
        _ => Err(Problem::Kind),
    }
}

/// Applies a relocation of AArch64. The image lies at a multiple of 4096, so pages of offsets are pages of addresses.
pub(crate) fn aarch64(kind: RelocationType, place: Reference, bytes: &mut [u8]) -> Result<(), Problem> {
    const PAGE: i64 = 4096;
    let in_page = place.target.rem_euclid(PAGE);
    // Loads and stores scale the offset in the page by their width.
    let scaled =
        |width: i64| if in_page % width == 0 { Ok((in_page / width) as u32) } else { Err(Problem::Range) };
    let adr = |bytes: &mut [u8], value: u32| {
        place.patch(bytes, 0x3, 29, value)?;
        place.patch(bytes, 0x7_ffff, 5, value >> 2)
    };
    match kind {
        elf::R_AARCH64_PREL32 => place.put_i32(bytes),
        elf::R_AARCH64_PREL64 => place.put_i64(bytes),
        elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => {
            place.patch(bytes, 0x3ff_ffff, 0, signed(place.relative(), 4, 26)?)
        }
        elf::R_AARCH64_CONDBR19 | elf::R_AARCH64_LD_PREL_LO19 => {
            place.patch(bytes, 0x7_ffff, 5, signed(place.relative(), 4, 19)?)
        }
        elf::R_AARCH64_TSTBR14 => place.patch(bytes, 0x3fff, 5, signed(place.relative(), 4, 14)?),
        elf::R_AARCH64_ADR_PREL_LO21 => adr(bytes, signed(place.relative(), 1, 21)?),
        elf::R_AARCH64_ADR_PREL_PG_HI21 => {
            let page = |address: i64| address.div_euclid(PAGE);
            adr(bytes, signed(page(place.target) - page(place.at as i64), 1, 21)?)
        }
        elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LDST8_ABS_LO12_NC => {
            place.patch(bytes, 0xfff, 10, scaled(1)?)
        }
        elf::R_AARCH64_LDST16_ABS_LO12_NC => place.patch(bytes, 0xfff, 10, scaled(2)?),
        elf::R_AARCH64_LDST32_ABS_LO12_NC => place.patch(bytes, 0xfff, 10, scaled(4)?),
        elf::R_AARCH64_LDST64_ABS_LO12_NC => place.patch(bytes, 0xfff, 10, scaled(8)?),
        elf::R_AARCH64_LDST128_ABS_LO12_NC => place.patch(bytes, 0xfff, 10, scaled(16)?),
        _ => Err(Problem::Kind),
    }
}
