//! Models from artifacts, on the device that they have code for.

use std::path::Path;

use tilewright_run::{LoadOptions, Model};
use tilewright_runtime::{Bytes, LoadError, Trust};

use crate::devices;
use crate::error::Error;

/// As [`Model::load_with`]; where neither a device nor the processor was asked for, and there is code for a device alone, the first of its
/// kind runs the model.
///
/// # Errors
/// As [`Model::load_with`], and where there is no such device.
pub fn file(path: impl AsRef<Path>, trust: Trust, options: &LoadOptions) -> Result<Model, Error> {
    on_any(options, |options| Model::load_with(&path, trust, options))
}

/// As [`file`], from memory.
///
/// # Errors
/// As [`file`].
pub fn bytes(bytes: Bytes, trust: Trust, options: &LoadOptions) -> Result<Model, Error> {
    on_any(options, |options| Model::from_bytes(bytes.clone(), trust, options))
}

fn on_any(
    options: &LoadOptions,
    load: impl Fn(&LoadOptions) -> Result<Model, LoadError>,
) -> Result<Model, Error> {
    match load(options) {
        Err(LoadError::NeedsDevice(kind)) if options.takes_any() => {
            Ok(load(&options.clone().device(devices::open(&kind)?))?)
        }
        loaded => Ok(loaded?),
    }
}
