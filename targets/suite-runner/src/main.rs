//! Runs machine code that comes by the standard input; `tilewright_suite_runner` says in what form.

use std::io::{self, BufReader};

fn main() -> io::Result<()> {
    tilewright_suite_runner::serve(&mut BufReader::new(io::stdin().lock()), &mut io::stdout().lock())
}
