//! Text forms: printing and parsing of expressions, functions and kernels.

mod kernel;
mod print;

pub use print::{IdNames, Names, write_expr};
