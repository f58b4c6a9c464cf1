//! Dependencies that are declared are used: each makes builds longer and says something of the design.

use std::collections::BTreeSet;

use anyhow::Context;

use super::sources::contains_word;

/// A package with the names by which its code calls what it depends on.
pub(super) struct Declared {
    /// Its name.
    pub(super) name: String,
    /// Its folder, relative to the root.
    pub(super) folder: String,
    /// Declared names, with `_` for `-`.
    pub(super) dependencies: BTreeSet<String>,
}

/// What the packages of `cargo metadata` declare.
pub(super) fn declared(metadata: &str, root: &str) -> anyhow::Result<Vec<Declared>> {
    let json: serde_json::Value = serde_json::from_str(metadata)?;
    let listed = json.get("packages").and_then(|packages| packages.as_array());
    let text = |value: &serde_json::Value, key: &str| Some(value.get(key)?.as_str()?.to_string());
    let packages = listed.context("cargo metadata lists no packages")?.iter().map(|package| {
        let manifest = text(package, "manifest_path")?;
        let folder = manifest.strip_suffix("Cargo.toml")?.strip_prefix(root)?.trim_matches('/').to_string();
        let called = |dependency: &serde_json::Value| {
            text(dependency, "rename").or_else(|| text(dependency, "name")).map(|name| name.replace('-', "_"))
        };
        let dependencies =
            package.get("dependencies")?.as_array()?.iter().map(called).collect::<Option<_>>()?;
        Some(Declared { name: text(package, "name")?, folder, dependencies })
    });
    packages.collect::<Option<_>>().context("cargo metadata has an unknown form")
}

/// Dependencies that no source file of their package names; `files` are paths and texts of all Rust sources.
pub(super) fn check(packages: &[Declared], files: &[(String, String)]) -> Vec<String> {
    // A package may lie in the folder of another: the innermost folder counts.
    let home = |file: &str| {
        let holds = |package: &&Declared| file.starts_with(&format!("{}/", package.folder));
        packages.iter().filter(holds).max_by_key(|package| package.folder.len()).map(|package| &package.name)
    };
    let mut complaints = Vec::new();
    for package in packages {
        let mut own: Vec<&str> = files
            .iter()
            .filter(|(file, _)| home(file) == Some(&package.name))
            .map(|(_, text)| text.as_str())
            .collect();
        // A file of no package is part of those whose sources name it (`#[path]`).
        let is_named = |file: &str| {
            file.rsplit('/').next().is_some_and(|name| own.iter().any(|text| text.contains(name)))
        };
        let shared = files.iter().filter(|(file, _)| home(file).is_none() && is_named(file));
        let shared: Vec<&str> = shared.map(|(_, text)| text.as_str()).collect();
        own.extend(shared);
        let unused = package.dependencies.iter().filter(|name| !own.iter().any(|text| names(text, name)));
        complaints.extend(
            unused.map(|name| {
                format!("{}/Cargo.toml: nothing in {} uses {name}", package.folder, package.name)
            }),
        );
    }
    complaints
}

/// Crates that the workspace offers its members and no member declares.
pub(super) fn check_offered(workspace: &str, packages: &[Declared]) -> Vec<String> {
    let lines = workspace.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let offered = lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split_once(" = "));
    let unused = offered.map(|(name, _)| name.trim()).filter(|name| {
        let called = name.replace('-', "_");
        !packages.iter().any(|package| package.dependencies.contains(&called))
    });
    unused.map(|name| format!("Cargo.toml: no package uses {name}")).collect()
}

/// Whether code, comments aside, names a crate.
fn names(text: &str, name: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let path = format!("{name}::");
    let mut named = code.filter(|line| line.contains(name));
    named.any(|line| contains_word(line, &path) || line.trim_start().starts_with(&format!("use {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, dependencies: &[&str]) -> Declared {
        let dependencies = dependencies.iter().map(|name| name.to_string()).collect();
        Declared { name: name.to_string(), folder: folder.to_string(), dependencies }
    }

    fn check_texts(packages: &[Declared], files: &[(&str, &str)], expect: &[&str]) {
        let files: Vec<_> = files.iter().map(|(file, text)| (file.to_string(), text.to_string())).collect();
        assert_eq!(check(packages, &files), expect);
    }

    #[test]
    fn what_nothing_names_is_told() {
        let package = || [package("a", "crates/a", &["petgraph", "serde"])];
        let used = "use serde::Serialize;\nfn f() { petgraph::algo::toposort(); }\n";
        check_texts(&package(), &[("crates/a/src/lib.rs", used)], &[]);
        let unused = "//! As petgraph::algo does.\n#[derive(serde::Serialize)]\nstruct S;\n";
        let complaint = "crates/a/Cargo.toml: nothing in a uses petgraph";
        check_texts(&package(), &[("crates/a/tests/t.rs", unused)], &[complaint]);
    }

    /// What the package in the folder inside uses is not used by the one around it.
    #[test]
    fn packages_in_packages_are_apart() {
        let packages = [package("runtime", "runtime", &["libc"]), package("host", "runtime/host", &["libc"])];
        let complaint = "runtime/Cargo.toml: nothing in runtime uses libc";
        check_texts(&packages, &[("runtime/host/src/lib.rs", "use libc;\n")], &[complaint]);
    }

    #[test]
    fn a_file_of_no_package_belongs_to_those_that_name_it() {
        let packages = [package("a", "crates/a", &["mimic"]), package("b", "crates/b", &["mimic"])];
        let files = [
            ("crates/a/tests/t.rs", "#[path = \"../../../tools/shared.rs\"]\nmod shared;\n"),
            ("crates/b/tests/t.rs", "mod shared;\n"),
            ("tools/shared.rs", "use mimic::Trial;\n"),
        ];
        check_texts(&packages, &files, &["crates/b/Cargo.toml: nothing in b uses mimic"]);
    }

    #[test]
    fn what_the_workspace_offers_in_vain_is_told() {
        let workspace =
            "[workspace.dependencies]\nserde = \"1\"\nno-use = { version = \"1\" }\n\n[profile.dev]\nx = 1\n";
        let packages = [package("a", "crates/a", &["serde"])];
        assert_eq!(check_offered(workspace, &packages), ["Cargo.toml: no package uses no-use"]);
    }

    #[test]
    fn metadata_gives_folders_and_names() {
        let json = r#"{"packages": [{"name": "a-b", "manifest_path": "/x/crates/a/Cargo.toml", "dependencies":
            [{"name": "no-use", "rename": null}, {"name": "b", "rename": "c"}]}]}"#;
        let packages = declared(json, "/x").unwrap();
        assert_eq!((packages[0].name.as_str(), packages[0].folder.as_str()), ("a-b", "crates/a"));
        assert_eq!(packages[0].dependencies.iter().collect::<Vec<_>>(), ["c", "no_use"]);
    }
}
