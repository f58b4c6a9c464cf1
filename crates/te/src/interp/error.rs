//! What keeps a function from being compiled or run.

use thiserror::Error;

/// Why a function could not be compiled or run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InterpError {
    /// The function breaks the rules of the IR.
    #[error("function {func}: {what}")]
    Malformed {
        /// The function.
        func: String,
        /// What is wrong.
        what: String,
    },
    /// Wrong number of inputs.
    #[error("{given} inputs given, {expected} expected")]
    InputCount {
        /// How many there are.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// Wrong number of sizes.
    #[error("{given} sizes given, {expected} expected")]
    SizeCount {
        /// How many there are.
        expected: usize,
        /// How many were given.
        given: usize,
    },
    /// An input's length does not match its shape.
    #[error("input {buffer} has {given} bytes, its shape {shape:?} needs {expected}")]
    InputBytes {
        /// The input.
        buffer: String,
        /// Its shape at the given sizes.
        shape: Vec<i64>,
        /// Bytes of that shape.
        expected: usize,
        /// Bytes given.
        given: usize,
    },
    /// An extent is negative or the buffer does not fit into memory.
    #[error("buffer {buffer} has the impossible shape {shape:?}")]
    Shape {
        /// The buffer.
        buffer: String,
        /// Its shape at the given sizes.
        shape: Vec<i64>,
    },
    /// An access outside of a buffer.
    #[error("block {block}: {buffer}{indices:?} is outside of its shape {shape:?}")]
    OutOfBounds {
        /// The block.
        block: String,
        /// The buffer.
        buffer: String,
        /// The element.
        indices: Vec<i64>,
        /// The buffer's shape.
        shape: Vec<i64>,
    },
    /// A read of an element that nothing has written.
    #[error("block {block}: {buffer}{indices:?} is read before it is written")]
    Unwritten {
        /// The block that reads.
        block: String,
        /// The buffer.
        buffer: String,
        /// The element.
        indices: Vec<i64>,
    },
    /// Iterations that may run at the same time access the same element, and one of them writes it.
    #[error("{buffer}{indices:?} is raced for: {first}, and {second}")]
    Race {
        /// The buffer.
        buffer: String,
        /// The element.
        indices: Vec<i64>,
        /// The block that came first, what it does, and the iteration of the loop of tasks or lanes.
        first: String,
        /// The other.
        second: String,
    },
    /// An output of which an element was never written.
    #[error("output {buffer}{indices:?} is never written")]
    OutputNotWritten {
        /// The output.
        buffer: String,
        /// The first such element.
        indices: Vec<i64>,
    },
    /// An expression that cannot be evaluated where it stands.
    #[error("cannot evaluate: {0}")]
    Evaluate(String),
}
