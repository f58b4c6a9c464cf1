//! A job's process, from the server's side: asked by standard input, heard by standard output, killed when it takes too long.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::frame::{self, FrameError};
use crate::token::TOKEN_VARIABLE;
use crate::worker::{Call, MOST, Told};

/// Bytes of what a process says of its end that are told.
const MOST_SAID: usize = 2000;

/// How long a process that says nothing more may take to end by itself, which tells more than that it was killed.
const GRACE: Duration = Duration::from_millis(500);

/// What ends a job's process from another thread.
#[derive(Default)]
pub(crate) struct Control(Mutex<State>);

#[derive(Default)]
struct State {
    child: Option<Child>,
    is_cancelled: bool,
}

impl Control {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the process, also one that is still to be started.
    pub(crate) fn cancel(&self) {
        let mut state = self.state();
        state.is_cancelled = true;
        // One that has ended by itself cannot be killed.
        _ = state.child.as_mut().map(Child::kill);
    }

    fn is_cancelled(&self) -> bool {
        self.state().is_cancelled
    }

    fn start(&self, command: &mut Command) -> Result<Pipes, Fault> {
        let mut state = self.state();
        if state.is_cancelled {
            return Err(Fault::Cancelled);
        }
        let mut child = command.spawn().map_err(start)?;
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        state.child = Some(child);
        let ((stdin, stdout), stderr) = pipes.ok_or_else(|| Fault::Start("it has no pipes".to_string()))?;
        Ok(Pipes { stdin, stdout, stderr })
    }

    /// Waits for a process that is ending, or kills it, and says how it ended.
    fn end(&self, grace: Duration) -> Option<ExitStatus> {
        let mut child = self.state().child.take()?;
        let end = Instant::now() + grace;
        while Instant::now() < end {
            match child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) => return Some(status),
                Err(_) => break,
            }
        }
        _ = child.kill();
        child.wait().ok()
    }
}

struct Pipes {
    stdin: std::process::ChildStdin,
    stdout: std::process::ChildStdout,
    stderr: std::process::ChildStderr,
}

/// What a process tells, for whoever waits for it. One place and a condition: channels are many times the code.
#[derive(Default)]
struct Heard {
    told: Mutex<Option<Result<Told, FrameError>>>,
    came: Condvar,
}

impl Heard {
    fn told(&self) -> MutexGuard<'_, Option<Result<Told, FrameError>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, stream: &mut dyn Read) {
        let told = frame::receive(stream, MOST);
        *self.told() = Some(told);
        self.came.notify_one();
    }

    /// What is told until then; nothing if nothing is.
    fn within(&self, limit: Duration) -> Option<Result<Told, FrameError>> {
        let waited = self.came.wait_timeout_while(self.told(), limit, |told| told.is_none());
        waited.map_or_else(|broken| broken.into_inner().0.take(), |(mut told, _)| told.take())
    }
}

fn start(error: io::Error) -> Fault {
    Fault::Start(error.to_string())
}

/// Has a process of this command do a job within a limit; the answer, and how many blobs belong to it.
pub(crate) fn run(
    mut command: Command,
    call: &Call,
    limit: Duration,
    control: &Control,
) -> Result<(Vec<u8>, u32), Fault> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // What a job runs needs no token.
    command.env_remove(TOKEN_VARIABLE);
    let Pipes { mut stdin, mut stdout, mut stderr } = control.start(&mut command)?;
    let told = Heard::default();
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_string());
        // A process that does not read would hold its asker up. Its input stays open as long as it works: it ends with it.
        let asking = named("ask").spawn_scoped(scope, move || {
            _ = frame::send(&mut stdin, call, MOST);
            stdin
        });
        let hearing = named("hear").spawn_scoped(scope, || told.hear(&mut stdout));
        let saying = named("said").spawn_scoped(scope, move || tail(&mut stderr));
        let heard = if hearing.is_ok() { told.within(limit) } else { None };
        let is_closed = matches!(heard, Some(Err(FrameError::Closed)));
        let status = control.end(if is_closed { GRACE } else { Duration::ZERO });
        let (asking, _, saying) = (asking.map_err(start)?, hearing.map_err(start)?, saying.map_err(start)?);
        // They end with the process.
        drop(asking.join());
        let said = saying.join().unwrap_or_default();
        match heard {
            _ if control.is_cancelled() => Err(Fault::Cancelled),
            Some(Ok(Told::Done { answer, blobs })) => Ok((answer, blobs)),
            Some(Ok(Told::Failed { code, message })) => Err(Fault::Failed { code, message }),
            None => Err(Fault::Hung { limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }),
            Some(Err(FrameError::Closed)) => {
                let status = status.map_or("nobody knows how".to_string(), |status| status.to_string());
                let said = if said.is_empty() { said } else { format!(": {said}") };
                Err(Fault::Died(format!("{status}{said}")))
            }
            Some(Err(error)) => Err(Fault::Died(error.to_string())),
        }
    })
}

/// The end of what a process says.
fn tail(stream: &mut dyn Read) -> String {
    let (mut said, mut piece) = (Vec::new(), [0; 1024]);
    while let Ok(n @ 1..) = stream.read(&mut piece) {
        said.extend_from_slice(&piece[..n]);
        if said.len() > 2 * MOST_SAID {
            said.drain(..said.len() - MOST_SAID);
        }
    }
    said.drain(..said.len().saturating_sub(MOST_SAID));
    String::from_utf8_lossy(&said).trim().to_string()
}
