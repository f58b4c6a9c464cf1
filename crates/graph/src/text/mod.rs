//! The text form of graphs: a printer and a parser that are inverse to each other.

mod reader;
mod writer;

pub use reader::{ParseError, Reader};
pub use writer::{Writer, write_name};
