//! A zip archive of files that are stored as they are.
//!
//! Sizes and checksums stand before a file's bytes: readers that do not look at the directory find them there. Fields of 64 bits are used
//! throughout, as numpy does. Nothing depends on the time.

use std::io;

use crc::{CRC_32_ISO_HDLC, Crc, Table};

/// The parts' signatures.
const FILE: u32 = 0x0403_4b50;
const DIRECTORY: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;

/// The version of the format that has fields of 64 bits.
const VERSION: u16 = 45;

/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;

/// The first day that the format knows.
const DATE: u16 = 1 << 5 | 1;

/// What fields of 32 bits hold where those of 64 bits count.
const IN_64: u32 = u32::MAX;

/// The checksum of archives. Its fastest way has 16 tables of a KiB, which small programs have no room for: this has one.
pub(super) static CRC: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// An archive that grows.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Bytes,
    directory: Bytes,
    n: u64,
}

impl Archive {
    /// Adds a file.
    ///
    /// # Errors
    /// The name is longer than the format allows.
    pub(super) fn add(&mut self, name: &str, file: &[u8]) -> io::Result<()> {
        let name = name.as_bytes();
        let name_len = u16::try_from(name.len()).map_err(|_| {
            let text = format!("an archive holds no name of {} bytes: give a folder", name.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let (crc, size, offset) = (CRC.checksum(file), file.len() as u64, self.bytes.0.len() as u64);
        // What file and directory have in common; the extra field has a number, a length and so many numbers.
        let head = |out: &mut Bytes, n_numbers: u16| {
            out.u16s(&[VERSION, FLAGS, 0, 0, DATE]);
            out.u32s(&[crc, IN_64, IN_64]);
            out.u16s(&[name_len, 4 + 8 * n_numbers]);
        };
        self.bytes.u32s(&[FILE]);
        head(&mut self.bytes, 2);
        self.bytes.0.extend_from_slice(name);
        self.bytes.u16s(&[1, 16]);
        self.bytes.u64s(&[size, size]);
        self.bytes.0.extend_from_slice(file);

        self.directory.u32s(&[DIRECTORY]);
        self.directory.u16s(&[VERSION]);
        head(&mut self.directory, 3);
        // No comment, the first disk, no attributes.
        self.directory.u16s(&[0; 5]);
        self.directory.u32s(&[IN_64]);
        self.directory.0.extend_from_slice(name);
        self.directory.u16s(&[1, 24]);
        self.directory.u64s(&[size, size, offset]);
        self.n += 1;
        Ok(())
    }

    /// The archive's bytes.
    pub(super) fn finish(self) -> Vec<u8> {
        let Archive { mut bytes, directory, n } = self;
        let (offset, size) = (bytes.0.len() as u64, directory.0.len() as u64);
        bytes.0.extend_from_slice(&directory.0);
        bytes.u32s(&[END_64]);
        bytes.u64s(&[44]);
        bytes.u16s(&[VERSION, VERSION]);
        bytes.u32s(&[0, 0]);
        bytes.u64s(&[n, n, size, offset]);
        bytes.u32s(&[LOCATOR_64, 0]);
        bytes.u64s(&[offset + size]);
        bytes.u32s(&[1, END]);
        bytes.u16s(&[0, 0, u16::MAX, u16::MAX]);
        bytes.u32s(&[IN_64, IN_64]);
        bytes.u16s(&[0]);
        bytes.0
    }
}

/// Bytes that numbers are written to, the lowest byte first.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16s(&mut self, numbers: &[u16]) {
        numbers.iter().for_each(|number| self.0.extend_from_slice(&number.to_le_bytes()));
    }

    fn u32s(&mut self, numbers: &[u32]) {
        numbers.iter().for_each(|number| self.0.extend_from_slice(&number.to_le_bytes()));
    }

    fn u64s(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.0.extend_from_slice(&number.to_le_bytes()));
    }
}
