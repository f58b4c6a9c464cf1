//! Requests to stop a run.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

/// A request to stop, which any thread may make and whoever holds a clone sees. It cannot be taken back: what is to run
/// again gets a new one.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A request that was not made yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Makes the request.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the request was made.
    pub fn is_cancelled(&self) -> bool {
        // Nothing else is read by what is seen here.
        self.0.load(Ordering::Relaxed)
    }
}
