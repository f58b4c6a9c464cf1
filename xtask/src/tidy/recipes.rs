//! The recipes of `docs/adding-*.md` say how many files something new touches, and the code is so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where the table of operators is, and the page that says which files a new one touches.
pub(super) const OPERATORS: &str = "crates/graph/src/op/mod.rs";
pub(super) const OPERATOR_RECIPE: &str = "docs/adding-an-operator.md";

/// Numbers as the pages write them.
const NUMBERS: [&str; 11] =
    ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/// A table of files with the number of them that the text before it gives.
struct Recipe<'a> {
    line: usize,
    stated: Option<usize>,
    paths: Vec<&'a str>,
}

/// What is wrong with a page: a table of another number of files than its text says, or of files that could not be.
pub(super) fn check_page(name: &str, text: &str, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let recipes = recipes(text);
    let mut complaints = Vec::new();
    if recipes.is_empty() {
        complaints.push(format!("{name}: has no table of files"));
    }
    for Recipe { line, stated, paths } in recipes {
        if stated != Some(paths.len()) {
            let said = stated.map_or("no number of files".to_string(), |n| format!("{n} files"));
            complaints
                .push(format!("{name}:{line}: the text says {said}, and the table lists {}", paths.len()));
        }
        let missing = paths.iter().filter(|path| !exists(&fixed_part(path)));
        complaints.extend(missing.map(|path| format!("{name}:{line}: there is no place for {path}")));
    }
    complaints
}

/// Files that name nearly all operators, so that each new one must be added there, and that the recipe does not list.
pub(super) fn check_operators(recipe: &str, table: &str, sources: &[(String, String)]) -> Vec<String> {
    let listed: Vec<&str> = recipes(recipe).into_iter().flat_map(|recipe| recipe.paths).collect();
    let operators = operators(table);
    if operators.is_empty() {
        return vec![format!("{OPERATORS}: the table of operators has an unknown form")];
    }
    let is_listed = |file: &str| listed.iter().any(|path| Path::new(file).starts_with(fixed_part(path)));
    let names_most = |text: &str| {
        let used = named_operators(text);
        operators.iter().filter(|operator| used.contains(*operator)).count() * 5 > operators.len() * 4
    };
    let unlisted = sources.iter().filter(|(file, text)| {
        file.contains("/src/") && file != OPERATORS && !is_listed(file) && names_most(text)
    });
    unlisted
        .map(|(file, _)| {
            format!("{file}: every operator must be added here, and {OPERATOR_RECIPE} does not say so")
        })
        .collect()
}

/// The tables of files of a page.
fn recipes(text: &str) -> Vec<Recipe<'_>> {
    let (mut found, mut stated, mut in_table) = (Vec::<Recipe<'_>>::new(), None, false);
    for (line, number) in text.lines().zip(1..) {
        if line.starts_with("| File |") {
            found.push(Recipe { line: number, stated: stated.take(), paths: Vec::new() });
            in_table = true;
        } else if !line.starts_with('|') {
            in_table = false;
            stated = stated_number(line).or(stated);
        } else if in_table
            && let Some(path) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next())
            && let Some(recipe) = found.last_mut()
        {
            recipe.paths.push(path);
        }
    }
    found
}

/// `4` of `Four files`.
fn stated_number(line: &str) -> Option<usize> {
    let words: Vec<String> = line
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphabetic()).to_lowercase())
        .collect();
    words.windows(2).find_map(|pair| {
        let is_files = pair[1] == "files" || pair[1] == "file";
        NUMBERS.iter().position(|number| is_files && *number == pair[0])
    })
}

/// A path up to the first part that stands for something to fill in.
fn fixed_part(path: &str) -> PathBuf {
    let is_fixed = |part: &&str| !part.chars().any(|c| c.is_ascii_uppercase());
    path.split('/').take_while(is_fixed).filter(|part| !part.is_empty()).collect()
}

/// The operators of the table: a row is `Name(Attributes): .. => ..;`.
fn operators(table: &str) -> BTreeSet<String> {
    let rows = table.lines().skip_while(|line| *line != "operators! {").map(str::trim);
    let rows = rows.filter(|row| row.starts_with(|c: char| c.is_ascii_uppercase()) && row.contains("=>"));
    rows.map(name_at_start).collect()
}

/// The operators that a text names as `Op::Name`.
fn named_operators(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names = code.flat_map(|line| line.split("Op::").skip(1));
    names.map(name_at_start).collect()
}

fn name_at_start(text: &str) -> String {
    text.chars().take_while(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Adding\n\nTwo files: see.\n\n| File | What |\n|---|---|\n| `crates/a/src/NAME.rs` | x |\n| `crates/b/src/lib.rs` | y |\n";

    #[test]
    fn a_table_has_as_many_files_as_the_text_says() {
        let exists = |path: &Path| path.starts_with("crates/a") || path.starts_with("crates/b");
        assert!(check_page("docs/p.md", PAGE, &exists).is_empty());
        let three = PAGE.replace("Two files", "Up to three files");
        assert_eq!(
            check_page("docs/p.md", &three, &exists),
            ["docs/p.md:5: the text says 3 files, and the table lists 2"]
        );
        let nothing = |_: &Path| false;
        assert_eq!(check_page("docs/p.md", PAGE, &nothing).len(), 2);
        assert_eq!(check_page("docs/p.md", "# Adding\n", &exists), ["docs/p.md: has no table of files"]);
    }

    #[test]
    fn a_file_of_all_operators_is_in_the_recipe() {
        let table = "operators! {\n    /// The sum.\n    Add: 2..=2 => 1..=1;\n    Conv(ConvAttrs): 2..=3 => 1..=1;\n}\n";
        let all = "match op { Op::Add => 1, Op::Conv(_) => 2 }".to_string();
        let sources =
            [("crates/b/src/lib.rs".to_string(), all.clone()), ("crates/c/src/x.rs".to_string(), all)];
        let complaints = check_operators(PAGE, table, &sources);
        assert_eq!(complaints.len(), 1);
        assert!(complaints[0].starts_with("crates/c/src/x.rs: every operator must be added here"));
        let few = [("crates/c/src/x.rs".to_string(), "Op::Add".to_string())];
        assert!(check_operators(PAGE, table, &few).is_empty());
    }
}
