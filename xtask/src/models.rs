//! `cargo xtask models`: the models that tests and benchmarks run, put into `target/models`.
//!
//! The ten benchmark models are made from their skeletons with seeded weights. The skeletons do not lie in the
//! repository but in a folder beside it; without them the task says so. Models of Python packages that `setup`
//! installs are copied. With `--detectors`, torchvision's detectors are exported as well, into `target/models/detectors`, by a Python
//! environment of their own: PyTorch is large, so nothing else makes it. With `--set wide` so are architectures of other kinds than the
//! ten, into `target/models/wide`. With `--set layers` models of one kind of layer each, into `target/models/layers`.

use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::project::Verdict;
use crate::{project, setup};

/// A model with its trained weights from a Python package.
struct Packaged {
    name: &'static str,
    package: &'static str,
    file: &'static str,
}

const PACKAGED: [Packaged; 1] =
    [Packaged { name: "silero_vad", package: "silero-vad", file: "silero_vad/data/silero_vad.onnx" }];

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Models to make; all if none is named
    names: Vec<String>,
    /// Export torchvision's detectors instead, or those named; installs PyTorch into target/venv-torch
    #[arg(long)]
    detectors: bool,
    /// Make another set instead
    #[arg(long, conflicts_with = "detectors")]
    set: Option<Set>,
}

/// Sets of models besides the ten.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Set {
    /// Architectures of other kinds than the ten benchmark models are, or those named of them, into target/models/wide; installs PyTorch into
    /// target/venv-torch
    Wide,
    /// Attention of some lengths and grouped convolutions, into target/models/layers
    Layers,
}

/// The detectors that tests run.
const DETECTORS: [&str; 4] = ["ssd300", "retinanet", "fcos", "faster_rcnn"];

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    if args.detectors {
        let names = args.names.iter().map(String::as_str);
        let names: Vec<&str> = if args.names.is_empty() { DETECTORS.to_vec() } else { names.collect() };
        let mut export = project::command(setup::ensure_torch_venv()?);
        export.arg(project::path("tools/detectors.py")).arg(project::target_dir().join("models/detectors"));
        project::run(export.args(names))?;
        return Ok(true);
    }
    if let Some(set) = args.set {
        let (python, script, folder) = match set {
            Set::Wide => (setup::ensure_torch_venv()?, "tools/wide.py", "models/wide"),
            Set::Layers => (venv_python()?, "tools/layers.py", "models/layers"),
        };
        let mut make = project::command(python);
        make.arg(project::path(script)).arg(project::target_dir().join(folder));
        project::run(make.args(&args.names))?;
        return Ok(true);
    }
    let is_packaged = |name: &String| PACKAGED.iter().any(|packaged| packaged.name == name);
    let (packaged, made): (Vec<&String>, Vec<&String>) =
        args.names.iter().partition(|name| is_packaged(name));
    let all = args.names.is_empty();
    for model in PACKAGED.iter().filter(|model| all || packaged.iter().any(|name| *name == model.name)) {
        copy(model)?;
    }
    if all || !made.is_empty() {
        materialize(&made)?;
    }
    Ok(true)
}

/// A model among the ten or of a package, which is made where it is not there; else why not.
pub(crate) fn made(name: &str) -> anyhow::Result<PathBuf> {
    let path = project::target_dir().join("models").join(format!("{name}.onnx"));
    if !path.exists() {
        match PACKAGED.iter().find(|packaged| packaged.name == name) {
            Some(packaged) => copy(packaged)?,
            None => materialize(&[&name.to_string()])?,
        }
    }
    Ok(path)
}

/// Copies every packaged model.
pub(crate) fn copy_packaged() -> anyhow::Result<()> {
    PACKAGED.iter().try_for_each(copy)
}

fn copy(model: &Packaged) -> anyhow::Result<()> {
    const LOCATE: &str =
        "import sys, importlib.metadata as m; print(m.distribution(sys.argv[1]).locate_file(sys.argv[2]))";
    let python = venv_python()?;
    let located =
        project::output_of(project::command(python).args(["-c", LOCATE, model.package, model.file]));
    let from = located.with_context(|| {
        format!("no package {} in target/venv; `cargo xtask setup` installs it", model.package)
    })?;
    let folder = project::target_dir().join("models");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let to = folder.join(format!("{}.onnx", model.name));
    let bytes =
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {from} to {}", to.display()))?;
    println!("{}  {:.1} MiB", to.display(), bytes as f64 / (1 << 20) as f64);
    Ok(())
}

fn materialize(names: &[&String]) -> anyhow::Result<()> {
    let script = project::path("../shared/models/materialize.py");
    if !script.exists() {
        bail!("{} is not there: the benchmark models cannot be made on this machine", script.display());
    }
    let out = project::target_dir().join("models");
    project::run(project::command(venv_python()?).arg(script).arg(&out).args(names))
}

fn venv_python() -> anyhow::Result<PathBuf> {
    let python = project::venv_python();
    if !python.exists() {
        bail!("{} is not there; `cargo xtask setup` makes it", python.display());
    }
    Ok(python)
}
