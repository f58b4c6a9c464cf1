//! Texts of errors, which a program for a small device leaves out.

use alloc::string::String;

/// A text of an error; empty without the feature `messages`.
pub(crate) fn told(text: impl FnOnce() -> String) -> String {
    if cfg!(feature = "messages") { text() } else { String::new() }
}
