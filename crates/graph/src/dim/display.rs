//! Extents as text.

use std::fmt;

use super::{Atom, Dim};
use crate::symbol::SymbolTable;

impl Dim {
    /// The extent with symbols shown by name, as the text form prints it.
    pub fn display<'a>(&'a self, symbols: &'a SymbolTable) -> impl fmt::Display + 'a {
        DisplayDim { dim: self, symbols: Some(symbols) }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DisplayDim { dim: self, symbols: None }.fmt(f)
    }
}

struct DisplayDim<'a> {
    dim: &'a Dim,
    symbols: Option<&'a SymbolTable>,
}

impl DisplayDim<'_> {
    fn write_atom(&self, atom: &Atom, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, pair) = match atom {
            Atom::Symbol(symbol) => {
                return match self.symbols {
                    Some(symbols) => crate::text::write_name(f, &symbols[*symbol].name),
                    None => write!(f, "{symbol}"),
                };
            }
            Atom::FloorDiv(pair) => ("floordiv", pair),
            Atom::Mod(pair) => ("mod", pair),
            Atom::Min(pair) => ("min", pair),
            Atom::Max(pair) => ("max", pair),
        };
        let of = |dim| DisplayDim { dim, symbols: self.symbols };
        write!(f, "{name}({}, {})", of(&pair.0), of(&pair.1))
    }
}

impl fmt::Display for DisplayDim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dim.is_zero() {
            return f.write_str("0");
        }
        for (index, summand) in self.dim.summands().enumerate() {
            let negative = summand.coefficient < 0;
            f.write_str(match (index, negative) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            })?;
            let magnitude = summand.coefficient.unsigned_abs();
            if magnitude != 1 || summand.atoms.is_empty() {
                write!(f, "{magnitude}")?;
                if !summand.atoms.is_empty() {
                    f.write_str("*")?;
                }
            }
            for (position, atom) in summand.atoms.iter().enumerate() {
                if position > 0 {
                    f.write_str("*")?;
                }
                self.write_atom(atom, f)?;
            }
        }
        Ok(())
    }
}
