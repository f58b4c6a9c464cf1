//! A process that measures, from outside: a kernel that faults or hangs costs the process, and the next request starts another one.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tilewright_runtime::Cancel;

use super::bench::{Answer, READY, Request};

/// How long a process may take until it has its device.
const START: Duration = Duration::from_secs(60);

/// Bytes of what a process says of its end that are told.
const MOST_SAID: usize = 2000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No process can be started, or it has no device.
    #[error("{0}")]
    Start(String),
    /// The process ended while it measured.
    #[error("the measuring process ended: {0}")]
    Died(String),
    /// It took too long.
    #[error("no result after {} s", limit.as_secs())]
    Hung {
        /// How long was waited.
        limit: Duration,
    },
    /// It was asked to stop.
    #[error("the measurement was cancelled")]
    Cancelled,
}

/// How often it is looked whether to stop, while an answer is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// A process that measures, started when it is needed.
pub struct Worker {
    command: Box<dyn Fn() -> Command>,
    limit: Duration,
    cancel: Cancel,
    running: Option<Running>,
}

struct Running {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    said: JoinHandle<String>,
}

impl Worker {
    /// A process of this command, which reads requests and answers them, and has `limit` for each.
    pub fn new(command: impl Fn() -> Command + 'static, limit: Duration) -> Worker {
        Worker { command: Box::new(command), limit, cancel: Cancel::new(), running: None }
    }

    /// The same until it is asked to stop: then the process is ended, whatever it does.
    #[must_use]
    pub fn until(mut self, cancel: Cancel) -> Worker {
        self.cancel = cancel;
        self
    }

    /// What asks it to stop.
    pub(super) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Starts a process, unless there is one.
    ///
    /// # Errors
    /// [`WorkerError::Start`]: what it said.
    pub fn start(&mut self) -> Result<(), WorkerError> {
        if self.running.is_some() {
            return Ok(());
        }
        let failed = |error: std::io::Error| WorkerError::Start(format!("no measuring process: {error}"));
        let mut command = (self.command)();
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().map_err(failed)?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(requests), Some(stdout), Some(mut stderr)) = (stdin, stdout, stderr) else {
            return Err(WorkerError::Start("a measuring process without pipes".to_string()));
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            // The other end goes when nobody waits for an answer any more.
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let said = std::thread::spawn(move || {
            let mut said = Vec::new();
            // What cannot be read is not told.
            _ = stderr.read_to_end(&mut said);
            String::from_utf8_lossy(&said).trim().to_string()
        });
        let running = self.running.insert(Running { child, requests, answers, said });
        match running.answers.recv_timeout(START) {
            Ok(line) if line.starts_with(READY) => Ok(()),
            Ok(line) => {
                self.stop();
                Err(WorkerError::Start(format!("the measuring process says {line:?}")))
            }
            Err(_) => Err(WorkerError::Start(self.stop())),
        }
    }

    /// Ends the process, whatever it does; what it said, or how it ended.
    fn stop(&mut self) -> String {
        let Some(Running { mut child, requests, answers, said }) = self.running.take() else {
            return String::new();
        };
        drop((requests, answers));
        // It may have ended by itself, which tells more.
        std::thread::sleep(Duration::from_millis(20));
        let ended = child.try_wait().ok().flatten();
        _ = child.kill();
        let status = child.wait();
        let mut said = said.join().unwrap_or_default();
        if let Some(cut) = said.char_indices().rev().map(|(at, _)| at).find(|at| said.len() - at >= MOST_SAID)
        {
            said.replace_range(..cut, "");
        }
        match (said.is_empty(), ended, status) {
            (false, ..) => said,
            (true, Some(status), _) | (true, None, Ok(status)) => status.to_string(),
            (true, None, Err(error)) => error.to_string(),
        }
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// [`WorkerError`]; the next request starts another process.
    pub(super) fn ask(&mut self, request: &Request) -> Result<Answer, WorkerError> {
        self.start()?;
        let Some(running) = &mut self.running else { return Err(WorkerError::Start(String::new())) };
        let line = serde_json::to_string(request).map_err(|error| WorkerError::Died(error.to_string()))?;
        let sent = writeln!(running.requests, "{line}").and_then(|()| running.requests.flush());
        if sent.is_err() {
            return Err(WorkerError::Died(self.stop()));
        }
        let end = Instant::now() + self.limit;
        let answer = loop {
            let left = end.saturating_duration_since(Instant::now());
            match running.answers.recv_timeout(left.min(LOOK)) {
                Ok(line) => break line,
                Err(RecvTimeoutError::Disconnected) => return Err(WorkerError::Died(self.stop())),
                Err(RecvTimeoutError::Timeout) if self.cancel.is_cancelled() => {
                    self.stop();
                    return Err(WorkerError::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) if left <= LOOK => {
                    self.stop();
                    return Err(WorkerError::Hung { limit: self.limit });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let answer: Answer = serde_json::from_str(&answer).map_err(|error| {
            self.stop();
            WorkerError::Died(format!("it answers {answer:?}: {error}"))
        })?;
        if answer.is_lost {
            self.stop();
        }
        Ok(answer)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A worker of a script; `{}` is an answer without anything.
    fn worker(script: &'static str, limit: Duration) -> Worker {
        let command = move || {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        Worker::new(command, limit)
    }

    fn ask(worker: &mut Worker) -> Result<Answer, WorkerError> {
        let (reference, candidate) = ("a".into(), "b".into());
        worker.ask(&Request { reference, candidate, far: 0, effort: None })
    }

    const LONG: Duration = Duration::from_secs(60);
    const ANSWER: &str = r#"{"times":null,"confirmed":null,"error":"no","is_wrong":false,"is_lost":false}"#;

    #[test]
    fn requests_are_answered() {
        let mut worker = worker(
            r#"echo ready; while read l; do echo '{"times":null,"confirmed":null,"error":"no","is_wrong":false,"is_lost":false}'; done"#,
            LONG,
        );
        let error = worker.start().expect_err("`ready` without a device");
        assert!(matches!(error, WorkerError::Start(_)), "{error}");
        let mut worker = super::tests::worker(
            r#"echo "ready x"; while read l; do echo '{"times":null,"confirmed":null,"error":"no","is_wrong":false,"is_lost":false}'; done"#,
            LONG,
        );
        let expect: Answer = serde_json::from_str(ANSWER).expect("an answer");
        for _ in 0..2 {
            assert_eq!(ask(&mut worker).expect("an answer"), expect);
        }
    }

    #[test]
    fn a_process_that_ends_or_hangs_costs_one_answer() {
        let mut dies = worker("echo 'ready x'; read l; echo 'an illegal address' >&2; exit 3", LONG);
        for _ in 0..2 {
            let error = ask(&mut dies).expect_err("it ends").to_string();
            assert_eq!(error, "the measuring process ended: an illegal address");
        }
        let mut hangs = worker("echo 'ready x'; exec sleep 600", Duration::from_millis(100));
        for _ in 0..2 {
            assert!(matches!(ask(&mut hangs), Err(WorkerError::Hung { .. })));
        }
        let cancel = Cancel::new();
        let mut stopped = worker("echo 'ready x'; exec sleep 600", LONG).until(cancel.clone());
        stopped.start().expect("a process");
        cancel.cancel();
        assert!(matches!(ask(&mut stopped), Err(WorkerError::Cancelled)));
        let error = worker("echo 'error: no device' >&2; exit 3", LONG).start().expect_err("no device");
        assert_eq!(error.to_string(), "error: no device");
    }
}
