//! `cargo xtask tidy`: the rules of the source tree that rustc and clippy do not know.
//!
//! Each family of rules is a pure function from text to complaints, so that its tests need no tree.

mod circles;
mod dependencies;
mod docs;
mod layers;
mod recipes;
mod rust_versions;
mod sources;

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::project::Verdict;
use crate::{cargo, project};

/// The task.
pub(crate) fn run() -> Verdict {
    let files = tracked_files()?;
    let metadata = metadata()?;
    let packages = layers::packages(&metadata)?;
    let mut complaints = Vec::new();
    let mut sources = Vec::new();
    for file in &files {
        let name = file.to_string_lossy();
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if !matches!(extension, "rs" | "md" | "py" | "toml" | "yml" | "sh") {
            continue;
        }
        let text = std::fs::read_to_string(project::path(file)).with_context(|| name.to_string())?;
        complaints.extend(sources::check(&name, extension, &text));
        if extension == "md" {
            let exists = |path: &Path| project::path(path).exists();
            let is_package = |package: &str| packages.iter().any(|known| known.name == package);
            complaints.extend(docs::check(file, &text, &exists, &is_package));
            if name.starts_with("docs/adding-") {
                complaints.extend(recipes::check_page(&name, &text, &exists));
            }
        }
        if extension == "rs" {
            sources.push((name.into_owned(), text));
        }
    }
    let declared = dependencies::declared(&metadata, &project::root().to_string_lossy())?;
    complaints.extend(dependencies::check(&declared, &sources));
    let read = |path: &str| std::fs::read_to_string(project::path(path)).with_context(|| path.to_string());
    complaints.extend(recipes::check_operators(
        &read(recipes::OPERATOR_RECIPE)?,
        &read(recipes::OPERATORS)?,
        &sources,
    ));
    let architecture = std::fs::read_to_string(project::path("docs/architecture.md"))?;
    complaints.extend(circles::check(&sources, &architecture));
    let workspace = std::fs::read_to_string(project::path("Cargo.toml"))?;
    complaints.extend(dependencies::check_offered(&workspace, &declared));
    complaints.extend(layers::check(&packages));
    complaints.extend(rust_versions::check(&resolved_metadata()?)?);
    complaints.extend(first_commands()?);
    complaints.extend(stages()?);
    for complaint in &complaints {
        println!("{complaint}");
    }
    println!("tidy: {} files, {} complaints", files.len(), complaints.len());
    Ok(complaints.is_empty())
}

/// The workspace as cargo sees it.
fn metadata() -> anyhow::Result<String> {
    let mut metadata = cargo::plain("metadata");
    metadata.args(["--no-deps", "--format-version", "1", "--offline"]);
    project::output_of(&mut metadata).context("cargo metadata failed")
}

/// The workspace with all that it depends on for this machine; fetches descriptions of packages that are not there yet.
fn resolved_metadata() -> anyhow::Result<String> {
    let rustc = project::output_of(project::command("rustc").arg("-vV")).context("rustc tells no version")?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc tells no host")?;
    let mut metadata = cargo::plain("metadata");
    metadata.args(["--locked", "--format-version", "1", "--filter-platform", host]);
    project::output_of(&mut metadata).context("cargo metadata failed")
}

/// Files under version control, and new ones that git does not ignore.
fn tracked_files() -> anyhow::Result<Vec<PathBuf>> {
    let mut list = project::command("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"]);
    let names = project::output_of(&mut list).context("git does not list the files of the tree")?;
    let files = names.lines().map(PathBuf::from);
    // A file that is deleted but not yet committed is still listed.
    Ok(files.filter(|file| project::path(file).is_file()).collect())
}

/// The README's first two commands are the whole set-up; the continuous build runs the second.
fn first_commands() -> anyhow::Result<Vec<String>> {
    let readme = std::fs::read_to_string(project::path("README.md"))?;
    let build = std::fs::read_to_string(project::path(".ci/run"))?;
    Ok(docs::check_first_commands(&readme, &build))
}

/// The order of stages is visible in two places, the driver and the architecture document.
fn stages() -> anyhow::Result<Vec<String>> {
    let read = |path: &str| std::fs::read_to_string(project::path(path)).with_context(|| path.to_string());
    Ok(docs::check_stages(&read("crates/driver/src/compile.rs")?, &read("docs/architecture.md")?))
}
