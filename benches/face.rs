//! `cargo bench -p tilewright-benches --bench face`: what the library's face costs, `Model::run` against `Session::run_into`, and one
//! model that eight threads run against eight sessions.
//!
//! The two sides take turns, so that a machine whose speed drifts still gives fair figures; a figure is the median over the turns.

use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use tilewright::internals::graph::text;
use tilewright::internals::runtime::AlignedBuf;
use tilewright::internals::runtime::pool::Serial;
use tilewright::{Compiler, Extent, LoadOptions, Model, Session, Source, Spec, Tensor, TensorViewMut};

/// Threads of the second part.
const THREADS: usize = 8;
/// Turns of each side.
const TURNS: usize = 101;
/// Turns of all threads of each side.
const TURNS_OF_ALL: usize = 25;
/// Time of a turn, in which as many runs are made as there is time for.
const TURN: Duration = Duration::from_millis(10);
/// Time of a turn of all threads.
const TURN_OF_ALL: Duration = Duration::from_millis(100);

/// A model on the calling thread, with an input.
struct Subject {
    model: Model,
    input: Tensor,
}

/// Memory for an output, with its extents.
type Memory = (Vec<usize>, AlignedBuf);

impl Subject {
    fn new(compiler: &Compiler, source: impl Into<Source>) -> anyhow::Result<Subject> {
        let artifact = compiler.compile(source)?;
        let options = LoadOptions::new().pool(Arc::new(Serial)).sessions(THREADS);
        let model = artifact.load_with(&options)?;
        let spec = model.inputs().first().context("an input")?;
        let input = Tensor::zeros(spec.dtype, &extents(spec))?;
        Ok(Subject { model, input })
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
        let name = &self.model.inputs()[0].name;
        black_box(self.model.run([(name, &self.input)]).expect("a run"));
    }

    /// A run of a session, which writes to memory that is there.
    fn session(&self, session: &mut Session, outputs: &mut [TensorViewMut<'_>]) {
        let input = self.input.view().expect("numbers");
        session.run_into(&[input], outputs).expect("a run");
        black_box(outputs);
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
    let mut session = subject.model.session();
    let mut memory = subject.memory()?;
    let mut outputs = subject.views(&mut memory);
    let (mut face, mut own) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        face.push(1e6 * turn(TURN, || subject.face()));
        own.push(1e6 * turn(TURN, || subject.session(&mut session, &mut outputs)));
    }
    let differences = face.iter().zip(&own).map(|(face, own)| face - own).collect();
    Ok([median(face), median(own), median(differences)])
}

/// Runs a second that threads make together in one turn.
fn together<S: Send>(states: &mut [S], run: impl Fn(&mut S) + Sync) -> f64 {
    let barrier = Barrier::new(states.len());
    let work = |state: &mut S| {
        barrier.wait();
        1.0 / turn(TURN_OF_ALL, || run(state))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = states.iter_mut().map(|state| scope.spawn(|| work(state))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// Throughput of one model that all threads run and of as many sessions, runs a second, and the ratio of the two.
fn shared(subject: &Subject) -> anyhow::Result<[f64; 3]> {
    let mut memories = (0..THREADS).map(|_| subject.memory()).collect::<anyhow::Result<Vec<_>>>()?;
    let of = |memory| (subject.model.session(), subject.views(memory));
    let mut sessions: Vec<_> = memories.iter_mut().map(|memory| of(memory)).collect();
    let mut nothing = [(); THREADS];
    let (mut face, mut own) = (Vec::new(), Vec::new());
    for _ in 0..TURNS_OF_ALL {
        face.push(together(&mut nothing, |()| subject.face()));
        own.push(together(&mut sessions, |(session, outputs)| subject.session(session, outputs)));
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

fn main() -> anyhow::Result<()> {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/digits/digits.onnx");
    let (plain, batch) = (Compiler::new(), Compiler::new().dim("batch", 1));
    let sources: [(&str, &Compiler, Source); 3] = [
        ("sum of 16", &plain, sum(16)?),
        ("sum of 1 Mi", &plain, sum(1 << 20)?),
        ("digits", &batch, digits.into()),
    ];
    println!("{:14}{:>12}{:>12}{:>12}", "alone", "face us", "session us", "more us");
    let mut subjects = Vec::new();
    for (name, compiler, source) in sources {
        let subject = Subject::new(compiler, source)?;
        let [face, own, more] = alone(&subject)?;
        println!("{name:14}{face:>12.2}{own:>12.2}{more:>12.2}");
        subjects.push((name, subject));
    }
    println!("{:14}{:>12}{:>12}{:>12}", format!("{THREADS} threads"), "face 1/s", "sessions 1/s", "ratio");
    for (name, subject) in &subjects {
        let [face, own, ratio] = shared(subject)?;
        println!("{name:14}{face:>12.0}{own:>12.0}{ratio:>12.3}");
    }
    Ok(())
}
