//! `cargo bench -p tilewright-benches --bench face [-- MODEL...]`: what the library's face costs, `Model::run` against
//! `Session::run_into`, and one model that eight threads run against eight sessions.
//!
//! Each model is loaded twice: by default, which gives runs the threads of the process; and on the calling thread alone. Of models named after `--`, open dimensions are as
//! `NAME=EXTENT` says, which stands there too, or 1 in each run.
//!
//! The two sides take turns, so that a machine whose speed drifts still gives fair figures; a figure is the median over the turns.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use tilewright::internals::graph::text;
use tilewright::internals::runtime::AlignedBuf;
use tilewright::internals::runtime::pool::Serial;
use tilewright::{
    Artifact, Compiler, Extent, LoadOptions, Model, Session, Source, Spec, Tensor, TensorView, TensorViewMut,
};

/// Threads of the second part.
const THREADS: usize = 8;
/// Turns of each side.
const TURNS: usize = 101;
/// Turns of all threads of each side.
const TURNS_OF_ALL: usize = 25;
/// Time of a turn, in which as many runs are made as there is time for.
const TURN: Duration = Duration::from_millis(10);
/// Least time of a turn of all threads, and how many runs of one thread it has at least.
const TURN_OF_ALL: Duration = Duration::from_millis(100);
const RUNS_OF_ALL: u32 = 40;

/// A model with its inputs.
struct Subject {
    model: Model,
    inputs: Vec<Tensor>,
}

/// Memory for an output, with its extents.
type Memory = (Vec<usize>, AlignedBuf);

impl Subject {
    fn new(artifact: &Artifact, options: &LoadOptions) -> anyhow::Result<Subject> {
        let model = artifact.load_with(options)?;
        let zeros = |spec: &Spec| Tensor::zeros(spec.dtype, &extents(spec));
        let inputs = model.inputs().iter().map(zeros).collect::<Result<_, _>>()?;
        Ok(Subject { model, inputs })
    }

    fn memory(&self) -> anyhow::Result<Vec<Memory>> {
        let of = |spec: &Spec| {
            let dims = extents(spec);
            let bytes = dims.iter().product::<usize>() * spec.dtype.bytes();
            Ok((dims, AlignedBuf::zeroed(bytes)?))
        };
        self.model.outputs().iter().map(of).collect()
    }

    fn views<'m>(&self, memory: &'m mut [Memory]) -> Vec<TensorViewMut<'m>> {
        let outputs = memory.iter_mut().zip(self.model.outputs());
        outputs.map(|((dims, bytes), spec)| TensorViewMut::new(spec.dtype, dims, bytes)).collect()
    }

    /// A run of the face, whose outputs are the caller's and dropped.
    fn face(&self) {
        let names = self.model.inputs().iter().map(|spec| &spec.name);
        black_box(self.model.run(names.zip(&self.inputs)).expect("a run"));
    }

    /// What a session runs on.
    fn own<'m>(&'m self, memory: &'m mut [Memory]) -> Own<'m> {
        let inputs = self.inputs.iter().filter_map(Tensor::view).collect();
        Own { session: self.model.session(), inputs, outputs: self.views(memory) }
    }
}

/// A session with its inputs and memory for its outputs.
struct Own<'m> {
    session: Session,
    inputs: Vec<TensorView<'m>>,
    outputs: Vec<TensorViewMut<'m>>,
}

impl Own<'_> {
    /// A run, which writes to memory that is there.
    fn run(&mut self) {
        self.session.run_into(&self.inputs, &mut self.outputs).expect("a run");
        black_box(&mut self.outputs);
    }
}

/// Extents of an input or output for a batch of 1.
fn extents(spec: &Spec) -> Vec<usize> {
    let extents = spec.dims.iter().flatten();
    extents.map(|extent| if let Extent::Fixed(n) = extent { *n as usize } else { 1 }).collect()
}

/// Mean time of a run in one turn.
fn turn(time: Duration, mut run: impl FnMut()) -> f64 {
    let (start, mut n) = (Instant::now(), 0u32);
    while start.elapsed() < time {
        run();
        n += 1;
    }
    start.elapsed().as_secs_f64() / f64::from(n)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Times of a run of the face and of a session, and their difference, in microseconds.
fn alone(subject: &Subject) -> anyhow::Result<[f64; 3]> {
    let mut memory = subject.memory()?;
    let mut session = subject.own(&mut memory);
    let (mut face, mut own) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        face.push(1e6 * turn(TURN, || subject.face()));
        own.push(1e6 * turn(TURN, || session.run()));
    }
    let differences = face.iter().zip(&own).map(|(face, own)| face - own).collect();
    Ok([median(face), median(own), median(differences)])
}

/// Runs a second that threads make together in one turn: all that they begin within its time, by the time until the last is done.
fn together<S: Send>(states: &mut [S], time: Duration, run: impl Fn(&mut S) + Sync) -> f64 {
    let barrier = Barrier::new(states.len());
    let work = |state: &mut S| {
        barrier.wait();
        let (start, mut n) = (Instant::now(), 0u32);
        while start.elapsed() < time {
            run(state);
            n += 1;
        }
        (start, Instant::now(), n)
    };
    let done: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = states.iter_mut().map(|state| scope.spawn(|| work(state))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let start = done.iter().map(|(start, ..)| *start).min().expect("a thread");
    let end = done.iter().map(|(_, end, _)| *end).max().expect("a thread");
    done.iter().map(|(.., n)| f64::from(*n)).sum::<f64>() / (end - start).as_secs_f64()
}

/// Throughput of one model that all threads run and of as many sessions, runs a second, and the ratio of the two. A run of
/// a session alone takes so many microseconds.
fn shared(subject: &Subject, alone: f64) -> anyhow::Result<[f64; 3]> {
    let mut memories = (0..THREADS).map(|_| subject.memory()).collect::<anyhow::Result<Vec<_>>>()?;
    let mut sessions: Vec<_> = memories.iter_mut().map(|memory| subject.own(memory)).collect();
    let mut nothing = [(); THREADS];
    let time = TURN_OF_ALL.max(RUNS_OF_ALL * Duration::from_secs_f64(1e-6 * alone));
    let (mut face, mut own) = (Vec::new(), Vec::new());
    for _ in 0..TURNS_OF_ALL {
        face.push(together(&mut nothing, time, |()| subject.face()));
        own.push(together(&mut sessions, time, Own::run));
    }
    let ratios = face.iter().zip(&own).map(|(face, own)| face / own).collect();
    Ok([median(face), median(own), median(ratios)])
}

/// `y = x + x` of so many elements: nearly all of its time is what surrounds a kernel, or the memory of the output.
fn sum(elements: usize) -> anyhow::Result<Source> {
    let ty = format!("f32[{elements}]");
    let text = format!(
        "graph sum {{\n region0(%x x: {ty}) {{\n %y: {ty} = Binary[add](%x, %x)\n return %y as y\n }}\n}}"
    );
    Ok(text::parse(&text)?.into())
}

/// The models, by name.
fn artifacts() -> anyhow::Result<Vec<(String, Artifact)>> {
    let mut artifacts = Vec::new();
    for (name, source) in [("sum of 16", sum(16)?), ("sum of 1 Mi", sum(1 << 20)?)] {
        artifacts.push((name.to_owned(), Compiler::new().compile(source)?));
    }
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/digits/digits.onnx");
    artifacts.push(("digits".to_owned(), Compiler::new().dim("batch", 1).compile(digits)?));
    let mut compiler = Compiler::new();
    // What cargo passes to every benchmark is an option.
    for arg in std::env::args().skip(1).filter(|arg| !arg.starts_with("--")) {
        if let Some((name, extent)) = arg.split_once('=') {
            compiler = compiler.dim(name, extent.parse::<i64>()?);
        } else {
            let path = PathBuf::from(arg);
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            artifacts.push((name, compiler.compile(path)?));
        }
    }
    Ok(artifacts)
}

fn main() -> anyhow::Result<()> {
    let artifacts = artifacts()?;
    let own = LoadOptions::new().pool(Arc::new(Serial)).sessions(THREADS);
    for (loaded, options) in [("by default", LoadOptions::new()), ("on the calling thread", own)] {
        println!("loaded {loaded}");
        println!("{:16}{:>12}{:>12}{:>12}", "alone", "face us", "session us", "more us");
        let mut subjects = Vec::new();
        for (name, artifact) in &artifacts {
            let subject = Subject::new(artifact, &options)?;
            let [face, own, more] = alone(&subject)?;
            println!("{name:16}{face:>12.2}{own:>12.2}{more:>12.2}");
            subjects.push((name, subject, own));
        }
        println!(
            "{:16}{:>12}{:>14}{:>10}",
            format!("{THREADS} threads"),
            "face 1/s",
            "sessions 1/s",
            "ratio"
        );
        for (name, subject, alone) in &subjects {
            let [face, own, ratio] = shared(subject, *alone)?;
            println!("{name:16}{face:>12.1}{own:>14.1}{ratio:>10.3}");
        }
    }
    Ok(())
}
