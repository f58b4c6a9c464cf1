//! A line of a plan: symbols, words, numbers, ids and texts.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use thiserror::Error;
use tilewright_dtype::DType;

use crate::plan::{BufferId, HostId, SizeId};

/// A text that is no plan: where and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub reason: String,
}

pub(super) type Result<T> = core::result::Result<T, ParseError>;

/// One line being read.
pub(super) struct Line<'a> {
    number: usize,
    whole: &'a str,
    /// Bytes read.
    pub(super) at: usize,
}

impl<'a> Line<'a> {
    /// A line with its number, counted from 1.
    pub(super) fn new(number: usize, whole: &'a str) -> Line<'a> {
        Line { number, whole, at: 0 }
    }

    pub(super) fn fail<T>(&self, reason: impl fmt::Display) -> Result<T> {
        let column = self.whole.get(..self.at).map_or(0, |read| read.chars().count()) + 1;
        Err(ParseError { line: self.number, column, reason: reason.to_string() })
    }

    pub(super) fn rest(&self) -> &'a str {
        self.whole.get(self.at..).unwrap_or("")
    }

    /// What comes next, for messages.
    pub(super) fn next(&self) -> String {
        if self.is_at_end() { "the end".into() } else { format!("`{}`", self.rest()) }
    }

    pub(super) fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest().is_empty() || self.rest().starts_with("//")
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.is_at_end() { Ok(()) } else { self.fail(format!("expected the end, found {}", self.next())) }
    }

    /// Takes a symbol or word, if it is next. A word ends where letters do.
    pub(super) fn take(&mut self, what: &str) -> bool {
        let Some(after) = self.rest().strip_prefix(what) else { return false };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if what.ends_with(is_word) && after.starts_with(is_word) {
            return false;
        }
        self.at += what.len();
        self.skip_space();
        true
    }

    pub(super) fn expect(&mut self, what: &str) -> Result<()> {
        if self.take(what) { Ok(()) } else { self.fail(format!("expected `{what}`, found {}", self.next())) }
    }

    /// Letters, digits and `_`.
    pub(super) fn word(&mut self) -> Result<&'a str> {
        let rest = self.rest();
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        if length == 0 {
            return self.fail(format!("expected a word, found {}", self.next()));
        }
        self.at += length;
        self.skip_space();
        Ok(&rest[..length])
    }

    pub(super) fn number<T: FromStr>(&mut self) -> Result<T> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - sign);
        match rest[..sign + digits].parse() {
            Ok(number) => {
                self.at += sign + digits;
                self.skip_space();
                Ok(number)
            }
            Err(_) if digits == 0 => self.fail(format!("expected a number, found {}", self.next())),
            Err(_) => self.fail(format!("`{}` is out of range", &rest[..sign + digits])),
        }
    }

    /// A letter and a number: `s3`.
    pub(super) fn id(&mut self, prefix: &str) -> Result<u32> {
        match self.try_id(prefix)? {
            Some(id) => Ok(id),
            None => self.fail(format!("expected `{prefix}` and a number, found {}", self.next())),
        }
    }

    pub(super) fn try_id(&mut self, prefix: &str) -> Result<Option<u32>> {
        let Some(after) = self.rest().strip_prefix(prefix) else { return Ok(None) };
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let is_word = after[digits..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if digits == 0 || is_word {
            return Ok(None);
        }
        self.at += prefix.len();
        self.number().map(Some)
    }

    pub(super) fn size(&mut self) -> Result<SizeId> {
        self.id("s").map(SizeId)
    }

    pub(super) fn buffer(&mut self) -> Result<BufferId> {
        self.id("b").map(BufferId)
    }

    pub(super) fn host(&mut self) -> Result<HostId> {
        self.id("h").map(HostId)
    }

    pub(super) fn dtype(&mut self) -> Result<DType> {
        let start = self.at;
        let word = self.word()?;
        word.parse().or_else(|_| {
            self.at = start;
            self.fail(format!("`{word}` is no element type"))
        })
    }

    /// A text in quotes, with the escapes of Rust.
    pub(super) fn quoted(&mut self) -> Result<String> {
        let start = self.at;
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        if chars.next().is_none_or(|first| first.1 != '"') {
            return self.fail(format!("expected a text in quotes, found {}", self.next()));
        }
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + at + 1;
                    self.skip_space();
                    return Ok(text);
                }
                '\\' => match chars.next().map(|next| next.1) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some('0') => text.push('\0'),
                    Some('u') => {
                        let digits = chars.by_ref().map(|next| next.1).skip(1).take_while(|c| *c != '}');
                        let code = u32::from_str_radix(&digits.collect::<String>(), 16).ok();
                        match code.and_then(char::from_u32) {
                            Some(c) => text.push(c),
                            None => return self.fail("a text with an escape that is no character"),
                        }
                    }
                    Some(other) => text.push(other),
                    None => break,
                },
                other => text.push(other),
            }
        }
        self.fail("a text without an end")
    }

    /// A name: a word, or a text in quotes.
    pub(super) fn name(&mut self) -> Result<String> {
        if self.rest().starts_with('"') { self.quoted() } else { self.word().map(ToOwned::to_owned) }
    }

    /// Items with commas between, up to the closing symbol, which is taken.
    pub(super) fn list<T>(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.take(close) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }
}
