//! Input side of the text form: a scanner with the pieces every part of the grammar shares.

use std::str::FromStr;

use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::symbol::{SymbolKind, SymbolTable};
use crate::types::{Shape, TensorType, Type};

/// A place in a text that does not follow the grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// 1-based line.
    pub line: usize,
    /// 1-based column, in characters.
    pub column: usize,
    /// What was expected or is wrong.
    pub message: String,
}

/// Nesting beyond which extents and types are refused, so that hostile text cannot exhaust the stack.
const MAX_DEPTH: usize = 64;

/// A position in a text, and the symbols met so far.
pub struct Reader<'a> {
    text: &'a str,
    position: usize,
    depth: usize,
    /// Symbols by name; unknown names become input symbols.
    pub symbols: &'a mut SymbolTable,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `text`.
    pub fn new(text: &'a str, symbols: &'a mut SymbolTable) -> Reader<'a> {
        Reader { text, position: 0, depth: 0, symbols }
    }

    /// An error at the current position.
    pub fn error(&self, message: impl Into<String>) -> ParseError {
        let before = &self.text[..self.position];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ParseError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.position += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.position += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    /// Whether only white space and comments are left.
    pub fn at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    /// Whether the text goes on with `token`.
    pub fn peek(&mut self, token: &str) -> bool {
        self.skip_space();
        self.rest().starts_with(token)
    }

    /// Passes over `token` if the text goes on with it.
    pub fn eat(&mut self, token: &str) -> bool {
        let found = self.peek(token);
        if found {
            self.position += token.len();
        }
        found
    }

    /// Passes over `token` or fails.
    pub fn expect(&mut self, token: &str) -> Result<(), ParseError> {
        if self.eat(token) { Ok(()) } else { Err(self.error(format!("expected `{token}`"))) }
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        self.skip_space();
        let rest = self.rest();
        let len = rest.find(|c| !accept(c)).unwrap_or(rest.len());
        self.position += len;
        &rest[..len]
    }

    /// An identifier.
    pub fn word(&mut self) -> Result<&'a str, ParseError> {
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if word.is_empty() { Err(self.error("expected a word")) } else { Ok(word) }
    }

    /// A quoted string.
    pub fn string(&mut self) -> Result<String, ParseError> {
        self.expect("\"")?;
        let mut text = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((offset, c)) = chars.next() {
            match c {
                '"' => {
                    self.position += offset + 1;
                    return Ok(text);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => text.push('\n'),
                    Some('u') => {
                        let digits: String =
                            chars.by_ref().map(|(_, c)| c).skip(1).take_while(|&c| c != '}').collect();
                        let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                        text.push(code.ok_or_else(|| self.error("bad escape in string"))?);
                    }
                    Some(c) => text.push(c),
                    None => break,
                },
                c => text.push(c),
            }
        }
        Err(self.error("unterminated string"))
    }

    /// An identifier or a quoted string.
    pub fn name(&mut self) -> Result<String, ParseError> {
        if self.peek("\"") { self.string() } else { self.word().map(str::to_owned) }
    }

    /// A number in any notation `T` reads.
    pub fn number<T: FromStr>(&mut self) -> Result<T, ParseError> {
        self.skip_space();
        let start = self.position;
        let token = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        token.parse().map_err(|_| {
            self.position = start;
            self.error(format!("`{token}` is not a number of the kind expected here"))
        })
    }

    /// A non-negative integer written in digits only.
    pub fn digits(&mut self) -> Result<i64, ParseError> {
        let digits = self.take_while(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| self.error("expected a non-negative integer"))
    }

    /// An element type.
    pub fn dtype(&mut self) -> Result<DType, ParseError> {
        let word = self.word()?;
        word.parse().map_err(|_| self.error(format!("unknown element type `{word}`")))
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, ParseError>) -> Result<T, ParseError> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// A symbolic extent: sums of products of integers, symbols and `floordiv`, `mod`, `min`, `max` calls.
    pub fn dim(&mut self) -> Result<Dim, ParseError> {
        self.nested(|reader| {
            let mut sum = reader.dim_product()?;
            loop {
                if reader.eat("+") {
                    sum = &sum + &reader.dim_product()?;
                } else if reader.eat("-") {
                    sum = &sum - &reader.dim_product()?;
                } else {
                    return Ok(sum);
                }
            }
        })
    }

    fn dim_product(&mut self) -> Result<Dim, ParseError> {
        let negative = self.eat("-");
        let mut product = self.dim_factor()?;
        while self.eat("*") {
            product = &product * &self.dim_factor()?;
        }
        Ok(if negative { -&product } else { product })
    }

    fn dim_factor(&mut self) -> Result<Dim, ParseError> {
        if self.eat("(") {
            let dim = self.dim()?;
            self.expect(")")?;
            return Ok(dim);
        }
        self.skip_space();
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let digits = self.take_while(|c| c.is_ascii_digit());
            return digits.parse().map(Dim::new).map_err(|_| self.error("extent out of range"));
        }
        let quoted = self.peek("\"");
        let name = self.name()?;
        let operation: fn(&Dim, &Dim) -> Dim = match name.as_str() {
            "floordiv" if !quoted => Dim::floor_div,
            "mod" if !quoted => Dim::modulo,
            "min" if !quoted => Dim::minimum,
            "max" if !quoted => Dim::maximum,
            _ => return Ok(Dim::symbol(self.symbols.intern(&name, SymbolKind::Input))),
        };
        self.expect("(")?;
        let left = self.dim()?;
        self.expect(",")?;
        let right = self.dim()?;
        self.expect(")")?;
        Ok(operation(&left, &right))
    }

    /// A comma-separated list up to and including `end`.
    pub fn list<T>(
        &mut self,
        end: &str,
        mut item: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        let mut items = Vec::new();
        while !self.eat(end) {
            if !items.is_empty() {
                self.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// The type of a value.
    pub fn ty(&mut self) -> Result<Type, ParseError> {
        self.nested(|reader| {
            for (word, wrap) in [("seq(", Type::Sequence as fn(_) -> _), ("opt(", Type::Optional)] {
                if reader.eat(word) {
                    let inner = reader.ty()?;
                    reader.expect(")")?;
                    return Ok(wrap(Box::new(inner)));
                }
            }
            let dtype = reader.dtype()?;
            reader.expect("[")?;
            let shape = if reader.eat("*") {
                reader.expect("]")?;
                Shape::Unranked
            } else {
                Shape::Ranked(reader.list("]", Reader::dim)?)
            };
            Ok(Type::Tensor(TensorType { dtype, shape }))
        })
    }
}
