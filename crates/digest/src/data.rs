//! Plain data by serde: the tokens of what a `Serialize` gives.

use std::fmt;

use serde::ser::{self, Serialize};

use crate::Writer;

/// Why a value refused to be serialised.
#[derive(Debug)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl ser::Error for Refusal {
    fn custom<T: fmt::Display>(message: T) -> Refusal {
        Refusal(message.to_string())
    }
}

macro_rules! integers {
    ($($method:ident $ty:ty),*) => { $(
        fn $method(self, value: $ty) -> Result<(), Refusal> {
            self.int(value);
            Ok(())
        }
    )* };
}

impl<'a> ser::Serializer for &'a mut Writer {
    type Ok = ();
    type Error = Refusal;
    type SerializeSeq = Group<'a>;
    type SerializeTuple = Group<'a>;
    type SerializeTupleStruct = Group<'a>;
    type SerializeTupleVariant = Group<'a>;
    type SerializeMap = Map<'a>;
    type SerializeStruct = Group<'a>;
    type SerializeStructVariant = Group<'a>;

    integers!(serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64, serialize_i128 i128,
              serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64);

    fn serialize_bool(self, value: bool) -> Result<(), Refusal> {
        self.bool(value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Result<(), Refusal> {
        self.put(b'e');
        self.put_all(&value.to_bits().to_le_bytes());
        Ok(())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Refusal> {
        self.put(b'f');
        self.put_all(&value.to_bits().to_le_bytes());
        Ok(())
    }

    fn serialize_char(self, value: char) -> Result<(), Refusal> {
        self.text(value.encode_utf8(&mut [0; 4]));
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Result<(), Refusal> {
        self.text(value);
        Ok(())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Refusal> {
        self.bytes(value);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Refusal> {
        self.nothing();
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Refusal> {
        self.open();
        value.serialize(&mut *self)?;
        self.close();
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Refusal> {
        self.open();
        self.close();
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Refusal> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), Refusal> {
        self.variant(variant, |_| {});
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Refusal> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Refusal> {
        self.open();
        self.text(variant);
        value.serialize(&mut *self)?;
        self.close();
        Ok(())
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<Group<'a>, Refusal> {
        Ok(Group::open(self))
    }

    fn serialize_tuple(self, _len: usize) -> Result<Group<'a>, Refusal> {
        Ok(Group::open(self))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Group<'a>, Refusal> {
        Ok(Group::open(self))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Group<'a>, Refusal> {
        Ok(Group::open_variant(self, variant))
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Map<'a>, Refusal> {
        Ok(Map { writer: self, key: Vec::new(), entries: Vec::new() })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Group<'a>, Refusal> {
        Ok(Group::open(self))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Group<'a>, Refusal> {
        Ok(Group::open_variant(self, variant))
    }
}

/// A group being written.
pub struct Group<'a>(&'a mut Writer);

impl<'a> Group<'a> {
    fn open(writer: &'a mut Writer) -> Group<'a> {
        writer.open();
        Group(writer)
    }

    fn open_variant(writer: &'a mut Writer, variant: &str) -> Group<'a> {
        writer.open();
        writer.text(variant);
        Group(writer)
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refusal> {
        value.serialize(&mut *self.0)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Refusal> {
        self.0.text(name);
        self.item(value)
    }

    fn close(self) -> Result<(), Refusal> {
        self.0.close();
        Ok(())
    }
}

macro_rules! groups {
    ($($ty:ident $method:ident),*) => { $(
        impl ser::$ty for Group<'_> {
            type Ok = ();
            type Error = Refusal;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refusal> {
                self.item(value)
            }

            fn end(self) -> Result<(), Refusal> {
                self.close()
            }
        }
    )* };
}
groups!(SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
        SerializeTupleVariant serialize_field);

macro_rules! records {
    ($($ty:ident),*) => { $(
        impl ser::$ty for Group<'_> {
            type Ok = ();
            type Error = Refusal;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Refusal> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), Refusal> {
                self.close()
            }
        }
    )* };
}
records!(SerializeStruct, SerializeStructVariant);

/// A map being written: its entries in the order of their keys' tokens.
pub struct Map<'a> {
    writer: &'a mut Writer,
    key: Vec<u8>,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The tokens of one value.
fn tokens<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Refusal> {
    let mut writer = Writer { sha: None, pending: Vec::new() };
    value.serialize(&mut writer)?;
    Ok(writer.pending)
}

impl ser::SerializeMap for Map<'_> {
    type Ok = ();
    type Error = Refusal;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Refusal> {
        self.key = tokens(key)?;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Refusal> {
        self.entries.push((std::mem::take(&mut self.key), tokens(value)?));
        Ok(())
    }

    fn end(mut self) -> Result<(), Refusal> {
        self.entries.sort_unstable();
        self.writer.open();
        for (key, value) in &self.entries {
            self.writer.put_all(key);
            self.writer.put_all(value);
        }
        self.writer.close();
        Ok(())
    }
}
