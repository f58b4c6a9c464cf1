//! What goes out: standard output, and files that are whole or not there.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use tilewright_driver::run::files;

use crate::failure::{Exit, Failure};

/// Prints to standard output. A reader that has gone (`| head`) is no failure; a full disk is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Io, format!("cannot write to standard output: {error}")))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints one JSON object on a line.
pub(crate) fn print_json(object: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{object}\n"))
}

/// Prints to standard error, where messages go; that nobody can read them is not worth a failure.
pub(crate) fn note(text: &str) {
    _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a file, whole or not at all.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    files::replace(path, |out| out.write_all(bytes)).map_err(|error| Failure::write(path, &error))
}

/// A number of bytes for people.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// A count for people: `25.6 M`.
pub(crate) fn count(n: f64) -> String {
    const UNITS: [&str; 4] = ["", " k", " M", " G"];
    let mut value = n;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = next;
    }
    if unit.is_empty() { format!("{value}") } else { format!("{value:.2}{unit}") }
}

/// The extents that a program is specialised for: `batch = 1, seq = 128`.
pub(crate) fn extents(extents: &[(String, u64)]) -> String {
    extents.iter().map(|(name, n)| format!("{name} = {n}")).collect::<Vec<_>>().join(", ")
}

/// What a program specialised for these extents is called; nothing for the one for all extents.
pub(crate) fn variant(of: &[(String, u64)]) -> Option<String> {
    Some(extents(of)).filter(|extents| !extents.is_empty())
}

/// Lines of `name  value`, the values aligned.
pub(crate) fn table(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        // Writing to a string cannot fail.
        _ = writeln!(text, "  {name:width$}  {value}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_for_people() {
        assert_eq!(
            [0, 1023, 1024, 1536, 3 << 30].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "3.0 GiB"]
        );
        assert_eq!([12.0, 25.557e6, 4.1e9].map(count), ["12", "25.56 M", "4.10 G"]);
    }

    #[test]
    fn tables_align() {
        let row = |a: &str, b: &str| (a.to_string(), b.to_string());
        assert_eq!(table(&[row("a", "1"), row("long", "2")]), "  a     1\n  long  2\n");
    }
}
