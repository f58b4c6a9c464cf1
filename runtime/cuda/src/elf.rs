//! Whether machine code is whole. The driver takes it without its length, so one cut short would make it read past the end.

/// Whether bytes are a 64-bit ELF file whose tables and sections lie inside it.
pub(crate) fn is_whole(file: &[u8]) -> bool {
    file.starts_with(b"\x7fELF\x02\x01") && tables_fit(file).unwrap_or(false)
}

/// `None` where a table is cut.
fn tables_fit(file: &[u8]) -> Option<bool> {
    let header = Fields(file.get(..64)?);
    let (segments, sections) = (header.long(0x20)?, header.long(0x28)?);
    let (segment_bytes, segment_count) = (header.short(0x36)?, header.short(0x38)?);
    let (section_bytes, section_count) = (header.short(0x3a)?, header.short(0x3c)?);
    for entry in entries(file, segments, segment_bytes, segment_count) {
        let entry = entry?;
        bytes(file, entry.long(0x08)?, entry.long(0x20)?)?;
    }
    for entry in entries(file, sections, section_bytes, section_count) {
        let entry = entry?;
        // One without bytes in the file.
        const NOBITS: u32 = 8;
        if entry.int(0x04)? != NOBITS {
            bytes(file, entry.long(0x18)?, entry.long(0x20)?)?;
        }
    }
    Some(true)
}

/// The entries of a table; `None` for one that is not inside the file.
fn entries(file: &[u8], start: u64, size: u16, count: u16) -> impl Iterator<Item = Option<Fields<'_>>> {
    let size = u64::from(size);
    (0..u64::from(count)).map(move |n| bytes(file, start.checked_add(n * size)?, size).map(Fields))
}

fn bytes(file: &[u8], start: u64, len: u64) -> Option<&[u8]> {
    let end = start.checked_add(len)?;
    file.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
}

/// Numbers at offsets.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at + N)?.try_into().ok()
    }

    fn short(&self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn int(&self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn long(&self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, a section of 32 bytes, one without bytes, and the table of both.
    fn file() -> Vec<u8> {
        let mut file = vec![0; 64 + 32 + 2 * 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[0x28] = 96;
        file[0x3a] = 64;
        file[0x3c] = 2;
        file[96 + 0x04] = 1;
        file[96 + 0x18] = 64;
        file[96 + 0x20] = 32;
        file[160 + 0x04] = 8;
        file[160 + 0x20..160 + 0x28].fill(0x7f);
        file
    }

    #[test]
    fn files_cut_anywhere_are_not_whole() {
        let file = file();
        assert!(is_whole(&file));
        for len in 0..file.len() {
            assert!(!is_whole(&file[..len]), "{len} bytes");
        }
    }

    #[test]
    fn tables_and_sections_outside_are_found() {
        for (at, byte) in [
            (0, 0),
            (4, 1),
            (0x2f, 0xff),
            (0x2a, 1),
            (0x3d, 1),
            (0x3a, 16),
            (96 + 0x1f, 0xff),
            (96 + 0x22, 1),
        ] {
            let mut file = file();
            file[at] = byte;
            assert!(!is_whole(&file), "byte {at:#x}");
        }
    }
}
