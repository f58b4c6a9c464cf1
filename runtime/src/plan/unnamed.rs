//! Reading plans without the names in them, where a program for a small device leaves these out: they are empty then.

use alloc::string::String;
use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A text that is read over.
struct Unread;

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Unread, D::Error> {
        from.deserialize_bytes(Unread)
    }
}

impl<'de> Visitor<'de> for Unread {
    type Value = Unread;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bytes<E: Error>(self, _: &[u8]) -> Result<Unread, E> {
        Ok(Unread)
    }
}

pub(super) fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Unread::deserialize(from).map(|Unread| String::new())
}

pub(super) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<Unread>::deserialize(from).map(|_| None)
}

/// A list of texts that is read over.
pub(super) struct List;

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<List, D::Error> {
        from.deserialize_seq(List)
    }
}

impl<'de> Visitor<'de> for List {
    type Value = List;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<List, A::Error> {
        while let Some(Unread) = texts.next_element()? {}
        Ok(List)
    }
}
