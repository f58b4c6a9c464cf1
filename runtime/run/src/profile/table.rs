//! Rows of a profile as a table for people.

use super::Row;

/// A table of the rows that matter, for people.
pub fn text(rows: &[Row]) -> String {
    /// Rows worth a line.
    const SHOWN: usize = 30;
    /// Characters of names that fit on a line.
    const WIDTH: usize = 60;
    let number = |n: Option<f64>, digits: usize| n.map_or("-".to_string(), |n| format!("{n:.digits$}"));
    let mut text = format!(
        "{:>10} {:>10} {:>7} {:>8} {:>7} {:>6}  {:<24} {:<12} {:<22} {}\n",
        "ms", "model ms", "share", "GFLOP/s", "GB/s", "roof", "rules", "layout", "operator", "nodes"
    );
    for row in rows.iter().take(SHOWN) {
        text += &format!(
            "{:>10.4} {:>10} {:>5.1} % {:>8} {:>7} {:>6}  {:<24} {:<12} {:<22} {}\n",
            row.ms,
            number(row.estimate_ms, 4),
            100.0 * row.share,
            number(row.gflops(), 1),
            number(row.gbps(), 1),
            row.roofline().map_or("-".to_string(), |part| format!("{:.0} %", 100.0 * part)),
            short(&row.rules.join(" "), 24),
            short(&row.layouts.join(" "), 12),
            short(row.operators.first().or(row.kernels.first()).map_or("", String::as_str), 22),
            short(&row.nodes.join(" "), WIDTH),
        );
    }
    if let Some(rest) = rows.get(SHOWN..).filter(|rest| !rest.is_empty()) {
        let (ms, share): (f64, f64) =
            rest.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.ms, sum.1 + row.share));
        text += &format!("{ms:>10.4} {:>10} {:>5.1} %  {} more rows\n", "", 100.0 * share, rest.len());
    }
    text
}

/// The beginning of a text that is longer than fits.
pub fn short(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        None => text.to_string(),
        Some(_) => text.chars().take(width - 2).chain("..".chars()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_summed_up() {
        let row = |n: usize| Row { ms: 1.0, share: 0.025, nodes: vec![format!("n{n}")], ..Row::default() };
        let text = text(&(0..40).map(row).collect::<Vec<_>>());
        assert_eq!(text.lines().count(), 32);
        assert!(text.ends_with("   10.0000             25.0 %  10 more rows\n"), "{text}");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!((short("abcdef", 6).as_str(), short("abcdefg", 6).as_str()), ("abcdef", "abcd.."));
    }
}
