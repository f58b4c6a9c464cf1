//! Tuning on three servers for boards, on loopback: each schedule has one record, while one server is killed and started again time after
//! time, and another stands still for a minute.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::project;
use crate::tally::Tally;

/// How often the first server is killed.
const KILLS: usize = 20;
/// Records from one of these times to the next.
const RECORDS_A_KILL: usize = 7;
/// Schedules to measure: enough for the search to go on when the last server was killed.
const TRIALS: usize = KILLS * RECORDS_A_KILL * 3 / 2;
/// Images at once: kernels long enough that servers are killed while they run.
const BATCH: &str = "batch=64";
/// The second server is stopped after as many records, for so long.
const RECORDS_TO_STOP: usize = 10;
const STOPPED: Duration = Duration::from_secs(60);
/// A search that takes longer hangs.
const MOST: Duration = Duration::from_secs(900);

/// A server, which ends with this.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// One on a port; on any that is free for 0.
    fn start(program: &Path, port: &str) -> anyhow::Result<Server> {
        // A server that is killed leaves what was sent to it.
        let left = folder().join("servers");
        std::fs::create_dir_all(&left)?;
        let mut command = Command::new(program);
        let mut child = command
            .args(["serve", "--port", port, "--name", "board"])
            .env("TMPDIR", left)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.as_mut().context("the server has no standard output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().strip_prefix("serving on ").context("the server does not serve")?;
        Ok(Server { address: address.to_owned(), child })
    }

    /// Kills it, and starts another one on its port.
    fn replace(&mut self, program: &Path) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        let (_, port) = self.address.rsplit_once(':').context("an address without a port")?;
        let next = Server::start(program, port)?;
        *self = next;
        Ok(())
    }

    fn signal(&self, signal: &str) -> anyhow::Result<()> {
        project::run(Command::new("kill").arg(signal).arg(self.child.id().to_string()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have been killed.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What the servers must show. `server` is the program for boards, which the system has to start by itself, as servers start it for each
/// of their jobs.
pub(super) fn check(program: &Path, server: &Path, machine: &str) -> anyhow::Result<Tally> {
    let starts = Command::new(server).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !starts.is_ok_and(|status| status.success()) {
        println!(
            "skipped: servers for {machine}: the system starts no programs for it; install binfmt-support"
        );
        return Ok(Tally { skipped: 1, ..Tally::default() });
    }
    let told = tune(program, server, machine);
    match &told {
        Ok(stopped) => println!(
            "servers for {machine}: {TRIALS} records, {KILLS} kills; the second stood still for {} s",
            stopped.as_secs()
        ),
        Err(why) => println!("servers for {machine}: failed: {why:#}"),
    }
    Ok(Tally::of_check(told.is_ok()))
}

fn folder() -> PathBuf {
    project::target_dir().join("boards")
}

/// How long the second server stood still.
fn tune(program: &Path, server: &Path, machine: &str) -> anyhow::Result<Duration> {
    let folder = folder();
    if folder.join("servers").exists() {
        std::fs::remove_dir_all(folder.join("servers"))?;
    }
    std::fs::create_dir_all(&folder)?;
    let database = folder.join(format!("servers-{machine}.jsonl"));
    if database.exists() {
        std::fs::remove_file(&database)?;
    }
    let mut servers = (0..3).map(|_| Server::start(server, "0")).collect::<anyhow::Result<Vec<_>>>()?;
    let addresses: Vec<&str> = servers.iter().map(|server| &*server.address).collect();
    let log = File::create(database.with_extension("log"))?;
    let mut search = Command::new(program);
    search.arg("tune").arg(project::path("examples/digits/digits.onnx"));
    search.args(["--dim", BATCH, "--target", machine, "--trials", &TRIALS.to_string()]);
    search.arg("--database").arg(&database).args(["--remote", &addresses.join(",")]);
    let mut search = search.stdout(log.try_clone()?).stderr(log).spawn()?;
    let disturbed = disturb(&mut search, &mut servers, server, &database);
    // What could not be disturbed is not to go on by itself.
    _ = search.kill();
    let Disturbed { kills, stopped } = disturbed?;
    ensure!(search.wait()?.success(), "the search fails: {}", database.with_extension("log").display());
    ensure!(kills == KILLS, "{kills} kills");
    let trials = trials(&database)?;
    let different: BTreeSet<&String> = trials.iter().collect();
    ensure!(trials.len() == TRIALS, "{} records of {TRIALS}", trials.len());
    ensure!(different.len() == TRIALS, "{} records are there twice", TRIALS - different.len());
    Ok(stopped)
}

/// What servers went through in a search.
struct Disturbed {
    /// How often the first was killed.
    kills: usize,
    /// How long the second stood still, at most [`STOPPED`]: to the end of a search that ends first.
    stopped: Duration,
}

/// Kills and stops servers until the search ends.
fn disturb(
    search: &mut Child,
    servers: &mut [Server],
    program: &Path,
    database: &Path,
) -> anyhow::Result<Disturbed> {
    let begin = Instant::now();
    let (mut kills, mut since, mut stopped) = (0, None, Duration::ZERO);
    // Moments that are seeded, so that a failure can be looked at again.
    let mut random = 1u64;
    loop {
        if search.try_wait()?.is_some() {
            return Ok(Disturbed { kills, stopped });
        }
        if begin.elapsed() > MOST {
            bail!("the search does not end");
        }
        let records = trials(database).map_or(0, |trials| trials.len());
        match since {
            None if records >= RECORDS_TO_STOP => {
                servers[1].signal("-STOP")?;
                since = Some(Instant::now());
            }
            Some(since) if stopped < STOPPED => {
                stopped = since.elapsed();
                if stopped >= STOPPED {
                    servers[1].signal("-CONT")?;
                }
            }
            None | Some(_) => {}
        }
        if kills < KILLS && records >= (kills + 1) * RECORDS_A_KILL {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            thread::sleep(Duration::from_millis((random >> 33) % 1000));
            servers[0].replace(program)?;
            kills += 1;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Function and decisions of each schedule that was measured, or could not be. Those of a confirmed gain have another record for that.
fn trials(database: &Path) -> anyhow::Result<Vec<String>> {
    let mut trials = Vec::new();
    for line in std::fs::read_to_string(database)?.lines() {
        // The last line may be half written.
        let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let entry = &line["entry"];
        if entry["finding"] == "trial" || entry["finding"] == "failed" {
            trials.push(format!("{} {}", entry["function"], entry["decisions"]));
        }
    }
    Ok(trials)
}
