//! The weights section.

use rustc_hash::FxHashMap;
use tilewright_digest::{Canonical, Digest, Writer};
use tilewright_graph::Tensor;
use tilewright_te::Func;

/// Bytes between weights, and alignment of every buffer.
pub(super) const ALIGN: u64 = tilewright_runtime::plan::ALIGN as u64;

/// A piece of the weights section: a constant, as it is or as a function wants it.
#[derive(Clone, Debug)]
pub struct Weight {
    /// The constant.
    pub tensor: Tensor,
    /// What is made of it: functions of one input and one output, one after the other.
    pub packing: Vec<Func>,
    /// Bytes of what comes of it.
    pub bytes: u64,
}

impl Weight {
    /// Its bytes and those up to the next weight.
    pub fn padded_bytes(&self) -> u64 {
        self.bytes.div_ceil(ALIGN).max(1) * ALIGN
    }
}

/// The weights of one or more plans, each different one once; it starts at the next multiple of 64 bytes.
#[derive(Debug, Default)]
pub struct Weights {
    list: Vec<Weight>,
    bytes: u64,
    /// Places by content and packing function.
    known: FxHashMap<(Tensor, Digest), ByteRange>,
}

/// Offset and length in the weights section, in bytes.
pub(super) type ByteRange = (u64, u64);

impl Weights {
    /// The weights in the order of their offsets.
    pub fn into_list(self) -> Vec<Weight> {
        self.list
    }

    /// Length of the section in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The place of a weight.
    pub(super) fn place(&mut self, weight: Weight) -> ByteRange {
        let write = |writer: &mut Writer| weight.packing.iter().for_each(|func| func.write(writer));
        let key = (weight.tensor.clone(), Digest::of("packing", write));
        if let Some(&place) = self.known.get(&key) {
            return place;
        }
        let place = (self.bytes, weight.bytes);
        self.bytes += weight.padded_bytes();
        self.list.push(weight);
        self.known.insert(key, place);
        place
    }
}
