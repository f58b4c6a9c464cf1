//! `cargo xtask digits`: compiles the example network for this machine and lets it read a handwritten digit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use crate::cargo::Cargo;
use crate::project::Verdict;
use crate::tensor::{self, Elements, Tensor, Value, ValueKind};
use crate::{build, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with an image as input_0.pb: float32 1x1x8x8, ink from 0 to 1
    #[arg(default_value = "examples/digits/images/3")]
    image: PathBuf,
    /// Code generator, if not the build's default
    #[arg(long)]
    codegen: Option<String>,
    /// Another `tilewright` program than the one of this tree
    #[arg(long)]
    program: Option<PathBuf>,
    /// Read all held-out digits instead and hold the accuracy against ONNX Runtime's
    #[arg(long)]
    held_out: bool,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let cargo = Cargo::detect();
    let codegen = args.codegen.as_deref().unwrap_or(cargo.default_codegen());
    let model = Model::compile(build::tilewright_or(args.program.as_deref(), &cargo)?, codegen)?;
    if args.held_out {
        return are_right(&model.run(&project::path(HELD_OUT), 2)?);
    }
    // A path is relative to where the user stands; the default one to the repository.
    let image = if args.image.exists() { args.image.canonicalize()? } else { project::path(&args.image) };
    let pixels = floats(&image.join("input_0.pb"))?;
    let scores = model.run(&image, 1)?;
    print!("{}", picture(&pixels)?);
    let digit = best(row(&scores, 0)?);
    println!("\nThis is a {digit}.");
    Ok(true)
}

/// What the example must show with every code generator: accuracy over the held-out digits as ONNX Runtime
/// reaches it with the same file, the same bytes from a second compilation, and the same bits from any
/// number of threads.
pub(crate) fn check(program: PathBuf, codegen: &str) -> Verdict {
    let model = Model::compile(program.clone(), codegen)?;
    let artifact = std::fs::read(&model.artifact)?;
    let same_bytes = artifact == std::fs::read(Model::compile(program, codegen)?.artifact)?;
    let images = project::path(HELD_OUT);
    let scores = model.run(&images, 1)?;
    let same_bits = scores == model.run(&images, 2)?;
    for (holds, law) in
        [(same_bytes, "compiles to the same bytes"), (same_bits, "gives the same bits on 2 threads")]
    {
        if !holds {
            println!("the example no longer {law}");
        }
    }
    Ok(are_right(&scores)? && same_bytes && same_bits)
}

/// What it must show compiled for another machine, whose programs `runner` runs: the same accuracy, and the same bits from any number of
/// threads.
pub(crate) fn check_on(program: &Path, codegen: &str, machine: &str, runner: &[OsString]) -> Verdict {
    let compiled = Model::compile_for(program, codegen, Some(machine))?;
    let model = Model { runner: runner.to_vec(), ..compiled };
    let images = project::path(HELD_OUT);
    let one = model.run(&images, 1)?;
    let mut same_bits = true;
    for threads in [2, 4] {
        same_bits &= model.run(&images, threads)? == one;
    }
    if !same_bits {
        println!("the example no longer gives the same bits on any number of threads");
    }
    Ok(are_right(&one)? && same_bits)
}

/// The images that training has not seen, what ONNX Runtime makes of them, and the truth.
const HELD_OUT: &str = "examples/digits/held-out";

struct Model {
    /// The words before `run`: a program that runs models, after what runs that where it is for another machine.
    runner: Vec<OsString>,
    artifact: PathBuf,
}

impl Model {
    fn compile(program: PathBuf, codegen: &str) -> anyhow::Result<Model> {
        Model::compile_for(&program, codegen, None)
    }

    /// Compiled for another machine than this one, if one is named.
    fn compile_for(program: &Path, codegen: &str, machine: Option<&str>) -> anyhow::Result<Model> {
        let name =
            [Some("digits"), Some(codegen), machine].into_iter().flatten().collect::<Vec<_>>().join("-");
        let artifact = project::target_dir().join(format!("{name}.twm"));
        let mut compile = project::command(program);
        compile.arg("compile").arg(project::path("examples/digits/digits.onnx"));
        compile.args(machine.map(|machine| ["--target", machine]).iter().flatten());
        project::run(compile.args(["--codegen", codegen, "--no-cache", "-o"]).arg(&artifact))?;
        Ok(Model { runner: vec![program.into()], artifact })
    }

    /// The scores of the images in a folder: images by classes.
    fn run(&self, inputs: &Path, threads: usize) -> anyhow::Result<Tensor> {
        let outputs = self.artifact.with_extension("outputs");
        if outputs.exists() {
            std::fs::remove_dir_all(&outputs)?;
        }
        std::fs::create_dir_all(&outputs)?;
        let (first, rest) = self.runner.split_first().context("nothing to run it with")?;
        let mut run = project::command(first);
        run.args(rest)
            .arg("run")
            .arg(&self.artifact)
            .arg("--inputs")
            .arg(inputs)
            .arg("--outputs")
            .arg(&outputs);
        run.args(["--threads", &threads.to_string()]);
        project::run(&mut run)?;
        floats(&outputs.join("output_0.pb"))
    }
}

/// Whether scores of the held-out digits are as often right as ONNX Runtime's.
fn are_right(scores: &Tensor) -> Verdict {
    let dir = project::path(HELD_OUT);
    let labels = std::fs::read_to_string(dir.join("labels.txt"))?;
    let labels = labels.split_whitespace().map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let ours = correct(scores, &labels)?;
    let reference = correct(&floats(&dir.join("output_0.pb"))?, &labels)?;
    println!("held-out digits: {ours} of {} right, ONNX Runtime {reference}", labels.len());
    Ok(ours == reference)
}

fn floats(path: &Path) -> anyhow::Result<Tensor> {
    match tensor::read(path, ValueKind::Tensor)? {
        Value::Tensor(tensor) => Ok(tensor),
        other => bail!("{} holds no tensor but {other:?}", path.display()),
    }
}

/// One row of a matrix.
fn row(matrix: &Tensor, index: usize) -> anyhow::Result<&[f64]> {
    let (Elements::Float(values), &[_, columns]) = (&matrix.elements, &matrix.dims[..]) else {
        bail!("expected a matrix of floats, got extents {:?}", matrix.dims);
    };
    let columns = usize::try_from(columns)?;
    values.get(index * columns..(index + 1) * columns).context("too few rows")
}

/// The index of the highest score.
fn best(scores: &[f64]) -> usize {
    (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0)
}

fn correct(scores: &Tensor, labels: &[usize]) -> anyhow::Result<usize> {
    let hits = labels.iter().enumerate().map(|(i, &label)| Ok(usize::from(best(row(scores, i)?) == label)));
    hits.sum()
}

/// The image in characters, two a pixel as they are twice as high as wide.
fn picture(pixels: &Tensor) -> anyhow::Result<String> {
    const SHADES: [&str; 5] = ["  ", "..", "::", "oo", "@@"];
    let Elements::Float(values) = &pixels.elements else { bail!("the image holds no floats") };
    let width = pixels.dims.last().copied().unwrap_or(0);
    ensure!(width > 0, "the image has extents {:?}", pixels.dims);
    let shade = |ink: &f64| SHADES[(ink.clamp(0.0, 1.0) * (SHADES.len() - 1) as f64).round() as usize];
    let lines = values.chunks(width as usize).map(|line| line.iter().map(shade).collect::<String>());
    Ok(lines.map(|line| line.trim_end().to_string() + "\n").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(dims: &[i64], values: &[f64]) -> Tensor {
        Tensor { data_type: 1, dims: dims.to_vec(), elements: Elements::Float(values.to_vec()) }
    }

    #[test]
    fn the_picture_has_a_line_a_row() {
        assert_eq!(picture(&matrix(&[1, 1, 2, 2], &[0.0, 1.0, 0.5, 0.0])).unwrap(), "  @@\n::\n");
    }

    /// The committed data fit together: ONNX Runtime reads every held-out digit right.
    #[test]
    fn the_held_out_digits_are_what_their_description_says() {
        let dir = project::path(HELD_OUT);
        let labels = std::fs::read_to_string(dir.join("labels.txt")).unwrap();
        let labels: Vec<usize> = labels.split_whitespace().map(|label| label.parse().unwrap()).collect();
        assert_eq!(floats(&dir.join("input_0.pb")).unwrap().dims, [450, 1, 8, 8]);
        assert_eq!(correct(&floats(&dir.join("output_0.pb")).unwrap(), &labels).unwrap(), 450);
        for digit in 0..10 {
            let image = project::path(format!("examples/digits/images/{digit}/input_0.pb"));
            assert_eq!(floats(&image).unwrap().dims, [1, 1, 8, 8]);
        }
    }

    #[test]
    fn accuracy_counts_rows_whose_best_score_is_the_label() {
        let scores = matrix(&[2, 3], &[0.1, 0.9, 0.0, 5.0, 2.0, 3.0]);
        assert_eq!(correct(&scores, &[1, 0]).unwrap(), 2);
        assert_eq!(correct(&scores, &[1, 2]).unwrap(), 1);
        assert_eq!(correct(&scores, &[1, 0, 0]).unwrap_err().to_string(), "too few rows");
    }
}
