//! silero_vad, a voice activity detector: the sampling rate is a run-time input that decides between two networks
//! (`If`), the state of an LSTM goes from chunk to chunk, and the ranks of some values depend on a chunk's length.
//!
//! One artifact serves both rates. It is held against ONNX Runtime over seconds of synthetic speech, each side with
//! its own state carried, and at other sizes, where it must agree or refuse.

mod common;
mod onnx_runtime;

use std::f64::consts::PI;
use std::path::Path;
use std::process::ExitCode;

use common::{failed, model_path};
use onnx_runtime::{Feed, Tensor, agree, answers_of, artifact, artifact_for, codegens, run, session};
use tilewright_driver::runtime::{Model, RunError, Session};
use tilewright_driver::{Options, Target, Trust, devices};

/// Seconds of speech.
const SECONDS: usize = 4;

/// Chunks of each stream that a device is given.
const CHUNKS_ON_DEVICE: usize = 12;

/// Elements of the state of one sequence: two rows.
const STATE: usize = 128;

/// A stream of audio: its rate, the samples of a chunk, and how many samples of the chunk before precede it. The
/// network was trained with context, and its package runs it so.
struct Stream {
    rate: usize,
    chunk: usize,
    context: usize,
}

const STREAMS: [Stream; 4] = [
    Stream { rate: 16_000, chunk: 512, context: 64 },
    Stream { rate: 8_000, chunk: 256, context: 32 },
    Stream { rate: 16_000, chunk: 512, context: 0 },
    Stream { rate: 8_000, chunk: 256, context: 0 },
];

/// Lengths of a single chunk: too short to pad, too short for the convolutions, the least and the greatest possible
/// at each rate, and longer ones, of which the network makes more than one step.
const LENGTHS: [usize; 18] =
    [1, 31, 33, 63, 65, 95, 96, 191, 192, 256, 351, 352, 512, 576, 703, 704, 1024, 1536];

/// Sequences of a batch of audio and of the state: equal, or a contradiction.
const BATCHES: [(usize, usize); 5] = [(1, 1), (3, 3), (2, 1), (1, 2), (3, 2)];

/// A name, and what is checked under it.
type Subject = (&'static str, fn() -> Result<(), String>);

const SUBJECTS: [Subject; 3] = [
    ("silero_vad, streams", check_streams),
    ("silero_vad, other sizes", check_sizes),
    (ON_DEVICE, check_on_device),
];

/// The test that needs an OpenCL device.
const ON_DEVICE: &str = "silero_vad, streams on OpenCL";

fn main() -> ExitCode {
    let lacking = model_path("silero_vad").err().or_else(onnx_runtime::lacking);
    let no_device = devices::open("opencl").err().map(|error| error.to_string());
    let lacks =
        |subject: &Subject| lacking.clone().or_else(|| no_device.clone().filter(|_| subject.0 == ON_DEVICE));
    common::check_all(&SUBJECTS, |subject| subject.0, lacks, |subject| subject.1())
}

/// Chunk by chunk, with the state carried.
fn check_streams() -> Result<(), String> {
    let path = model_path("silero_vad")?;
    let mut streams = Vec::new();
    for stream in &STREAMS {
        let audio = chunks(stream);
        let expected = answers(&path, stream, &audio)?;
        hears_speech(stream, &expected).map_err(failed("the synthetic speech"))?;
        streams.push((stream, audio, expected));
    }
    for codegen in codegens() {
        let model = artifact(&path, codegen).map_err(failed(codegen.name()))?;
        let model = Model::from_bytes(model, Trust::Origin).map_err(failed("load"))?;
        // The same sessions for all streams: they meet other rates and sizes as they go.
        let mut sessions = [session(&model, 1), session(&model, 2)];
        for (stream, audio, expected) in &streams {
            check_stream(&mut sessions, stream, audio, expected)
                .map_err(failed(&format!("{codegen}, {} Hz, chunks of {}", stream.rate, stream.chunk)))?;
        }
    }
    Ok(())
}

/// The first chunks on an OpenCL device: branches are decided on the host, the networks run on the device.
fn check_on_device() -> Result<(), String> {
    let path = model_path("silero_vad")?;
    let device = devices::open("opencl").map_err(|error| error.to_string())?;
    let target = Target::parse("opencl", Options::best_codegen()).map_err(|error| error.to_string())?;
    let model =
        tilewright_driver::loader(Trust::Origin).device(device).from_bytes(artifact_for(&path, target)?);
    let model = model.map_err(failed("load"))?;
    let mut sessions = [session(&model, 1), session(&model, 2)];
    for stream in &STREAMS {
        let audio = &chunks(stream)[..CHUNKS_ON_DEVICE];
        let expected = answers(&path, stream, audio)?;
        check_stream(&mut sessions, stream, audio, &expected)
            .map_err(failed(&format!("{} Hz", stream.rate)))?;
    }
    Ok(())
}

/// ONNX Runtime's outputs for each chunk of a stream, with its own state carried.
fn answers(path: &Path, stream: &Stream, audio: &[Tensor]) -> Result<Vec<Vec<Tensor>>, String> {
    let feeds = |(index, chunk): (usize, &Tensor)| {
        let state = match index.checked_sub(1) {
            None => Feed::from(silence(1)),
            Some(case) => {
                Feed { tensor: Tensor::of_f32("state", &[2, 1, STATE], []), carried: Some((case, 1)) }
            }
        };
        vec![Feed::from(chunk.clone()), state, Feed::from(rate(stream.rate))]
    };
    let cases: Vec<Vec<Feed>> = audio.iter().enumerate().map(feeds).collect();
    let answers: Result<_, _> = answers_of(path, &cases)?.into_iter().collect();
    answers.map_err(failed("ONNX Runtime"))
}

/// A detector that gave one answer to everything would pass too: there must be both to tell apart.
fn hears_speech(stream: &Stream, expected: &[Vec<Tensor>]) -> Result<(), String> {
    let mut speech = 0;
    for outputs in expected {
        speech += usize::from(outputs[0].numbers()?[0] > 0.5);
    }
    match stream.context > 0 && (speech == 0 || speech == expected.len()) {
        true => Err(format!("at {} Hz, {speech} of {} chunks are speech", stream.rate, expected.len())),
        false => Ok(()),
    }
}

fn check_stream(
    sessions: &mut [Session; 2],
    stream: &Stream,
    audio: &[Tensor],
    expected: &[Vec<Tensor>],
) -> Result<(), String> {
    let [single, double] = sessions;
    let mut state = silence(1);
    for (index, (chunk, expected)) in audio.iter().zip(expected).enumerate() {
        let inputs = [chunk.clone(), state, rate(stream.rate)];
        let one = run(single, &inputs).map_err(|error| format!("chunk {index}: {error}"))?;
        let two = run(double, &inputs).map_err(|error| format!("chunk {index}: {error}"))?;
        agree(&one, &two, expected).map_err(|reason| format!("chunk {index}: {reason}"))?;
        state = Tensor { name: "state".to_string(), ..one[1].clone() };
    }
    Ok(())
}

/// What ONNX Runtime refuses we refuse, by a typed error; what it accepts we may refuse, but not answer otherwise.
fn check_sizes() -> Result<(), String> {
    let path = model_path("silero_vad")?;
    let mut cases = Vec::new();
    for at in [16_000, 8_000] {
        for length in LENGTHS {
            for (batch, batch_of_state) in BATCHES {
                let samples = speech(at, batch * length);
                let samples = Tensor::of_f32("input", &[batch, length], samples.into_iter().rev());
                cases.push([samples, silence(batch_of_state), rate(at)]);
            }
        }
    }
    let feeds = |inputs: &[Tensor; 3]| inputs.iter().cloned().map(Feed::from).collect();
    let answers = answers_of(&path, &cases.iter().map(feeds).collect::<Vec<_>>())?;
    for codegen in codegens() {
        let model = artifact(&path, codegen).map_err(failed(codegen.name()))?;
        let model = Model::from_bytes(model, Trust::Origin).map_err(failed("load"))?;
        let mut sessions = [session(&model, 1), session(&model, 2)];
        for (inputs, answer) in cases.iter().zip(&answers) {
            check_size(&mut sessions, inputs, answer.as_deref())
                .map_err(failed(&format!("{codegen}, {:?} at {:?}", inputs[0].dims, inputs[2].bytes)))?;
        }
    }
    Ok(())
}

fn check_size(
    sessions: &mut [Session; 2],
    inputs: &[Tensor],
    answer: Result<&[Tensor], &String>,
) -> Result<(), String> {
    let [single, double] = sessions;
    match (run(single, inputs), run(double, inputs), answer) {
        (Ok(one), Ok(two), Ok(expected)) => agree(&one, &two, expected),
        (Ok(_), Ok(_), Err(reason)) => Err(format!("answered, where ONNX Runtime refuses: {reason}")),
        (Err(RunError::Guard { .. } | RunError::Inputs(_)), Err(_), Err(_)) => Ok(()),
        (Err(error), ..) | (_, Err(error), _) => Err(format!("not refused for its size: {error}")),
    }
}

/// The chunks of a stream of synthetic speech, each with its context before it.
fn chunks(stream: &Stream) -> Vec<Tensor> {
    let mut audio = vec![0.0; stream.context];
    audio.extend(speech(stream.rate, SECONDS * stream.rate));
    let length = stream.context + stream.chunk;
    let starts = (0..=audio.len() - length).step_by(stream.chunk);
    starts.map(|at| Tensor::of_f32("input", &[1, length], audio[at..at + length].iter().copied())).collect()
}

/// The state before the first chunk.
fn silence(batch: usize) -> Tensor {
    Tensor::of_f32("state", &[2, batch, STATE], vec![0.0; 2 * batch * STATE])
}

/// The input that says the rate.
fn rate(rate: usize) -> Tensor {
    Tensor::of_i64("sr", &[], [rate as i64])
}

/// The first three formants of four vowels, in Hz.
const VOWELS: [[f64; 3]; 4] =
    [[730.0, 1090.0, 2440.0], [270.0, 2290.0, 3010.0], [570.0, 840.0, 2410.0], [530.0, 1840.0, 2480.0]];

/// Samples that sound like speech: pulses of a wavering pitch through resonators at the formants of changing vowels, in
/// syllables, with pauses and a little noise.
fn speech(rate: usize, samples: usize) -> Vec<f32> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let (mut phase, mut resonators) = (0.0, [[0.0; 2]; 3]);
    let sample = |index: usize| {
        let time = index as f64 / rate as f64;
        let syllable = 4.0 * time;
        let loudness = if time % 2.0 < 0.6 { 0.0 } else { (PI * syllable.fract()).sin().powi(2) };
        phase += (120.0 + 30.0 * (1.4 * PI * time).sin()) / rate as f64;
        let pulse = if phase >= 1.0 { loudness } else { 0.0 };
        phase = phase.fract();
        // xorshift64
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let noise = (random >> 40) as f64 / f64::from(1 << 23) - 1.0;
        let formants = VOWELS[syllable as usize % VOWELS.len()];
        let mut sum = 0.0;
        for (n, (formant, memory)) in formants.iter().zip(&mut resonators).enumerate() {
            // A pole pair at the formant whose bandwidth is 60 Hz and more.
            let radius = (-PI * (60.0 + 30.0 * n as f64) / rate as f64).exp();
            let turn = 2.0 * PI * formant / rate as f64;
            let value =
                pulse + 0.005 * noise + 2.0 * radius * turn.cos() * memory[0] - radius * radius * memory[1];
            *memory = [value, memory[0]];
            sum += value * (1.0 - radius);
        }
        (0.8 * sum) as f32
    };
    (0..samples).map(sample).collect()
}
