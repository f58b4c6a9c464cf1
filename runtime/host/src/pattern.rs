//! Regular expressions.

use crate::Result;

/// Whether patterns are part of this build.
pub(crate) const ARE_THERE: bool = cfg!(feature = "std");

/// A pattern that matches whole strings.
pub(crate) struct Pattern {
    #[cfg(feature = "std")]
    regex: regex_lite::Regex,
}

#[cfg(feature = "std")]
impl Pattern {
    /// The pattern of RE2's syntax.
    pub(crate) fn new(pattern: &str) -> Result<Pattern> {
        match regex_lite::Regex::new(&alloc::format!("^(?:{pattern})$")) {
            Ok(regex) => Ok(Pattern { regex }),
            Err(error) => Err(alloc::format!("pattern {pattern:?}: {error}")),
        }
    }

    /// Whether it matches all of a string.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

#[cfg(not(feature = "std"))]
impl Pattern {
    /// There are no patterns in this build.
    pub(crate) fn new(_: &str) -> Result<Pattern> {
        Err(alloc::string::String::from("regular expressions are not part of this build"))
    }

    /// Never: there is no pattern.
    pub(crate) fn matches(&self, _: &str) -> bool {
        false
    }
}
