//! One canonical digest for what Tilewright must recognise again: functions, graphs, strategies, cache entries.
//!
//! A value is written as a sequence of tokens, and the digest is SHA-256 of their bytes. Tokens delimit themselves, so
//! values of one kind with equal digests were written alike. Names of variants and fields are in the encoding, numbers of
//! variants, widths of integers and names of types are not: inserting an operator into an enumeration changes no digest
//! but of what uses it.
//!
//! There are two ways to be digested:
//! - [`Canonical`], by hand, for what has an identity apart from its representation (a function is the same under other
//!   names and arena numbers); implementations destructure what they write, so a new field does not compile unread;
//! - [`Writer::data`], by serde, for plain data (attributes, schedule primitives, strategies). Maps are sorted.
//!
//! ```text
//! token    bytes
//! integer  'i' and the value as zigzag LEB128
//! float    'e' (binary32) or 'f' (binary64) and the bits, little-endian
//! truth    'y' or 'n'
//! text     's', length as LEB128, UTF-8
//! bytes    'b', length as LEB128, bytes
//! nothing  '0'
//! group    '(', tokens, ')'
//! ```
//!
//! A variant, a struct and a map are groups; a variant's name comes first, fields and entries are name and value in turn.

mod data;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Version of the encoding, part of every digest. A change of what is written for equal values changes it.
pub const VERSION: u32 = 1;

/// A digest. Shown as hexadecimal digits, and serialised so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of what `write` writes. Digests of different kinds differ.
    pub fn of(kind: &str, write: impl FnOnce(&mut Writer)) -> Digest {
        let mut writer = Writer { sha: Some(Sha256::new()), pending: Vec::with_capacity(2 * BLOCK) };
        writer.int(VERSION);
        writer.text(kind);
        write(&mut writer);
        let sha = writer.sha.unwrap_or_default().chain_update(&writer.pending);
        Digest(sha.finalize().into())
    }

    /// The digest of plain data.
    pub fn of_data<T: Serialize + ?Sized>(kind: &str, value: &T) -> Digest {
        Digest::of(kind, |writer| writer.data(value))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first `n` bytes in hexadecimal.
    pub fn short(&self, n: usize) -> String {
        self.0.iter().take(n).map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let digits = || serde::de::Error::custom("a digest is 64 hexadecimal digits");
        if text.len() != 64 || !text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(digits());
        }
        let mut bytes = [0; 32];
        for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| digits())?;
        }
        Ok(Digest(bytes))
    }
}

/// What has an identity apart from its representation.
pub trait Canonical {
    /// What it is; digests of different kinds differ.
    const KIND: &'static str;

    /// Writes what makes up the identity, and nothing that is incidental.
    fn write(&self, writer: &mut Writer);

    /// The digest of the identity.
    fn digest(&self) -> Digest {
        Digest::of(Self::KIND, |writer| self.write(writer))
    }
}

/// Bytes that are handed to SHA-256 at once.
const BLOCK: usize = 4096;

/// Where a value's tokens go.
pub struct Writer {
    /// Takes the tokens; without one they are only collected.
    sha: Option<Sha256>,
    pending: Vec<u8>,
}

impl Writer {
    /// An integer of any width.
    pub fn int(&mut self, value: impl Into<i128>) {
        let value = value.into();
        self.put(b'i');
        self.leb128(((value << 1) ^ (value >> 127)) as u128);
    }

    /// A length or position.
    pub fn size(&mut self, value: usize) {
        self.put(b'i');
        self.leb128((value as u128) << 1);
    }

    /// A truth value.
    pub fn bool(&mut self, value: bool) {
        self.put(if value { b'y' } else { b'n' });
    }

    /// A text.
    pub fn text(&mut self, text: &str) {
        self.put(b's');
        self.leb128(text.len() as u128);
        self.put_all(text.as_bytes());
    }

    /// Bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.put(b'b');
        self.leb128(bytes.len() as u128);
        self.put_all(bytes);
    }

    /// What is not there.
    pub fn nothing(&mut self) {
        self.put(b'0');
    }

    /// What `write` writes, as a group.
    pub fn group(&mut self, write: impl FnOnce(&mut Writer)) {
        self.open();
        write(self);
        self.close();
    }

    /// A variant: a group that a name begins.
    pub fn variant(&mut self, name: &str, write: impl FnOnce(&mut Writer)) {
        self.open();
        self.text(name);
        write(self);
        self.close();
    }

    /// Items in their order, as a group.
    pub fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Writer, T)) {
        self.open();
        items.into_iter().for_each(|item| write(self, item));
        self.close();
    }

    /// A value, or nothing.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        match value {
            Some(value) => self.group(|writer| write(writer, value)),
            None => self.nothing(),
        }
    }

    /// A digest.
    pub fn digest(&mut self, digest: &Digest) {
        self.bytes(&digest.0);
    }

    /// Plain data: what its `Serialize` gives. One that refuses to be serialised is known by its message alone.
    pub fn data<T: Serialize + ?Sized>(&mut self, value: &T) {
        if let Err(refusal) = value.serialize(&mut *self) {
            self.variant("refused", |writer| writer.text(&refusal.to_string()));
        }
    }

    /// Begins a group.
    pub fn open(&mut self) {
        self.put(b'(');
    }

    /// Ends the group begun last.
    pub fn close(&mut self) {
        self.put(b')');
    }

    fn put(&mut self, byte: u8) {
        self.pending.push(byte);
    }

    fn put_all(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= BLOCK
            && let Some(sha) = &mut self.sha
        {
            sha.update(&self.pending);
            self.pending.clear();
        }
    }

    /// Seven bits a byte, the least first, the top bit set in all but the last.
    fn leb128(&mut self, mut value: u128) {
        while value >= 0x80 {
            self.put(value as u8 | 0x80);
            value >>= 7;
        }
        self.put(value as u8);
    }
}
