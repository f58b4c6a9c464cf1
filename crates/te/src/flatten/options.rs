//! What passes and translation are told of the target.

/// What the code generator can take.
#[derive(Clone, Copy, Debug)]
pub struct FlattenOptions {
    /// Bytes from which on an element may be of masked loads and stores, which are to be used where only some lanes of
    /// a vector are in bounds; without them such vectors are computed lane by lane.
    pub masked_access: Option<u32>,
    /// Alignment in bytes that the caller guarantees for the first element of every buffer.
    pub buffer_align: u32,
    /// Bytes of the vectors by a lane of which a multiply-add can multiply: elements that follow one another are loaded together. Nothing
    /// where there is no such instruction.
    pub element_vector: Option<u32>,
    /// Whether the target computes with 32 bits at a time, as processors of 32 bits do. GPUs do so anyway.
    pub computes_narrow: bool,
    /// Threads of a warp, on a target whose tasks have threads.
    pub lanes: Option<u32>,
}

impl FlattenOptions {
    /// A target of single threads without instructions of its own for any of these.
    pub const PLAIN: FlattenOptions = FlattenOptions {
        masked_access: None,
        buffer_align: 64,
        element_vector: None,
        computes_narrow: false,
        lanes: None,
    };
}
