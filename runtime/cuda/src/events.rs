//! Events of a stream, by which the device's own times are told.
#![allow(unsafe_code, reason = "calls the driver")]

use std::ptr;

use cudarc::driver::sys::{CUevent, CUstream};

use crate::api::{Api, call};
use crate::context::Context;
use crate::error::Failure;

/// Nanoseconds of a millisecond, in which the driver tells times.
const NS_PER_MS: f64 = 1e6;

/// `CUDA_ERROR_INVALID_VALUE`, for a mark that was not made.
const INVALID_VALUE: u32 = 1;

/// Events of one stream: they are kept from one timing to the next, for to create one takes longer than to record it.
#[derive(Default)]
pub(crate) struct Events {
    all: Vec<CUevent>,
    /// How many of them are marks.
    used: usize,
}

impl Events {
    /// Makes all marks void.
    pub(crate) fn begin(&mut self) {
        self.used = 0;
    }

    /// Records the next event; gives its number.
    pub(crate) fn mark(&mut self, api: &Api, stream: CUstream) -> Result<u32, Failure> {
        if self.used == self.all.len() {
            let mut event: CUevent = ptr::null_mut();
            // SAFETY: a pointer is written. The event is destroyed once, by `destroy`.
            unsafe { call!(api, event_create(&mut event, 0)) }?;
            self.all.push(event);
        }
        // SAFETY: event and stream are there, and of one context.
        unsafe { call!(api, event_record(self.all[self.used], stream)) }?;
        self.used += 1;
        Ok(self.used as u32 - 1)
    }

    /// Nanoseconds between two marks that were waited for.
    pub(crate) fn elapsed(&self, api: &Api, from: u32, to: u32) -> Result<f64, Failure> {
        let marks = &self.all[..self.used];
        let (Some(&from), Some(&to)) = (marks.get(from as usize), marks.get(to as usize)) else {
            let reason = "there is no such mark".to_owned();
            return Err(Failure { call: api.event_elapsed.name, code: INVALID_VALUE, reason });
        };
        let mut ms = 0.0;
        // SAFETY: one number is written; both events are recorded.
        unsafe { call!(api, event_elapsed(&mut ms, from, to)) }?;
        Ok(f64::from(ms) * NS_PER_MS)
    }

    /// Gives all back.
    pub(crate) fn destroy(&mut self, context: &Context) {
        self.used = 0;
        for event in self.all.drain(..) {
            // A failure leaves nothing to do: the context is lost, and the event with it.
            // SAFETY: created once, and not recorded any more.
            let _ = context.run(|api| unsafe { call!(api, event_destroy(event)) });
        }
    }
}
