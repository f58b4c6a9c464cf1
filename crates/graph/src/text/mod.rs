//! The text form of graphs: a printer and a parser that are inverse to each other.
//!
//! ```text
//! graph mlp {
//!   sym batch input 1..8:1
//!   region0(%0 x: f32[batch, 4]) {
//!     %1: f32[4, 4] = Constant[f32[4, 4]{...}]()
//!     %2 y: f32[batch, 4] = MatMul[](%0, %1) @ "MatMul_0"
//!     return %2 as y
//!   }
//! }
//! ```
//! Values are numbered in order of definition; a name after the number is the value's name in the model. `_` is
//! an absent operand, what follows `@` the provenance.

mod parse;
mod print;
mod reader;
mod writer;

pub use parse::parse;
pub use print::{print, print_short};
pub use reader::{ParseError, Reader};
pub use writer::{Writer, write_name};
