//! Outputs that are the caller's, and what becomes of their memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::vec;

use tilewright_runtime::{AlignedBuf, Allocator, OutOfMemory, Reuse, Room, Tensor, Value, Values};

/// The outputs of a run, in the model's order. They are the caller's, and stay as they are.
#[derive(Clone, Debug)]
pub struct Outputs {
    pub(crate) names: Arc<[Arc<str>]>,
    pub(crate) values: Values,
}

impl Outputs {
    /// Number of outputs.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Output `index`.
    pub fn get(&self, index: usize) -> Option<&Value> {
        self.values.get(index)
    }

    /// The output of a name.
    pub fn by_name(&self, name: &str) -> Option<&Value> {
        self.get(self.names.iter().position(|other| **other == *name)?)
    }

    /// The output of a name, if it is a tensor.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.by_name(name)?.as_tensor()
    }

    /// Names and outputs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.names.iter().map(|name| &**name).zip(&self.values)
    }
}

impl IntoIterator for Outputs {
    type Item = (Arc<str>, Value);
    type IntoIter = vec::IntoIter<(Arc<str>, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.names.iter().cloned().zip(self.values).collect::<Vec<_>>().into_iter()
    }
}

/// Memory of outputs that were dropped, for those of later runs.
///
/// The system gives and takes large memory page by page, which costs a run more than writing it does, and threads wait
/// for one another at it. What an allocator has at hand anyway is not kept.
pub(crate) struct Spare {
    buffers: Mutex<Vec<AlignedBuf>>,
    most: usize,
    allocator: Option<Arc<dyn Allocator>>,
}

/// Bytes of an output that is kept. Common allocators ask the system for more than twice that.
const LEAST: usize = 64 << 10;

impl Spare {
    /// Keeps so many buffers at most, of an allocator or of Rust's.
    pub(crate) fn new(most: usize, allocator: Option<Arc<dyn Allocator>>) -> Spare {
        Spare { buffers: Mutex::default(), most, allocator }
    }

    /// Memory for an output: the smallest that fits and is not wasted on it, of those the last given back, which caches hold; else new.
    pub(crate) fn take(spare: &Arc<Spare>, bytes: usize) -> Result<Room, OutOfMemory> {
        let new = || AlignedBuf::zeroed_of(bytes, spare.allocator.as_ref());
        if bytes < LEAST {
            return new().map(Room::from);
        }
        let buffer = match spare.best(bytes) {
            Some(buffer) => buffer,
            None => new()?,
        };
        Ok(Room { buffer, reuse: Some(spare.clone()) })
    }

    fn best(&self, bytes: usize) -> Option<AlignedBuf> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |&i: &usize| (bytes..=bytes.saturating_mul(2)).contains(&buffers[i].capacity());
        let best = (0..buffers.len()).rev().filter(fits).min_by_key(|&i| buffers[i].capacity())?;
        Some(buffers.remove(best))
    }
}

impl Reuse for Spare {
    fn give_back(&self, buffer: AlignedBuf) {
        if buffer.capacity() < LEAST {
            return;
        }
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() == self.most {
            // Extents have changed since the oldest was used.
            buffers.remove(0);
        }
        buffers.push(buffer);
    }
}
