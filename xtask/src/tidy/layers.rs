//! Dependencies between packages point one way. This table is the law; a new edge is argued in
//! docs/architecture.md before it is entered here.

use anyhow::Context;

use crate::cargo;

/// Package by package, those of the workspace that it may depend on (tests included).
#[rustfmt::skip]
const ALLOWED: &[(&str, &[&str])] = &[
    ("tilewright-dtype",     &[]),
    ("tilewright-digest",    &[]),
    ("tilewright-proto",     &["tilewright-dtype"]),
    ("tilewright-rpc",       &[]),
    ("tilewright-runtime",   &["tilewright-dtype"]),
    ("tilewright-embed",     &["tilewright-runtime"]),
    ("tilewright-host",      &["tilewright-dtype", "tilewright-runtime"]),
    ("tilewright-runtime-cuda", &["tilewright-dtype", "tilewright-runtime"]),
    ("tilewright-runtime-opencl", &["tilewright-runtime"]),
    ("tilewright-run",       &["tilewright-dtype", "tilewright-host", "tilewright-proto", "tilewright-rpc", "tilewright-runtime"]),
    ("tilewright-capi",      &["tilewright-dtype", "tilewright-run", "tilewright-runtime"]),
    ("tilewright-image",     &["tilewright-dtype", "tilewright-runtime"]),
    ("tilewright-machine",   &["tilewright-dtype"]),
    ("tilewright-graph",     &["tilewright-digest", "tilewright-dtype"]),
    ("tilewright-te",        &["tilewright-digest", "tilewright-dtype"]),
    ("tilewright-onnx",      &["tilewright-graph", "tilewright-proto"]),
    ("tilewright-autosched", &["tilewright-digest", "tilewright-dtype", "tilewright-machine", "tilewright-te"]),
    ("tilewright-tune",      &["tilewright-autosched", "tilewright-digest", "tilewright-dtype", "tilewright-machine",
                               "tilewright-run", "tilewright-te"]),
    ("tilewright-lower",     &["tilewright-digest", "tilewright-dtype", "tilewright-graph", "tilewright-host",
                               "tilewright-runtime", "tilewright-te"]),
    ("tilewright-cranelift", &["tilewright-dtype", "tilewright-image", "tilewright-machine", "tilewright-runtime",
                               "tilewright-te"]),
    ("tilewright-llvm",      &["tilewright-dtype", "tilewright-image", "tilewright-machine", "tilewright-runtime",
                               "tilewright-te"]),
    ("tilewright-c",         &["tilewright-dtype", "tilewright-machine", "tilewright-te"]),
    ("tilewright-suite-runner", &[]),
    ("tilewright-target-suite", &["tilewright-autosched", "tilewright-c", "tilewright-cranelift", "tilewright-dtype", "tilewright-image", "tilewright-llvm",
                               "tilewright-machine", "tilewright-suite-runner", "tilewright-te"]),
    ("tilewright-cuda",      &["tilewright-llvm", "tilewright-machine", "tilewright-target-suite", "tilewright-te"]),
    ("tilewright-opencl",    &["tilewright-dtype", "tilewright-runtime", "tilewright-runtime-opencl", "tilewright-target-suite", "tilewright-te"]),
    ("tilewright-driver",    &["tilewright-autosched", "tilewright-c", "tilewright-cranelift", "tilewright-cuda", "tilewright-digest", "tilewright-dtype",
                               "tilewright-graph", "tilewright-opencl", "tilewright-runtime-cuda", "tilewright-runtime-opencl",
                               "tilewright-host", "tilewright-image", "tilewright-llvm", "tilewright-lower", "tilewright-machine",
                               "tilewright-onnx", "tilewright-run", "tilewright-runtime", "tilewright-te", "tilewright-tune"]),
    ("tilewright",           &["tilewright-driver", "tilewright-run"]),
    ("tilewright-capi-compiler", &["tilewright-capi", "tilewright-driver"]),
    ("tilewright-cli",       &["tilewright-driver", "tilewright-rpc", "tilewright-run"]),
    ("tilewright-kernel-suite", &["tilewright-driver", "tilewright-target-suite", "tilewright-te"]),
    ("tilewright-benches",   &["tilewright", "tilewright-driver"]),
    ("tilewright-nostd-test", &["tilewright-dtype", "tilewright-runtime"]),
    ("xtask",                &[]),
];

/// A package of the workspace.
#[derive(Default)]
pub(super) struct Package {
    /// Its name.
    pub(super) name: String,
    /// The packages of the workspace that it depends on.
    uses: Vec<String>,
    /// Whether it has a feature `llvm`.
    has_llvm: bool,
}

/// The packages as `cargo metadata` lists them.
pub(super) fn packages(metadata: &str) -> anyhow::Result<Vec<Package>> {
    let json: serde_json::Value = serde_json::from_str(metadata)?;
    let name_of = |value: &serde_json::Value| Some(value.get("name")?.as_str()?.to_string());
    let listed = json.get("packages").and_then(|packages| packages.as_array());
    let packages = listed.context("cargo metadata lists no packages")?.iter().map(|package| {
        // A dependency within the workspace is one by path.
        let inside =
            |dependency: &&serde_json::Value| dependency.get("path").is_some_and(|path| path.is_string());
        let dependencies = package.get("dependencies")?.as_array()?;
        let name = name_of(package)?;
        // For its tests a package may depend on itself, with other features.
        let edges = dependencies.iter().filter(inside);
        let uses = edges.clone().map(name_of).collect::<Option<Vec<_>>>()?;
        let features = package.get("features")?;
        Some(Package {
            uses: uses.into_iter().filter(|used| *used != name).collect(),
            has_llvm: features.get("llvm").is_some(),
            name,
        })
    });
    packages.collect::<Option<_>>().context("cargo metadata has an unknown form")
}

/// Packages and edges that the table does not know, and features that tasks do not know.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let mut complaints = Vec::new();
    for Package { name, uses, has_llvm } in packages {
        if *has_llvm != cargo::LLVM_PACKAGES.contains(&name.as_str()) {
            let (is, should) = if *has_llvm { ("a", "missing") } else { ("no", "listed") };
            complaints.push(format!("xtask/src/cargo.rs: {name} has {is} feature llvm, but is {should}"));
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(package, _)| package == name) else {
            complaints.push(format!("xtask/src/tidy/layers.rs: {name} has no place among the layers"));
            continue;
        };
        for used in uses.iter().filter(|used| !allowed.contains(&used.as_str())) {
            complaints.push(format!("{name} must not depend on {used}: see xtask/src/tidy/layers.rs"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[&str], has_llvm: bool) -> Package {
        let uses = uses.iter().map(|name| name.to_string()).collect();
        Package { name: name.to_string(), uses, has_llvm }
    }

    #[test]
    fn tasks_know_which_packages_have_llvm() {
        let complaint = |text: &str| vec![format!("xtask/src/cargo.rs: {text}")];
        let has = |name, has_llvm| check(&[package(name, &[], has_llvm)]);
        assert_eq!(
            has("tilewright-llvm", false),
            complaint("tilewright-llvm has no feature llvm, but is listed")
        );
        assert_eq!(has("tilewright-te", true), complaint("tilewright-te has a feature llvm, but is missing"));
        assert!(has("tilewright-llvm", true).is_empty());
    }

    fn check_edges(packages: &[(&str, &[&str])], expect: &[&str]) {
        let packages: Vec<_> = packages.iter().map(|(name, uses)| package(name, uses, false)).collect();
        assert_eq!(check(&packages), expect);
    }

    #[test]
    fn edges_outside_the_table_are_refused() {
        check_edges(&[("tilewright-lower", &["tilewright-graph", "tilewright-te"])], &[]);
        let complaint = "tilewright-graph must not depend on tilewright-te: see xtask/src/tidy/layers.rs";
        check_edges(&[("tilewright-graph", &["tilewright-te"])], &[complaint]);
        let complaint = "xtask/src/tidy/layers.rs: tilewright-magic has no place among the layers";
        check_edges(&[("tilewright-magic", &[])], &[complaint]);
    }

    /// The table itself points one way: a package comes after all that it may use, or is used by nobody.
    #[test]
    fn the_table_has_no_cycle() {
        for (i, (name, uses)) in ALLOWED.iter().enumerate() {
            for used in *uses {
                let place = ALLOWED.iter().position(|(package, _)| package == used);
                assert!(
                    place.is_some_and(|place| place < i),
                    "{name} may use {used}, which comes later or not at all"
                );
            }
        }
    }

    #[test]
    fn metadata_gives_names_and_inner_edges() {
        let json = r#"{"packages": [{"name": "a", "dependencies": [{"name": "serde", "path": null}, {"name": "b",
            "path": "/x/b"}, {"name": "a", "path": "/x/a", "kind": "dev"}],
            "features": {"llvm": []}}, {"name": "b", "dependencies": [], "features": {}}]}"#;
        let packages = packages(json).unwrap();
        assert_eq!((packages[0].name.as_str(), &packages[0].uses[..]), ("a", &["b".to_string()][..]));
        assert_eq!(packages.iter().map(|package| package.has_llvm).collect::<Vec<_>>(), [true, false]);
    }
}
