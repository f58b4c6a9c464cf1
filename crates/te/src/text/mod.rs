//! Text forms: printing and parsing of expressions, functions and kernels.

pub(crate) mod func;
mod kernel;
mod parse;
mod parse_kernel;
mod print;
mod tokens;

pub use func::FuncNames;
pub use print::{IdNames, Names, write_expr};
pub use tokens::ParseError;
