//! The schema of attributes: how each attribute type prints, parses and is walked over.
//!
//! Attribute structs and keyword enums are declared through two macros, which derive all of this; so an
//! operator's attributes are written down once, in its struct.

use std::fmt;
use std::hash::{Hash, Hasher};

use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::identity::Identity;
use crate::ids::RegionId;
use crate::tensor::{Bytes, Tensor};
use crate::text::{ParseError, Reader, Writer};
use crate::types::Type;

/// Sees the parts of attributes that refer to the rest of the graph, and may change them.
pub trait AttrVisitor {
    /// A symbolic extent.
    fn dim(&mut self, _dim: &mut Dim) {}
    /// A region.
    fn region(&mut self, _region: &mut RegionId) {}
}

/// An attribute type.
pub trait Attr: Clone + Eq + Hash + fmt::Debug + Sized {
    /// The value an omitted attribute has; `None` if it cannot be omitted.
    fn default_value() -> Option<Self>;
    /// Prints the value.
    fn write(&self, writer: &mut Writer<'_>);
    /// Reads what `write` prints.
    fn read(reader: &mut Reader<'_>) -> Result<Self, ParseError>;
    /// Writes the value for the digest of a graph.
    fn identify(&self, identity: &mut Identity<'_>);
    /// Shows the visitor every extent and region inside.
    fn visit(&mut self, _visitor: &mut dyn AttrVisitor) {}
}

/// A real attribute: a binary32 compared and hashed by its bits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Real(pub f32);

impl Real {
    /// The value in double precision, exactly.
    pub fn to_f64(self) -> f64 {
        f64::from(self.0)
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Real) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Real {}

impl Hash for Real {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl From<f32> for Real {
    fn from(value: f32) -> Real {
        Real(value)
    }
}

impl Attr for Real {
    fn default_value() -> Option<Real> {
        Some(Real(0.0))
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.put(format_args!("{:?}", self.0));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Real, ParseError> {
        reader.number().map(Real)
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.writer.data(&self.0);
    }
}

macro_rules! integer_attributes {
    ($($ty:ty),*) => { $(
        impl Attr for $ty {
            fn default_value() -> Option<$ty> { Some(0) }
            fn write(&self, writer: &mut Writer<'_>) { writer.put(self) }
            fn read(reader: &mut Reader<'_>) -> Result<$ty, ParseError> { reader.number() }
            fn identify(&self, identity: &mut Identity<'_>) { identity.writer.data(self) }
        }
    )* };
}
integer_attributes!(i64, usize);

impl Attr for bool {
    fn default_value() -> Option<bool> {
        Some(false)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.put(self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<bool, ParseError> {
        reader.number()
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.writer.data(self);
    }
}

impl Attr for String {
    fn default_value() -> Option<String> {
        Some(String::new())
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.string(self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<String, ParseError> {
        reader.string()
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.writer.data(self);
    }
}

impl Attr for DType {
    fn default_value() -> Option<DType> {
        None
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.put(self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<DType, ParseError> {
        reader.dtype()
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.writer.data(self);
    }
}

impl Attr for Dim {
    fn default_value() -> Option<Dim> {
        None
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.put(self.display(writer.symbols));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Dim, ParseError> {
        reader.dim()
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.dim(self);
    }

    fn visit(&mut self, visitor: &mut dyn AttrVisitor) {
        visitor.dim(self);
    }
}

impl Attr for Type {
    fn default_value() -> Option<Type> {
        None
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.put(self.display(writer.symbols));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Type, ParseError> {
        reader.ty()
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.ty(self);
    }
}

impl Attr for RegionId {
    fn default_value() -> Option<RegionId> {
        None
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.put(self);
    }

    fn read(reader: &mut Reader<'_>) -> Result<RegionId, ParseError> {
        let word = reader.word()?;
        let number = word.strip_prefix("region").and_then(|digits| digits.parse().ok());
        number.map(RegionId::from_u32).ok_or_else(|| reader.error("expected a region, as `region1`"))
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.region(*self);
    }

    fn visit(&mut self, visitor: &mut dyn AttrVisitor) {
        visitor.region(self);
    }
}

impl<T: Attr> Attr for Vec<T> {
    fn default_value() -> Option<Vec<T>> {
        Some(Vec::new())
    }

    fn write(&self, writer: &mut Writer<'_>) {
        writer.put("[");
        for (index, item) in self.iter().enumerate() {
            writer.put(if index == 0 { "" } else { ", " });
            item.write(writer);
        }
        writer.put("]");
    }

    fn read(reader: &mut Reader<'_>) -> Result<Vec<T>, ParseError> {
        reader.expect("[")?;
        reader.list("]", T::read)
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.group(|identity| self.iter().for_each(|item| item.identify(identity)));
    }

    fn visit(&mut self, visitor: &mut dyn AttrVisitor) {
        self.iter_mut().for_each(|item| item.visit(visitor));
    }
}

impl<T: Attr> Attr for Option<T> {
    fn default_value() -> Option<Option<T>> {
        Some(None)
    }

    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Some(value) => value.write(writer),
            None => writer.put("none"),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Option<T>, ParseError> {
        if reader.eat("none") { Ok(None) } else { T::read(reader).map(Some) }
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        match self {
            Some(value) => identity.group(|identity| value.identify(identity)),
            None => identity.writer.nothing(),
        }
    }

    fn visit(&mut self, visitor: &mut dyn AttrVisitor) {
        self.iter_mut().for_each(|value| value.visit(visitor));
    }
}

impl Attr for Tensor {
    fn default_value() -> Option<Tensor> {
        None
    }

    /// `f32[2]{1.0, 2.0}`: integers, booleans, `f32` and `f64` by value, strings quoted, other floats and NaN
    /// by their bits in hexadecimal.
    fn write(&self, writer: &mut Writer<'_>) {
        writer.put(Type::Tensor(self.tensor_type()).display(writer.symbols));
        writer.put("{");
        if self.len() > writer.max_elements {
            writer.put("...}");
            return;
        }
        let mut separator = "";
        let mut next = |writer: &mut Writer<'_>| writer.put(std::mem::replace(&mut separator, ", "));
        if let Some(strings) = self.strings() {
            for string in strings {
                next(writer);
                writer.string(&String::from_utf8_lossy(string));
            }
        } else if let Some(integers) = self.to_i64s() {
            for integer in integers {
                next(writer);
                writer.put(integer);
            }
        } else {
            let bytes = self.bytes().map_or(&[][..], Bytes::as_slice);
            for element in bytes.chunks_exact(self.dtype().bytes().max(1)) {
                next(writer);
                match (self.dtype(), element) {
                    (DType::F32, &[a, b, c, d]) if !f32::from_le_bytes([a, b, c, d]).is_nan() => {
                        writer.put(format_args!("{:?}", f32::from_le_bytes([a, b, c, d])));
                    }
                    (DType::F64, &[a, b, c, d, e, f, g, h])
                        if !f64::from_le_bytes([a, b, c, d, e, f, g, h]).is_nan() =>
                    {
                        writer.put(format_args!("{:?}", f64::from_le_bytes([a, b, c, d, e, f, g, h])));
                    }
                    _ => {
                        writer.put("0x");
                        element.iter().rev().for_each(|byte| writer.put(format_args!("{byte:02x}")));
                    }
                }
            }
        }
        writer.put("}");
    }

    fn read(reader: &mut Reader<'_>) -> Result<Tensor, ParseError> {
        let Type::Tensor(ty) = reader.ty()? else { return Err(reader.error("expected a tensor type")) };
        let dims = ty.shape.as_fixed().ok_or_else(|| reader.error("a constant has constant extents"))?;
        reader.expect("{")?;
        if reader.peek("...") {
            return Err(reader.error("the data of this constant was left out when it was printed"));
        }
        let result = if ty.dtype == DType::String {
            let strings = reader.list("}", |reader| Ok(reader.string()?.into_bytes()))?;
            Tensor::from_strings(dims, strings)
        } else {
            let elements = reader.list("}", |reader| read_element(ty.dtype, reader))?;
            Tensor::from_bytes(ty.dtype, dims, Bytes::from(elements.concat()))
        };
        result.map_err(|error| reader.error(error.to_string()))
    }

    fn identify(&self, identity: &mut Identity<'_>) {
        identity.tensor(self);
    }
}

fn read_element(dtype: DType, reader: &mut Reader<'_>) -> Result<Vec<u8>, ParseError> {
    if reader.eat("0x") {
        let word = reader.word()?;
        let bits = u64::from_str_radix(word, 16).map_err(|_| reader.error("bad hexadecimal number"))?;
        return Ok(bits.to_le_bytes()[..dtype.bytes()].to_vec());
    }
    Ok(match dtype {
        DType::Bool | DType::U8 | DType::U4 | DType::U2 => vec![reader.number()?],
        DType::I8 | DType::I4 | DType::I2 => reader.number::<i8>()?.to_le_bytes().to_vec(),
        DType::I16 => reader.number::<i16>()?.to_le_bytes().to_vec(),
        DType::I32 => reader.number::<i32>()?.to_le_bytes().to_vec(),
        DType::I64 => reader.number::<i64>()?.to_le_bytes().to_vec(),
        DType::U16 => reader.number::<u16>()?.to_le_bytes().to_vec(),
        DType::U32 => reader.number::<u32>()?.to_le_bytes().to_vec(),
        DType::U64 => reader.number::<u64>()?.to_le_bytes().to_vec(),
        DType::F32 => reader.number::<f32>()?.to_le_bytes().to_vec(),
        DType::F64 => reader.number::<f64>()?.to_le_bytes().to_vec(),
        DType::F16 | DType::BF16 | DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 => {
            return Err(reader.error(format!("elements of {dtype} are written in hexadecimal")));
        }
        DType::F8E5M2FNUZ | DType::F8E8M0 | DType::F4E2M1 | DType::String => {
            return Err(reader.error(format!("elements of {dtype} are written in hexadecimal")));
        }
    })
}

/// Declares attribute structs with their schema.
macro_rules! attributes {
    ($( $(#[$meta:meta])* $name:ident { $( $(#[$field_meta:meta])* $field:ident: $ty:ty, )* } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct $name { $( $(#[$field_meta])* pub $field: $ty, )* }

        impl Attr for $name {
            fn default_value() -> Option<Self> { None }

            fn write(&self, writer: &mut Writer<'_>) {
                let mut separator = "";
                $( if <$ty as Attr>::default_value().as_ref() != Some(&self.$field) {
                    writer.put(std::mem::replace(&mut separator, ", "));
                    writer.put(concat!(stringify!($field), "="));
                    self.$field.write(writer);
                } )*
                let _ = separator;
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
                $( let mut $field: Option<$ty> = None; )*
                let mut first = true;
                while !reader.peek("]") {
                    if !std::mem::replace(&mut first, false) {
                        reader.expect(",")?;
                    }
                    let key = reader.word()?;
                    reader.expect("=")?;
                    match key {
                        $( stringify!($field) => $field = Some(Attr::read(reader)?), )*
                        _ => return Err(reader.error(format!("unknown attribute `{key}`"))),
                    }
                }
                Ok($name { $( $field: match $field.or_else(<$ty as Attr>::default_value) {
                    Some(value) => value,
                    None => return Err(reader.error(concat!("missing attribute `", stringify!($field), "`"))),
                }, )* })
            }

            fn identify(&self, identity: &mut $crate::identity::Identity<'_>) {
                identity.group(|identity| {
                    $( identity.writer.text(stringify!($field)); self.$field.identify(identity); )*
                    let _ = identity;
                });
            }

            fn visit(&mut self, visitor: &mut dyn AttrVisitor) {
                $( self.$field.visit(visitor); )*
                let _ = visitor;
            }
        }
    )* };
}

/// Declares an enum of keywords.
macro_rules! keywords {
    ($( $(#[$meta:meta])* $name:ident { $( $variant:ident $text:literal $doc:literal, )* } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $( #[doc = $doc] $variant, )* }

        impl $name {
            /// Every keyword, in order of declaration.
            pub const ALL: &[$name] = &[ $( $name::$variant, )* ];

            /// The keyword as the text form prints it.
            pub const fn name(self) -> &'static str {
                match self { $( $name::$variant => $text, )* }
            }

            /// The keyword printed as `name`.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $( $text => Some($name::$variant), )* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.name()) }
        }

        impl Attr for $name {
            fn default_value() -> Option<Self> { None }
            fn write(&self, writer: &mut Writer<'_>) { writer.put(self) }
            fn identify(&self, identity: &mut $crate::identity::Identity<'_>) { identity.writer.text(self.name()) }
            fn read(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
                let word = reader.word()?;
                $name::from_name(word)
                    .ok_or_else(|| reader.error(format!(concat!("`{}` is no ", stringify!($name)), word)))
            }
        }
    )* };
}

pub(super) use {attributes, keywords};
