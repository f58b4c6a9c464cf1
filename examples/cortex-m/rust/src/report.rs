//! What the firmware says.

use core::fmt::{self, Write};

use crate::digits::{Findings, HEAP, TENSORS, Trouble};
use crate::semihosting::Terminal;

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoImages => f.write_str("no images"),
            Trouble::Artifact(error) => error.fmt(f),
            Trouble::Arena(error) => error.fmt(f),
            Trouble::Load(error) => error.fmt(f),
            Trouble::Run(error) => error.fmt(f),
        }
    }
}

pub(crate) fn print(findings: &Result<Findings, Trouble>) {
    // Writing to the terminal cannot fail.
    _ = match findings {
        Err(trouble) => writeln!(Terminal, "{trouble}"),
        Ok(Findings { right, images, ticks }) => writeln!(
            Terminal,
            "heap {} of {}, tensors {} of {} bytes\n{right} of {images} right, {ticks} ticks a run",
            HEAP.high_water(),
            HEAP.size(),
            TENSORS.high_water(),
            TENSORS.size()
        ),
    };
}
