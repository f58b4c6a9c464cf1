//! The list of host operators: codes, attributes, encoding.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use tilewright_runtime::{Draw, HostArg, Value};

use crate::args::Args;
use crate::attrs::{
    CompressAttrs, ConcatAttrs, MultinomialAttrs, NgramAttrs, NmsAttrs, NormalizeAttrs, RandomAttrs,
    SplitAttrs, StringSplitAttrs, StringsAttrs, UniqueAttrs,
};
use crate::pattern::Pattern;
use crate::{Result, boxes, ngrams, random, select, sequence, text};

macro_rules! host_operators {
    ($( $(#[doc = $doc:literal])* $code:literal $name:ident $(($attrs:ty))? => $run:expr; )*) => {
        /// A host operator with its attributes.
        #[derive(Clone, Debug, PartialEq)]
        pub enum HostOp { $( $(#[doc = $doc])* $name $(($attrs))?, )* }

        impl HostOp {
            /// The codes of all operators. A code is in artifacts: it never changes its meaning.
            pub const CODES: &[u16] = &[$( $code, )*];

            /// The operator's code.
            pub fn code(&self) -> u16 {
                match self { $( HostOp::$name { .. } => $code, )* }
            }

            /// The operator's name.
            pub fn name(&self) -> &'static str {
                match self { $( HostOp::$name { .. } => stringify!($name), )* }
            }

            /// The attributes as an artifact holds them.
            pub fn attrs(&self) -> Vec<u8> {
                match self { $( host_operators!(@pattern $name attrs $($attrs)?) => host_operators!(@encode attrs $($attrs)?), )* }
            }

            /// The operator of a code with attributes as an artifact holds them.
            ///
            /// # Errors
            /// There is no such operator, or the bytes are not its attributes.
            pub fn decode(code: u16, bytes: &[u8]) -> core::result::Result<HostOp, DecodeError> {
                match code {
                    $( $code => host_operators!(@decode $name bytes $($attrs)?), )*
                    _ => Err(DecodeError::Code(code)),
                }
            }

            /// Computes the results.
            ///
            /// # Errors
            /// A message for the user when the operands are not acceptable.
            pub fn run(&self, inputs: &[HostArg<'_>]) -> core::result::Result<Vec<Value>, String> {
                let args = Args(inputs);
                match self { $( host_operators!(@pattern $name attrs $($attrs)?) => host_operators!(@run $run, args, attrs $(, $attrs)?), )* }
            }
        }
    };
    (@pattern $name:ident $attrs:ident) => { HostOp::$name };
    (@pattern $name:ident $attrs:ident $ty:ty) => { HostOp::$name($attrs) };
    (@encode $attrs:ident) => { Vec::new() };
    // Encoding into memory fails for types without a length only, which attributes have not.
    (@encode $attrs:ident $ty:ty) => { postcard::to_allocvec($attrs).unwrap_or_default() };
    (@decode $name:ident $bytes:ident) => {
        if $bytes.is_empty() { Ok(HostOp::$name) } else { Err(DecodeError::Attributes(stringify!($name))) }
    };
    (@decode $name:ident $bytes:ident $ty:ty) => {
        match postcard::take_from_bytes::<$ty>($bytes) {
            Ok((attrs, [])) => Ok(HostOp::$name(attrs)),
            Ok(_) | Err(_) => Err(DecodeError::Attributes(stringify!($name))),
        }
    };
    (@run $run:expr, $args:ident, $attrs:ident) => { $run($args) };
    (@run $run:expr, $args:ident, $attrs:ident, $ty:ty) => { $run($args, $attrs) };
}

host_operators! {
    /// `x`: the operand itself, as a buffer or a value, as the plan wants it.
    0 Copy => sequence::copy;
    /// A constant tensor of strings.
    1 Strings(StringsAttrs) => text::constant;

    /// `x`: indices of elements that are not zero, `[rank, count]`.
    2 NonZero => select::non_zero;
    /// `(x, condition)`: elements or slices where the condition holds.
    3 Compress(CompressAttrs) => select::compress;
    /// `x -> (values, first indices, inverse indices, counts)`.
    4 Unique(UniqueAttrs) => select::unique;
    /// `(boxes, scores, most?, iou?, score?)`: indices `[batch, class, box]` of selected boxes.
    5 NonMaxSuppression(NmsAttrs) => boxes::non_max_suppression;
    /// `x`: weighted counts of n-grams of integers or strings.
    6 Ngrams(NgramAttrs) => ngrams::count;

    /// A sequence of the operands.
    7 SequenceConstruct => sequence::construct;
    /// A sequence of nothing.
    8 SequenceEmpty => sequence::empty;
    /// `(sequence, position)`: an element.
    9 SequenceAt => sequence::at;
    /// `(sequence, element, position?)`: with the element before the position, or at the end.
    10 SequenceInsert => sequence::insert;
    /// `(sequence, position?)`: without the element at the position, or the last.
    11 SequenceErase => sequence::erase;
    /// Number of elements.
    12 SequenceLength => sequence::length;
    /// `(x, sizes?)`: parts along an axis.
    13 SplitToSequence(SplitAttrs) => sequence::split;
    /// The elements of a sequence joined along an axis.
    14 ConcatFromSequence(ConcatAttrs) => sequence::concat;
    /// An optional that holds the operand.
    15 OptionalSome => sequence::some;
    /// An optional that holds nothing.
    16 OptionalNone => sequence::none;
    /// What an optional holds.
    17 OptionalGet => sequence::get;
    /// Whether an optional holds something.
    18 OptionalHas => sequence::has;

    /// `(a, b)`: strings one after the other, with broadcasting.
    19 StringConcat => text::concat;
    /// `x -> (parts, counts)`: parts of strings, padded with empty ones along a new last axis.
    20 StringSplit(StringSplitAttrs) => text::split;
    /// Stop words removed, then case changed.
    21 StringNormalize(NormalizeAttrs) => text::normalize;
    /// Whether a pattern matches whole strings.
    22 RegexFullMatch(String) => text::full_match;
    /// `(a, b)`: whether strings are equal, with broadcasting.
    23 StringEqual => text::equal;

    /// Random numbers, as many as the result has elements.
    24 Random(RandomAttrs) => random::needs_draw;
    /// `x`: samples of categories from the rows of unnormalised log probabilities.
    25 Multinomial(MultinomialAttrs) => random::needs_draw;
}

/// A code or attributes that are no operator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// No operator has this code.
    Code(u16),
    /// The bytes are not the attributes of the operator.
    Attributes(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Code(code) => write!(f, "no host operator {code}"),
            DecodeError::Attributes(name) => write!(f, "not the attributes of {name}"),
        }
    }
}

impl core::error::Error for DecodeError {}

impl HostOp {
    /// The stream of random numbers that the operator draws from, if it does. Such an operator has
    /// [`HostOp::draw`] in place of [`HostOp::run`].
    pub fn stream(&self) -> Option<u64> {
        match self {
            HostOp::Random(attrs) => Some(attrs.stream),
            HostOp::Multinomial(attrs) => Some(attrs.stream),
            _ => None,
        }
    }

    /// Fills the only result of an operator that draws random numbers, whose extents are known before it runs.
    ///
    /// # Errors
    /// A message for the user when the operands are not acceptable.
    pub fn draw(
        &self,
        inputs: &[HostArg<'_>],
        draw: Draw,
        bytes: &mut [u8],
    ) -> core::result::Result<(), String> {
        match self {
            HostOp::Random(attrs) => random::numbers(attrs, draw, bytes),
            HostOp::Multinomial(attrs) => random::categories(Args(inputs), attrs, draw, bytes),
            _ => Err("the operator draws no random numbers".into()),
        }
    }

    /// Finds at compile time what could only fail at run time.
    ///
    /// # Errors
    /// A message for the user: attributes that the operator cannot work with.
    pub fn check(&self) -> Result<()> {
        match self {
            HostOp::RegexFullMatch(pattern) => Pattern::new(pattern).map(|_| ()),
            HostOp::Ngrams(attrs) => ngrams::check(attrs),
            HostOp::Random(attrs) => random::check(attrs),
            HostOp::Copy
            | HostOp::Strings(_)
            | HostOp::NonZero
            | HostOp::Compress(_)
            | HostOp::Unique(_)
            | HostOp::NonMaxSuppression(_)
            | HostOp::SequenceConstruct
            | HostOp::SequenceEmpty
            | HostOp::SequenceAt
            | HostOp::SequenceInsert
            | HostOp::SequenceErase
            | HostOp::SequenceLength
            | HostOp::SplitToSequence(_)
            | HostOp::ConcatFromSequence(_)
            | HostOp::OptionalSome
            | HostOp::OptionalNone
            | HostOp::OptionalGet
            | HostOp::OptionalHas
            | HostOp::StringConcat
            | HostOp::StringSplit(_)
            | HostOp::StringNormalize(_)
            | HostOp::StringEqual
            | HostOp::Multinomial(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_come_back_from_their_encoding() {
        let check = |op: HostOp| assert_eq!(HostOp::decode(op.code(), &op.attrs()), Ok(op));
        check(HostOp::NonZero);
        check(HostOp::Unique(UniqueAttrs { axis: Some(3), sorted: true }));
        check(HostOp::RegexFullMatch("a+".into()));
        let strings = vec!["x".into(), String::new()];
        check(HostOp::Strings(StringsAttrs { dims: vec![2, 1], strings }));
    }

    #[test]
    fn codes_are_unique_and_what_is_damaged_is_an_error() {
        let mut codes = HostOp::CODES.to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), HostOp::CODES.len());
        assert_eq!(HostOp::decode(999, &[]), Err(DecodeError::Code(999)));
        assert_eq!(HostOp::decode(2, &[0]), Err(DecodeError::Attributes("NonZero")));
        let mut bytes = HostOp::RegexFullMatch("a+".into()).attrs();
        bytes.pop();
        assert_eq!(HostOp::decode(22, &bytes), Err(DecodeError::Attributes("RegexFullMatch")));
    }
}
