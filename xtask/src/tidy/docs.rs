//! Rules of the documents: they name only paths and packages that exist, and the README opens with the two
//! commands that are tested.

use std::path::{Component, Path, PathBuf};

/// The folders by which a code span is known to be a path of the repository.
const TOP_FOLDERS: [&str; 9] =
    [".ci/", "benches/", "crates/", "docs/", "examples/", "runtime/", "targets/", "tools/", "xtask/"];

/// The first two commands of the README.
const FIRST_COMMANDS: [&str; 2] = ["cargo xtask digits", "cargo xtask test"];

/// What is wrong with one document: paths and links that lead nowhere, packages that do not exist.
pub(super) fn check(
    file: &Path,
    text: &str,
    exists: &dyn Fn(&Path) -> bool,
    is_package: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut fenced = false;
    for (line, number) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let place = format!("{}:{number}", file.display());
        let spans = if fenced { Vec::new() } else { code_spans(line) };
        for span in spans {
            if is_path(span) && !exists(Path::new(span.trim_end_matches('/'))) {
                complaints.push(format!("{place}: no path {span}"));
            }
            if span.starts_with("tilewright-") && is_package_name(span) && !is_package(span) {
                complaints.push(format!("{place}: no package {span}"));
            }
        }
        for link in if fenced { Vec::new() } else { links(line) } {
            if !exists(&resolve(file, link)) {
                complaints.push(format!("{place}: the link to {link} leads nowhere"));
            }
        }
    }
    complaints
}

/// The README's first two commands must be those that are tested, and the continuous build must run the second.
pub(super) fn check_first_commands(readme: &str, continuous_build: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let first: Vec<&str> = commands(readme).take(FIRST_COMMANDS.len()).collect();
    if first != FIRST_COMMANDS {
        complaints.push(format!("README.md: the first commands are {first:?}, not {FIRST_COMMANDS:?}"));
    }
    if !continuous_build.lines().any(|line| line.trim_start_matches("exec ").trim() == FIRST_COMMANDS[1]) {
        complaints.push(format!(".ci/run: does not run {}", FIRST_COMMANDS[1]));
    }
    complaints
}

/// The stages of the driver and of the architecture document, which must be the same in the same order.
pub(super) fn check_stages(driver: &str, architecture: &str) -> Vec<String> {
    let timed = driver.split("timed(\"").skip(1).filter_map(|rest| rest.split('"').next());
    let listed = architecture.lines().skip_while(|line| *line != "## Stages").skip(1);
    let listed = listed.take_while(|line| !line.starts_with("## "));
    let listed = listed.filter_map(|line| line.split_once(". `")?.1.split('`').next());
    let (timed, listed): (Vec<_>, Vec<_>) = (timed.collect(), listed.collect());
    if timed == listed {
        return Vec::new();
    }
    vec![format!("docs/architecture.md: lists the stages {listed:?}, the driver runs {timed:?}")]
}

/// Command lines in fenced blocks and in indented ones, without their comments.
fn commands(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter_map(move |line| {
        if line.starts_with("```") {
            fenced = !fenced;
            return None;
        }
        let command = if fenced { line } else { line.strip_prefix("    ")? };
        let command = command.split(" #").next()?.trim();
        (!command.is_empty() && !command.starts_with('#')).then_some(command)
    })
}

/// The texts between single back quotes.
fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Whether a code span names one path of the repository, rather than a pattern or a command.
fn is_path(span: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c);
    // Upper case stands for something to fill in, except in the names of well-known files.
    let rest = span.replace("README.md", "").replace("Cargo.toml", "");
    TOP_FOLDERS.iter().any(|folder| span.starts_with(folder)) && rest.chars().all(plain)
}

fn is_package_name(span: &str) -> bool {
    span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Targets of links within the repository.
fn links(line: &str) -> Vec<&str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let inside = targets.map(|target| target.split('#').next().unwrap_or_default());
    inside.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

/// A link's target relative to the repository's root.
fn resolve(file: &Path, link: &str) -> PathBuf {
    let mut path = file.parent().unwrap_or(Path::new("")).to_path_buf();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_doc(text: &str, expect: &[&str]) {
        let exists = |path: &Path| ["crates/graph", "docs/architecture.md"].map(Path::new).contains(&path);
        let is_package = |name: &str| name == "tilewright-graph";
        assert_eq!(check(Path::new("docs/page.md"), text, &exists, &is_package), expect);
    }

    #[test]
    fn paths_and_packages_must_exist() {
        check_doc("The crate `crates/graph/` is `tilewright-graph`.\n", &[]);
        check_doc("\nSee `crates/grapf`.\n", &["docs/page.md:2: no path crates/grapf"]);
        check_doc("Use `tilewright-grapf`.\n", &["docs/page.md:1: no package tilewright-grapf"]);
    }

    #[test]
    fn patterns_commands_and_code_blocks_are_no_paths() {
        check_doc("`crates/lower/ops/FAMILY.rs`, `crates/*`, `crates/graph -v`\n", &[]);
        check_doc("```\n`crates/none` [x](none.md)\n```\n", &[]);
    }

    #[test]
    fn links_are_relative_to_the_document() {
        check_doc(
            "[map](architecture.md#code-map) [crate](../crates/graph) [web](https://example.org)\n",
            &[],
        );
        check_doc(
            "[map](docs/architecture.md)\n",
            &["docs/page.md:1: the link to docs/architecture.md leads nowhere"],
        );
    }

    #[test]
    fn the_driver_and_the_document_agree_on_the_stages() {
        let driver = r#"timed("load", o, |_| ..)?; timed("import", o, |_| ..)?;"#;
        let page = |stages: &str| format!("# A\n1. `other`\n\n## Stages\n\n{stages}\n## More\n1. `x`\n");
        assert!(check_stages(driver, &page("1. `load`: reads.\n2. `import`: makes a `Graph`.\n")).is_empty());
        let expect =
            r#"docs/architecture.md: lists the stages ["import"], the driver runs ["load", "import"]"#;
        assert_eq!(check_stages(driver, &page("1. `import`: makes a graph.\n")), [expect]);
    }

    #[test]
    fn the_readme_opens_with_the_tested_commands() {
        let readme =
            "# T\n\n```sh\n# First:\ncargo xtask digits   # reads a digit\ncargo xtask test\nmore\n```\n";
        assert!(check_first_commands(readme, "exec cargo xtask test\n").is_empty());
        let complaints = check_first_commands("    make\n", "cargo test\n");
        assert_eq!(complaints.len(), 2);
        assert!(
            complaints[0].starts_with("README.md: the first commands are [\"make\"], not"),
            "{complaints:?}"
        );
        assert_eq!(complaints[1], ".ci/run: does not run cargo xtask test");
    }
}
