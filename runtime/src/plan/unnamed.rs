//! Reading plans without the names in them, where a program for a small device leaves these out: they are empty then.

use alloc::string::String;
use alloc::vec::Vec;
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

/// A list of texts; an id of one finds none.
pub(super) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct List;
    impl<'de> Visitor<'de> for List {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("texts")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Vec<String>, A::Error> {
            while let Some(Unread) = texts.next_element()? {}
            Ok(Vec::new())
        }
    }
    from.deserialize_seq(List)
}
