//! Real models on boards: right, with the same bits on any number of threads, and with those of a machine here that is described alike.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::project::{self, Verdict};
use crate::tally::Tally;
use crate::{models, tensor};

/// A model, and what it is given.
struct Case {
    name: &'static str,
    /// Runs in a row.
    n_runs: usize,
    /// The inputs of the first run.
    inputs: &'static [Input],
    /// Which output each further run takes for which input.
    carried: Option<(usize, usize)>,
}

/// What an input is given.
enum Input {
    /// Seeded noise of these extents, anew in each run.
    Noise(&'static [i64]),
    /// Zeros of these extents.
    Zeros(&'static [i64]),
    /// An integer.
    Int(i64),
}

/// Two networks for images, and one that hears chunks of a stream with its state carried from each to the next.
const CASES: [Case; 3] = [
    Case { name: "squeezenet1_1", n_runs: 1, inputs: &[Input::Noise(&[1, 3, 224, 224])], carried: None },
    Case { name: "mobilenet_v2", n_runs: 1, inputs: &[Input::Noise(&[1, 3, 224, 224])], carried: None },
    Case {
        name: "silero_vad",
        n_runs: 6,
        inputs: &[Input::Noise(&[1, 576]), Input::Zeros(&[2, 1, 128]), Input::Int(16_000)],
        carried: Some((1, 1)),
    },
];

/// A machine that models run on.
pub(super) struct Machine<'a> {
    pub(super) name: &'a str,
    /// A machine here that is described like it.
    pub(super) alike: &'a str,
    /// The words that run programs for it.
    pub(super) runner: &'a [OsString],
}

/// Makes the models that are not there; those that cannot be are skipped when their turn comes.
pub(super) fn make() {
    CASES.iter().for_each(|case| drop(models::made(case.name)));
}

/// What each model must show on a machine by one code generator; a model that is not here is skipped.
pub(super) fn check(program: &Path, codegen: &str, machine: &Machine<'_>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for case in &CASES {
        match models::made(case.name) {
            Ok(model) => {
                let holds = case.check(&model, program, codegen, machine)?;
                let word = if holds { "holds" } else { "fails" };
                println!("{} for {} by {codegen}: {word}", case.name, machine.name);
                tally.add(Tally::of_check(holds));
            }
            Err(missing) => {
                println!("skipped: {}: {missing}", case.name);
                tally.skipped += 1;
            }
        }
    }
    Ok(tally)
}

impl Case {
    fn check(&self, model: &Path, program: &Path, codegen: &str, machine: &Machine<'_>) -> Verdict {
        let Machine { name, alike, runner } = *machine;
        let folder = project::target_dir().join("boards").join(format!("{}-{name}-{codegen}", self.name));
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let compile = |machine: &str, name: &str| -> anyhow::Result<PathBuf> {
            let artifact = folder.join(name);
            let mut compile = project::command(program);
            compile.arg("compile").arg(model).args(["--target", machine, "--codegen", codegen, "--no-cache"]);
            project::run(compile.arg("-o").arg(&artifact))?;
            Ok(artifact)
        };
        std::fs::create_dir_all(&folder)?;
        let there = compile(name, "there.twm")?;
        let one = self.run(runner, &there, &folder, 1)?;
        let mut holds = true;
        for threads in [2, 4] {
            if self.run(runner, &there, &folder, threads)? != one {
                println!("{}: other bits on {threads} threads", self.name);
                holds = false;
            }
        }
        if cfg!(target_arch = "x86_64") {
            let here = compile(alike, "here.twm")?;
            if self.run(&[program.into()], &here, &folder, 1)? != one {
                println!("{}: other bits than {alike}", self.name);
                holds = false;
            }
            let defined = self.defined(model, program)?;
            let mut verify = project::command(program);
            verify.arg("verify").arg(here).arg("--inputs").arg(defined.join("inputs"));
            verify.arg("--against").arg(defined.join("outputs"));
            holds &= verify.status().context("cannot start the program")?.success();
        }
        Ok(holds)
    }

    /// Inputs of the first run, and outputs by the operators' definitions: a folder of both, made anew where program or model are newer.
    fn defined(&self, model: &Path, program: &Path) -> anyhow::Result<PathBuf> {
        let folder = project::target_dir().join("boards").join(format!("{}-defined", self.name));
        // Others wait for it who need the same.
        let _lock = project::lock(&folder)?;
        let (inputs, outputs) = (folder.join("inputs"), folder.join("outputs"));
        let changed = |path: &Path| std::fs::metadata(path).and_then(|data| data.modified()).ok();
        // What is not there is older than anything.
        if changed(&outputs.join("output_0.pb")) < changed(program).max(changed(model)) {
            if folder.exists() {
                std::fs::remove_dir_all(&folder)?;
            }
            self.write_inputs(&inputs, 0)?;
            let part = folder.join("part");
            let mut run = project::command(program);
            run.arg("run").arg(model).args(["--codegen", "interpreter", "--no-cache"]);
            project::run(run.arg("--inputs").arg(&inputs).arg("--outputs").arg(&part))?;
            // All of them or none.
            std::fs::rename(part, &outputs)?;
        }
        Ok(folder)
    }

    /// The outputs of all runs, byte by byte as they are written.
    fn run(
        &self,
        runner: &[OsString],
        artifact: &Path,
        folder: &Path,
        threads: usize,
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let (inputs, outputs) = (folder.join("inputs"), folder.join("outputs"));
        let mut all = Vec::new();
        for n in 0..self.n_runs {
            self.write_inputs(&inputs, n)?;
            if let Some((from, to)) = self.carried.filter(|_| n > 0) {
                let from = outputs.join(format!("output_{from}.pb"));
                std::fs::copy(&from, inputs.join(format!("input_{to}.pb")))
                    .with_context(|| format!("no {}", from.display()))?;
            }
            if outputs.exists() {
                std::fs::remove_dir_all(&outputs)?;
            }
            std::fs::create_dir_all(&outputs)?;
            let (first, rest) = runner.split_first().context("nothing to run it with")?;
            let mut run = project::command(first);
            run.args(rest).arg("run").arg(artifact).arg("--inputs").arg(&inputs);
            project::run(run.arg("--outputs").arg(&outputs).args(["--threads", &threads.to_string()]))?;
            let mut paths: Vec<PathBuf> =
                std::fs::read_dir(&outputs)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
            paths.sort();
            for path in paths {
                all.push(std::fs::read(path)?);
            }
        }
        Ok(all)
    }

    /// Writes the inputs of a run.
    fn write_inputs(&self, folder: &Path, run: usize) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder)?;
        for (n, input) in self.inputs.iter().enumerate() {
            let bytes = match input {
                Input::Noise(dims) => tensor::floats(dims, noise(count(dims), run as u64 + 1)),
                Input::Zeros(dims) => tensor::floats(dims, vec![0.0; count(dims)].into_iter()),
                Input::Int(value) => tensor::int(*value),
            };
            std::fs::write(folder.join(format!("input_{n}.pb")), bytes)?;
        }
        Ok(())
    }
}

fn count(dims: &[i64]) -> usize {
    dims.iter().product::<i64>().max(0) as usize
}

/// Numbers from -1 to 1 without a pattern: Marsaglia's xorshift generator of 64 bits ("Xorshift RNGs", 2003).
fn noise(n: usize, seed: u64) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    })
    .take(n)
}
