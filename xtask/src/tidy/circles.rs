//! Files of a package do not import one another in a circle: of two files, one can be read without the other.
//!
//! A file imports another if its code, tests aside, names an item that the other defines. What counts:
//!
//! - A name that a module passes on (`pub use`) is an import of the file that defines it. So a parent that only declares
//!   and passes on its children imports none of them; one whose own code calls them does.
//! - An item that a macro of its file makes, and a field or method, is not seen by name. The first counts as its file's where
//!   a path leads there; methods do not count, so an `impl` may be spread over files.
//! - A `pub(in ..)` is no import, nor is a link in a comment.
//!
//! Circles are the strongly connected components of that graph. One that has to be is named in docs/architecture.md, under
//! [`SECTION`], as an item that lists its files and says why; an entry without its circle is stale.

mod imports;

use std::collections::BTreeMap;

use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;

use imports::{Crate, Reference};

/// Where circles are named that have to be.
const SECTION: &str = "## Import circles";

/// The circles of all packages, as complaints; `files` are paths and texts of all Rust sources, `architecture` is the text
/// of the document that names those allowed.
pub(super) fn check(files: &[(String, String)], architecture: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut found = Vec::new();
    for (folder, sources) in packages(files) {
        match Crate::parse(&folder, &sources) {
            Ok(package) => found.extend(circles(&package.references())),
            Err((file, error)) => complaints.push(format!("{file}: does not parse: {error}")),
        }
    }
    let mut allowed = allowed(architecture);
    for circle in found {
        let is_it = |files: &Vec<String>| *files == circle.files;
        match allowed.iter().position(is_it) {
            Some(at) => drop(allowed.swap_remove(at)),
            None => complaints.push(circle.complaint()),
        }
    }
    for files in allowed {
        let files = files.join(", ");
        complaints.push(format!("docs/architecture.md: {files} do not import one another in a circle"));
    }
    complaints
}

/// The sources below each folder `src`, by its path.
fn packages(files: &[(String, String)]) -> BTreeMap<String, Vec<(&str, &str)>> {
    let mut packages: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
    for (file, text) in files {
        if let Some((folder, _)) = file.split_once("/src/") {
            packages.entry(format!("{folder}/src")).or_default().push((file, text));
        }
    }
    packages
}

/// Files that import one another in a circle.
struct Circle {
    /// Sorted.
    files: Vec<String>,
    /// The imports among them: file, imported file, one of the names.
    imports: Vec<(String, String, String)>,
}

impl Circle {
    fn complaint(&self) -> String {
        let imports =
            self.imports.iter().map(|(file, of, name)| format!("\n    {file} names {name} of {of}"));
        let imports = imports.collect::<String>();
        format!("{}: import one another in a circle:{imports}", self.files.join(", "))
    }
}

fn circles(references: &[Reference<'_>]) -> Vec<Circle> {
    let mut graph = DiGraphMap::<&str, &str>::new();
    for reference in references.iter().filter(|reference| reference.from != reference.to) {
        if !graph.contains_edge(reference.from, reference.to) {
            graph.add_edge(reference.from, reference.to, &reference.name);
        }
    }
    let components = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
    let circles = components.map(|mut files| {
        files.sort_unstable();
        let inside = graph.all_edges().filter(|(from, to, _)| files.contains(from) && files.contains(to));
        let mut imports: Vec<_> =
            inside.map(|(from, to, name)| (from.to_string(), to.to_string(), name.to_string())).collect();
        imports.sort_unstable();
        Circle { files: files.into_iter().map(String::from).collect(), imports }
    });
    let mut circles: Vec<Circle> = circles.collect();
    circles.sort_by(|a, b| a.files.cmp(&b.files));
    circles
}

/// The circles that the document names: the paths among the code spans of each item before its colon, sorted.
fn allowed(architecture: &str) -> Vec<Vec<String>> {
    let section = architecture.lines().skip_while(|line| *line != SECTION).skip(1);
    let section: Vec<&str> = section.take_while(|line| !line.starts_with("## ")).collect();
    let section = section.join("\n");
    let items = format!("\n{section}");
    let entries = items.split("\n- ").skip(1).map(|item| {
        let named = item.split_once(": ").map_or(item, |(named, _)| named);
        let mut files: Vec<String> = named.split('`').skip(1).step_by(2).map(String::from).collect();
        files.sort_unstable();
        files
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complaints about one package of these files, with circles named in the document.
    fn complaints(files: &[(&str, &str)], named: &str) -> Vec<String> {
        let files: Vec<_> =
            files.iter().map(|(file, text)| (format!("a/src/{file}"), text.to_string())).collect();
        check(&files, &format!("# A\n\n{SECTION}\n\nText.\n\n{named}\n## More\n\n- `b`: no circle\n"))
    }

    fn is_free(files: &[(&str, &str)]) {
        assert_eq!(complaints(files, ""), [""; 0]);
    }

    fn is_circle(files: &[(&str, &str)], expect: &str) {
        let found = complaints(files, "");
        let [complaint] = &found[..] else { panic!("{found:?}") };
        assert!(complaint.starts_with(&format!("{expect}: import")), "{complaint}");
    }

    const ROOT: &str = "mod x; mod y;";

    #[test]
    fn files_that_import_one_another_are_a_circle() {
        is_free(&[("lib.rs", ROOT), ("x.rs", "use crate::y::f;"), ("y.rs", "pub fn f() {}")]);
        let x = ("x.rs", "use crate::y::f; pub struct S;");
        is_circle(&[("lib.rs", ROOT), x, ("y.rs", "pub fn f(s: super::x::S) {}")], "a/src/x.rs, a/src/y.rs");
        is_circle(
            &[("lib.rs", ROOT), x, ("y.rs", "use super::x; pub fn f(s: x::S) {}")],
            "a/src/x.rs, a/src/y.rs",
        );
    }

    #[test]
    fn macros_are_looked_into() {
        let x = ("x.rs", "use crate::y::f; pub struct S;");
        is_circle(
            &[("lib.rs", ROOT), x, ("y.rs", "pub fn f() { assert!(g(crate::x::S)) }")],
            "a/src/x.rs, a/src/y.rs",
        );
    }

    #[test]
    fn tests_may_import_anything() {
        let x = ("x.rs", "use crate::y::f; pub struct S;");
        is_free(&[
            ("lib.rs", ROOT),
            x,
            ("y.rs", "pub fn f() {} #[cfg(test)] mod tests { use crate::x::S; }"),
        ]);
        is_free(&[
            ("lib.rs", ROOT),
            x,
            ("y.rs", "pub fn f() {} #[cfg(test)] mod tests;"),
            ("y/tests.rs", "use crate::x::S; use super::f;"),
        ]);
    }

    #[test]
    fn a_parent_passes_names_on() {
        let children = [("x.rs", "pub struct X;"), ("y.rs", "use super::X; pub fn y(x: X) {}")];
        let with = |root: &'static str| [("lib.rs", root), children[0], children[1]];
        is_free(&with("mod x; mod y; pub use x::X; pub use y::y;"));
        // The parent has code of its own that uses its child, but nothing that the child uses.
        is_free(&with("mod x; mod y; pub use x::X; pub fn f() { y::y(X) }"));
    }

    #[test]
    fn a_parent_and_its_child_may_be_a_circle() {
        let x = ("x.rs", "use super::S; pub fn x(s: S) {}");
        is_free(&[("lib.rs", "mod x; pub struct S;"), x]);
        is_free(&[("lib.rs", "mod x; pub use x::x; pub struct S;"), x]);
        is_circle(&[("lib.rs", "mod x; pub struct S; fn f() { x::x(S) }"), x], "a/src/lib.rs, a/src/x.rs");
        is_circle(
            &[("lib.rs", "mod x; pub use x::x; pub struct S; fn f() { x(S) }"), x],
            "a/src/lib.rs, a/src/x.rs",
        );
    }

    #[test]
    fn whole_modules_and_families_are_imported_by_what_is_named_of_them() {
        let files = |parent| {
            [
                ("lib.rs", "mod a; mod b;"),
                ("a/mod.rs", parent),
                ("a/one.rs", "pub struct One;"),
                ("a/two.rs", "use crate::b::B; pub fn two(b: B) {}"),
                ("b.rs", "use crate::a; pub struct B(a::One);"),
            ]
        };
        is_free(&files("mod one; mod two; pub use one::*; pub use two::two;"));
        is_circle(
            &files("mod one; mod two; pub use one::*; pub fn f() { two::two() }").map(|(file, text)| {
                (
                    file,
                    if file == "b.rs" { "use crate::a; pub fn g() { a::f() } pub struct B;" } else { text },
                )
            }),
            "a/src/a/mod.rs, a/src/a/two.rs, a/src/b.rs",
        );
    }

    #[test]
    fn the_document_names_circles_and_only_those() {
        let files = [
            ("lib.rs", ROOT),
            ("x.rs", "use crate::y::f; pub struct S;"),
            ("y.rs", "pub fn f(s: super::x::S) {}"),
        ];
        let named = "- `a/src/y.rs`, `a/src/x.rs`: they are\n  `one` type.\n";
        assert_eq!(complaints(&files, named), [""; 0]);
        let stale = "docs/architecture.md: a/src/x.rs, a/src/y.rs do not import one another in a circle";
        assert_eq!(complaints(&files[..1], named), [stale]);
    }
}
