//! Output side of the text form: names, quoting, and the options of printing.

use std::fmt::{self, Write};

use crate::symbol::SymbolTable;

/// Collects the text of a graph or of one of its parts.
pub struct Writer<'a> {
    /// The text so far.
    pub out: String,
    /// Names of the symbols that occur.
    pub symbols: &'a SymbolTable,
    /// Constants with more elements than this print as `...`, which does not parse back.
    pub max_elements: usize,
}

impl<'a> Writer<'a> {
    /// An empty text in which every constant will be printed whole.
    pub fn new(symbols: &'a SymbolTable) -> Writer<'a> {
        Writer { out: String::new(), symbols, max_elements: usize::MAX }
    }

    /// Appends something that displays itself.
    pub fn put(&mut self, item: impl fmt::Display) {
        write!(self.out, "{item}").expect("writing to a string succeeds");
    }

    /// Appends a name, quoted where it would not read back as an identifier.
    pub fn name(&mut self, name: &str) {
        write_name(&mut self.out, name).expect("writing to a string succeeds");
    }

    /// Appends a quoted string.
    pub fn string(&mut self, text: &str) {
        write_quoted(&mut self.out, text).expect("writing to a string succeeds");
    }
}

/// Writes a name bare if it is an identifier and not a word of the extent grammar, else quoted.
pub fn write_name(out: &mut impl Write, name: &str) -> fmt::Result {
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    let bare = starts && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    if bare && !matches!(name, "floordiv" | "mod" | "min" | "max") {
        out.write_str(name)
    } else {
        write_quoted(out, name)
    }
}

fn write_quoted(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            c if c.is_control() => write!(out, "\\u{{{:x}}}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    out.write_char('"')
}
