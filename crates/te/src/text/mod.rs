//! Text forms: printing and parsing of expressions, functions and kernels.

pub(crate) mod func;
mod kernel;
mod parse;
mod print;

pub use func::FuncNames;
pub use parse::ParseError;
pub use print::{IdNames, Names, write_expr};
