//! Several threads answer requests with one model, each request within a time limit.
//!
//! `cargo run --release -p tilewright --example serve -- examples/digits/digits.onnx examples/digits/held-out`

use std::error::Error;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tilewright::{Cancel, Compiler, LoadOptions, Model, RunError, Tensor, TensorView, files};

/// An image, when its answer is too late, and where the answer goes.
struct Request {
    pixels: Vec<f32>,
    deadline: Instant,
    reply: mpsc::Sender<Answer>,
}

/// The class of an image, or why there is none.
type Answer = Result<usize, RunError>;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, images] = &args[..] else { return Err("usage: serve MODEL.onnx IMAGES".into()) };
    let answers = serve(model.as_ref(), images.as_ref(), 4, Duration::from_secs(1))?;
    let late = answers.iter().filter(|answer| matches!(answer, Err(RunError::Cancelled))).count();
    println!("{} answers, {late} of them too late", answers.len());
    Ok(())
}

/// Asks for the class of every image at once; `threads` threads answer, each request within `limit`.
pub(crate) fn serve(
    model: &Path,
    images: &Path,
    threads: usize,
    limit: Duration,
) -> Result<Vec<Answer>, Box<dyn Error>> {
    // Runs happen side by side, so each of them needs one thread only.
    let options = LoadOptions::new().threads(1).sessions(threads);
    let model = Compiler::new().dim("batch", 1).compile(model)?.load_with(&options)?;
    let inputs = files::read_inputs(images, model.inputs())?;
    let images = inputs.first().and_then(|(_, value)| value.as_tensor()).and_then(Tensor::as_slice::<f32>);

    let (requests, queue) = mpsc::channel();
    let queue = Mutex::new(queue);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&model, &queue));
        }
        let mut replies = Vec::new();
        for image in images.ok_or("images of f32 are expected")?.chunks(8 * 8) {
            let (reply, answer) = mpsc::channel();
            requests.send(Request { pixels: image.to_vec(), deadline: Instant::now() + limit, reply })?;
            replies.push(answer);
        }
        // No further request: the threads end when all are answered.
        drop(requests);
        Ok(replies.iter().map(mpsc::Receiver::recv).collect::<Result<_, _>>()?)
    })
}

/// Answers requests until there are no more.
fn work(model: &Model, queue: &Mutex<mpsc::Receiver<Request>>) {
    loop {
        let request = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Request { pixels, deadline, reply }) = request else { return };
        let answer = before(deadline, |cancel| class_of(model, &pixels, cancel));
        // Who asked may have gone.
        _ = reply.send(answer);
    }
}

/// Gives `run` until the deadline, then cancels it; what waited too long is not begun.
fn before(deadline: Instant, run: impl FnOnce(&Cancel) -> Answer) -> Answer {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(RunError::Cancelled);
    }
    let cancel = Cancel::new();
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let watched = cancel.clone();
        scope.spawn(move || {
            if is_done.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                watched.cancel();
            }
        });
        let answer = run(&cancel);
        drop(done);
        answer
    })
}

/// The class with the highest score.
fn class_of(model: &Model, pixels: &[f32], cancel: &Cancel) -> Answer {
    let image = TensorView::of(&[1, 1, 8, 8], pixels);
    let outputs = model.run_cancellable([("image", image)], cancel)?;
    let scores = outputs.tensor("scores").and_then(Tensor::as_slice::<f32>).unwrap_or_default();
    let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    Ok(best.unwrap_or_default())
}
