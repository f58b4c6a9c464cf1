//! The crate's root has the names that `docs/library.md` lists, and no others.

use std::collections::BTreeSet;
use std::path::Path;

use syn::{Item, UseTree, Visibility};

/// What all that is not stable is under.
const INTERNALS: &str = "internals";

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names that a `use` makes.
fn names(tree: &UseTree, of: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => names(&path.tree, of),
        UseTree::Name(name) => drop(of.insert(name.ident.to_string())),
        UseTree::Rename(rename) => drop(of.insert(rename.rename.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, of)),
        UseTree::Glob(_) => panic!("a glob does not say what it makes stable"),
    }
}

/// The public names of the root.
fn of_crate() -> BTreeSet<String> {
    let file = syn::parse_file(&read("src/lib.rs")).expect("the crate parses");
    let mut of = BTreeSet::new();
    for item in &file.items {
        match item {
            Item::Use(item) if matches!(item.vis, Visibility::Public(_)) => names(&item.tree, &mut of),
            Item::Use(_) => {}
            _ => panic!("the root re-exports, and defines nothing"),
        }
    }
    of
}

/// The first names of the page's table rows: `` | `NAME` | what it is for | ``.
fn of_page() -> BTreeSet<String> {
    let page = read("../../docs/library.md");
    let mut of = BTreeSet::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, text) = row.split_once("` | ").unwrap_or_else(|| panic!("not a row: {row}"));
        assert!(text.trim_end_matches('|').trim().len() > 10, "nothing is said of {name}");
        assert!(of.insert(name.to_string()), "{name} is there twice");
    }
    of
}

#[test]
fn the_page_lists_the_names_of_the_root() {
    let mut of_crate = of_crate();
    assert!(of_crate.remove(INTERNALS));
    assert!(of_crate.len() > 30, "{of_crate:?}");
    assert_eq!(of_crate, of_page());
}
