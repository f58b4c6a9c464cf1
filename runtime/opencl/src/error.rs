//! Why there is no device.

use std::fmt::Write;

/// A device that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Its name, for people.
    pub name: String,
    /// What it lacks.
    pub reason: String,
}

/// No device could be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenClError {
    /// There is no OpenCL on this system, or an old one.
    #[error("no OpenCL: {reason}")]
    Library {
        /// What the system says.
        reason: String,
    },
    /// OpenCL does not tell its devices.
    #[error("OpenCL does not tell its devices: {reason}")]
    Driver {
        /// The function that failed, and its error.
        reason: String,
    },
    /// No device that can be used.
    #[error("no OpenCL device can be used{}", list(.unusable))]
    NoDevice {
        /// Those that there are.
        unusable: Vec<Unusable>,
    },
    /// No device of this number.
    #[error("no OpenCL device {index}: devices are numbered from 0, and {usable} can be used")]
    NoSuchDevice {
        /// Asked for.
        index: usize,
        /// How many there are.
        usable: usize,
    },
}

fn list(unusable: &[Unusable]) -> String {
    unusable.iter().fold(String::new(), |mut text, Unusable { name, reason }| {
        let _ = write!(text, "; {name}: {reason}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_no_device_can_be_used_names_them_all() {
        let device = |name: &str, reason: &str| Unusable { name: name.to_owned(), reason: reason.to_owned() };
        let unusable = vec![device("A", "no binary64"), device("B", "no compiler")];
        let told = OpenClError::NoDevice { unusable }.to_string();
        assert_eq!(told, "no OpenCL device can be used; A: no binary64; B: no compiler");
    }
}
