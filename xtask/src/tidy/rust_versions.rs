//! The oldest Rust compiler that a package promises is one that all it depends on can be built with.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;
use serde_json::Value;

/// A package of the resolved graph.
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    /// The oldest compiler it says it needs, as `1.85` or `1.85.1`; none said is none asked.
    rust: Option<&'a str>,
}

/// Packages of the workspace that reach, by dependencies other than those of their tests, a package which needs a newer
/// compiler than they promise. `metadata` is what `cargo metadata` prints, with its resolved graph.
pub(super) fn check(metadata: &str) -> anyhow::Result<Vec<String>> {
    let json: Value = serde_json::from_str(metadata)?;
    complaints(&json).context("cargo metadata has an unknown form")
}

fn complaints(json: &Value) -> Option<Vec<String>> {
    let mut packages = BTreeMap::new();
    for package in json.get("packages")?.as_array()? {
        let text = |key: &str| package.get(key)?.as_str();
        let known = Package { name: text("name")?, version: text("version")?, rust: text("rust_version") };
        packages.insert(text("id")?, known);
    }
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in json.get("resolve")?.get("nodes")?.as_array()? {
        let mut targets = Vec::new();
        for dependency in node.get("deps")?.as_array()? {
            // The kind of a plain dependency is null.
            let kinds = dependency.get("dep_kinds")?.as_array()?;
            if kinds.iter().any(|kind| kind.get("kind").is_none_or(Value::is_null)) {
                targets.push(dependency.get("pkg")?.as_str()?);
            }
        }
        edges.insert(node.get("id")?.as_str()?, targets);
    }
    let mut found = Vec::new();
    for member in json.get("workspace_members")?.as_array()? {
        let member = member.as_str()?;
        let own = packages.get(member)?;
        let Some(promised) = own.rust else { continue };
        let (mut seen, mut stack) = (BTreeSet::new(), vec![member]);
        while let Some(id) = stack.pop() {
            if !seen.insert(id) {
                continue;
            }
            let package = packages.get(id)?;
            if let Some(needed) = package.rust.filter(|needed| numbers(needed) > numbers(promised)) {
                found.push(format!(
                    "{} promises Rust {promised}, and {} {} needs {needed}",
                    own.name, package.name, package.version
                ));
            }
            stack.extend(edges.get(id).into_iter().flatten());
        }
    }
    Some(found)
}

/// The numbers of a version, for comparing; a patch that is not said is 0.
fn numbers(version: &str) -> [u64; 3] {
    let mut numbers = [0; 3];
    for (number, text) in numbers.iter_mut().zip(version.split('.')) {
        *number = text.parse().unwrap_or(u64::MAX);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member `a` with a dependency `b` of some kind, which needs another package `c`.
    fn metadata(kind: &str, needed: &str) -> String {
        format!(
            r#"{{"workspace_members": ["a"], "packages": [
                {{"id": "a", "name": "a", "version": "0.1.0", "rust_version": "1.85"}},
                {{"id": "b", "name": "b", "version": "1.0.0", "rust_version": null}},
                {{"id": "c", "name": "c", "version": "2.3.4", "rust_version": "{needed}"}}],
              "resolve": {{"nodes": [
                {{"id": "a", "deps": [{{"pkg": "b", "dep_kinds": [{{"kind": {kind}}}]}}]}},
                {{"id": "b", "deps": [{{"pkg": "c", "dep_kinds": [{{"kind": null}}]}}]}},
                {{"id": "c", "deps": []}}]}}}}"#
        )
    }

    #[test]
    fn what_needs_a_newer_compiler_is_told() {
        assert_eq!(
            check(&metadata("null", "1.85.1")).unwrap(),
            ["a promises Rust 1.85, and c 2.3.4 needs 1.85.1"]
        );
        assert!(check(&metadata("null", "1.85")).unwrap().is_empty());
        assert!(check(&metadata("null", "1.9")).unwrap().is_empty());
    }

    #[test]
    fn what_only_tests_need_may_be_newer() {
        assert!(check(&metadata(r#""dev""#, "1.95")).unwrap().is_empty());
        assert!(check("{}").is_err());
    }
}
