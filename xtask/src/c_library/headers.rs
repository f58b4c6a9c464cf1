//! The functions that headers of C declare.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The functions of some headers of a folder.
pub(super) fn functions(folder: &Path, headers: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for header in headers {
        all.extend(declared(&fs::read_to_string(folder.join(header))?));
    }
    Ok(all)
}

/// The names of functions that a header declares and does not define: those before a parenthesis, at the first column's statement.
fn declared(header: &str) -> BTreeSet<String> {
    let lines =
        header.lines().filter(|line| !line.starts_with([' ', '/', '#', '}']) && !line.starts_with("static "));
    lines.filter_map(name).collect()
}

fn name(line: &str) -> Option<String> {
    let (before, _) = line.split_once('(')?;
    let name = before.rsplit([' ', '*']).next()?;
    (name.starts_with("tw_") && !before.contains("typedef")).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_from_all_else() {
        let header = "#define TW_X(a) a\ntypedef void (*tw_task)(void *);\ntw_status tw_a(int x,\n    tw_b(int));\n\
            const char *tw_c(void);\nstatic inline int tw_d(void) {\n  return tw_e(1);\n}\n/* tw_f(x) */\n";
        let found: Vec<String> = declared(header).into_iter().collect();
        assert_eq!(found, ["tw_a", "tw_c"]);
    }
}
