//! The page on the cost model lists every number of a timing, in the words of its documentation. `BLESS=1` writes the list anew.

use std::fmt::Write;

const BEGIN: &str = "<!-- numbers -->\n";
const END: &str = "<!-- end of numbers -->";

/// The structures whose fields are numbers, and what a key of a file begins with for them.
const STRUCTURES: &[(&str, &str)] =
    &[("Numbers", ""), ("Core", "core."), ("Level", "LEVEL."), ("Threads", "threads.")];

/// Fields of a structure with their documentation, as one line each; fields that are structures themselves are left out.
fn fields(source: &str, structure: &str) -> Vec<(String, String)> {
    let start = source.find(&format!("pub struct {structure} {{")).expect("the structure");
    let body = &source[start..][..source[start..].find("\n}").expect("its end")];
    let (mut fields, mut doc) = (Vec::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            write!(doc, "{}{text}", if doc.is_empty() { "" } else { " " }).expect("a string");
        } else if let Some((name, kind)) = line.strip_prefix("pub ").and_then(|line| line.split_once(": ")) {
            let doc = std::mem::take(&mut doc);
            if ["u32,", "f64,", "bool,"].contains(&kind) {
                fields.push((name.to_owned(), doc));
            }
        }
    }
    fields
}

/// Without the links of rustdoc, which mean nothing on a page.
fn plain(doc: &str) -> String {
    let (mut text, mut rest) = (String::new(), doc);
    while let Some((before, link)) = rest.split_once("[`") {
        let (name, after) = link.split_once("`]").expect("the end of a link");
        let after = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').expect("the end of a target").1,
            None => after,
        };
        write!(text, "{before}`{name}`").expect("a string");
        rest = after;
    }
    text + rest
}

fn table() -> String {
    let source = include_str!("../src/timing.rs");
    let mut table = String::from("| Number | What it is |\n|---|---|\n");
    for (structure, prefix) in STRUCTURES {
        let fields = fields(source, structure);
        assert!(!fields.is_empty(), "{structure} has no numbers");
        for (name, doc) in fields {
            assert!(!doc.is_empty(), "{structure}::{name} is not documented");
            writeln!(table, "| `{prefix}{name}` | {} |", plain(&doc)).expect("a string");
        }
    }
    table
}

#[test]
fn the_page_lists_every_number() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cost-model.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the list begins");
    let (listed, after) = rest.split_once(END).expect("where the list ends");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
    } else {
        assert!(listed == table(), "BLESS=1 writes the list of docs/cost-model.md anew");
    }
}
