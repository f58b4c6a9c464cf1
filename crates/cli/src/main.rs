//! The `tilewright` command.

fn main() {}
