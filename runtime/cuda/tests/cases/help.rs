//! What the tests have in common.

use std::error::Error;
use std::fmt::Debug;

use tilewright_runtime::artifact::{DeviceDef, DeviceKernel};
use tilewright_runtime::device::{DeviceError, Launch, Stream};

pub(crate) type Failed = Box<dyn Error + Send + Sync>;
pub(crate) type Outcome = Result<(), Failed>;

pub(crate) fn ensure(holds: bool, found: &dyn Debug) -> Outcome {
    if holds { Ok(()) } else { Err(format!("{found:?}").into()) }
}

pub(crate) fn ensure_eq<T: PartialEq + Debug + ?Sized>(found: &T, expect: &T) -> Outcome {
    if found == expect { Ok(()) } else { Err(format!("found {found:?}\nexpect {expect:?}").into()) }
}

/// That something fails, with this text.
pub(crate) fn fails<T>(result: Result<T, DeviceError>, expect: &str) -> Outcome {
    match result {
        Ok(_) => Err(format!("no error, in place of: {expect}").into()),
        Err(error) => ensure_eq(error.to_string().as_str(), expect),
    }
}

/// Code in these formats, with the kernels of the driver of ours.
pub(crate) fn def(arch: &str, parts: &[(&str, &[u8])]) -> DeviceDef {
    let kernel = |symbol: &str| DeviceKernel { symbol: symbol.into(), threads: [2, 32], dynamic_shared: 0 };
    DeviceDef {
        kind: "cuda".into(),
        arch: arch.into(),
        assembler: String::new(),
        parts: parts.iter().map(|(format, code)| (format.to_string(), code.len() as u64)).collect(),
        kernels: ["add_one", "count", "bad"].map(kernel).into(),
    }
}

pub(crate) fn upload(stream: &mut dyn Stream, numbers: &[f32], to: u64) -> Result<(), DeviceError> {
    // SAFETY: the callers allocate as much; the numbers stay until the wait.
    unsafe { stream.upload(numbers.as_ptr().cast(), to, size_of_val(numbers)) }?;
    stream.wait()
}

pub(crate) fn floats(stream: &mut dyn Stream, from: u64, count: usize) -> Result<Vec<f32>, DeviceError> {
    let mut found = vec![0f32; count];
    // SAFETY: the callers allocate as much; the numbers stay until the wait.
    unsafe { stream.download(from, found.as_mut_ptr().cast(), 4 * count) }?;
    stream.wait()?;
    Ok(found)
}

pub(crate) fn launch(
    stream: &mut dyn Stream,
    kernel: usize,
    buffer: u64,
    extent: i64,
    first: i64,
    tasks: i64,
) -> Result<(), DeviceError> {
    // SAFETY: the callers allocate as much as the extent says, and keep it.
    unsafe { stream.launch(&Launch { kernel, buffers: &[buffer], sizes: &[extent], first, tasks }) }
}

/// What the driver was asked for.
pub(crate) fn log() -> Vec<String> {
    let path = std::env::var_os("FAKE_CUDA_LOG").expect("a log");
    std::fs::read_to_string(path).expect("a log").lines().map(String::from).collect()
}

/// What it was asked for that begins with a word.
pub(crate) fn logged(word: &str) -> Vec<String> {
    log().into_iter().filter(|line| line.starts_with(word)).collect()
}

/// That all is given back that was asked for.
pub(crate) fn ensure_balance() -> Outcome {
    for what in ["context", "module", "memory", "stream"] {
        ensure(!logged(&format!("+{what}")).is_empty(), &log())?;
    }
    for what in ["context", "module", "memory", "stream", "graph", "exec"] {
        let [got, gone] = ["+", "-"].map(|sign| logged(&format!("{sign}{what}")).len());
        ensure(got == gone, &log())?;
    }
    Ok(())
}

pub(crate) fn log_is_empty() -> bool {
    log().is_empty()
}
