//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::{Arg, Parser, ValueExt as _};
use tilewright_run::LoadOptions;
use tilewright_run::profile::By;
use tilewright_run::remote::{Access, How, Serve};

use crate::Failure;

/// What `--help` prints.
const HELP: &str = "\
Runs models that `tilewright compile` has compiled for this machine.

tilewright-run run MODEL.twm [--inputs IN] [--outputs OUT] [--seed N]
    One run; sums the outputs up where they go nowhere.
tilewright-run bench MODEL.twm [--inputs IN] [--seconds S] [--sessions N]
    Times runs for S seconds, 3 if not given, of N sessions at once, each on a thread of its own.
tilewright-run profile MODEL.twm [--inputs IN] [--seconds S] [--by node|kernel|op]
    Tells where the time of a run goes.
tilewright-run measure REQUEST.json
    Times two schedules for a search of `tilewright tune`; the artifacts that the request names lie beside it. Prints the answer
    as JSON, with the digest of the request.
tilewright-run serve [--host HOST] [--port PORT] [--token-file FILE] [--name NAME]
    Lets other machines do the same here: `--remote` there. Whoever reaches the server can run any code as this user, so it
    listens on 127.0.0.1, port 7391, if not told otherwise, and elsewhere only with a token. --port 0 picks a port.
    --limit S are the most seconds of a job [default: 600], --store BYTES the most of uploads [default: 4294967296], --queue N
    the most clients that wait [default: 16].

IN is an .npz with the model's names, an .npy for one input, or a folder of input_J.pb; `bench` and `profile` take seeded
noise without it. OUT is an .npz, an .npy for one output, or a folder of output_J.pb.

    --threads N       threads; results do not depend on it [default: what the process may use]
    --memory-limit N  most bytes for the values of a run [default: no limit]
    --remote HOST:PORT  run on the machine of a server there; MODEL.twm is for that machine
    --token-file FILE   what the server and its clients know [default: $TILEWRIGHT_RPC_TOKEN]
";

/// The verb of the processes that a server starts; it is nobody else's.
const WORK: &str = "work";

/// Most seconds of a measurement: a day.
const MOST_SECONDS: f64 = 86_400.0;

/// Most seconds of a server's jobs: a year.
const MOST_LIMIT: f64 = 31_536_000.0;

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Command {
    /// To print a text.
    Print(String),
    /// A run.
    Run(RunArgs),
    /// Times of runs.
    Bench(BenchArgs),
    /// Where the time of a run goes.
    Profile(ProfileArgs),
    /// A measurement for tuning, by its request.
    Measure(PathBuf),
    /// To serve other machines.
    Serve(Serve),
    /// To do what a server asks for.
    Work,
}

/// What every verb takes.
#[derive(Debug)]
pub(crate) struct ModelArgs {
    pub(crate) model: PathBuf,
    pub(crate) inputs: Option<PathBuf>,
    pub(crate) threads: Option<usize>,
    pub(crate) memory_limit: Option<u64>,
    /// The server whose machine runs the model.
    pub(crate) remote: Option<Access>,
}

/// Arguments of `run`.
#[derive(Debug)]
pub(crate) struct RunArgs {
    pub(crate) of: ModelArgs,
    pub(crate) outputs: Option<PathBuf>,
    pub(crate) seed: u64,
}

/// Arguments of `bench`.
#[derive(Debug)]
pub(crate) struct BenchArgs {
    pub(crate) of: ModelArgs,
    pub(crate) seconds: f64,
    pub(crate) sessions: usize,
}

/// Arguments of `profile`.
#[derive(Debug)]
pub(crate) struct ProfileArgs {
    pub(crate) of: ModelArgs,
    pub(crate) seconds: f64,
    pub(crate) by: By,
}

impl ModelArgs {
    /// How the model is loaded, but for its threads.
    pub(crate) fn options_but_threads(&self) -> LoadOptions {
        let options = LoadOptions::new();
        self.memory_limit.map_or(options.clone(), |bytes| options.memory_limit(bytes))
    }

    /// How a server loads the model.
    pub(crate) fn how(&self, seed: u64) -> How {
        How { threads: self.threads, memory_limit: self.memory_limit, seed, device: None }
    }

    /// How the model is loaded.
    pub(crate) fn options(&self) -> LoadOptions {
        let options = self.options_but_threads();
        self.threads.map_or(options.clone(), |threads| options.threads(threads))
    }
}

/// What was read of the command line.
#[derive(Default)]
struct Given {
    verb: Option<OsString>,
    model: Option<PathBuf>,
    /// Options with their values, by name.
    options: Vec<(String, OsString)>,
}

impl Given {
    fn take(&mut self, name: &str) -> Option<OsString> {
        let at = self.options.iter().position(|(other, _)| other == name)?;
        Some(self.options.remove(at).1)
    }

    fn path(&mut self, name: &str) -> Option<PathBuf> {
        self.take(name).map(PathBuf::from)
    }

    fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        self.take(name).map(|text| text.string().map_err(Failure::usage)).transpose()
    }

    fn value<T>(
        &mut self,
        name: &str,
        read: impl Fn(&str) -> Option<T>,
        what: &str,
    ) -> Result<Option<T>, Failure> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match text.to_str().and_then(read) {
            Some(value) => Ok(Some(value)),
            None => Err(Failure::usage(format!("--{name} {}: not {what}", text.to_string_lossy()))),
        }
    }

    fn number<T: FromStr>(
        &mut self,
        name: &str,
        holds: impl Fn(&T) -> bool,
        what: &str,
    ) -> Result<Option<T>, Failure> {
        self.value(name, |text| text.parse().ok().filter(&holds), what)
    }

    /// Seconds, as JSON writes numbers, or `.5`: what reads JSON is here anyway, and other ways to read floats have tables of their own.
    fn seconds(&mut self, name: &str, most: f64) -> Result<Option<f64>, Failure> {
        let read = |text: &str| {
            let zero = if text.starts_with('.') { "0" } else { "" };
            serde_json::from_str(&format!("{zero}{text}")).ok().filter(|s| (0.0..=most).contains(s))
        };
        self.value(name, read, "a number of seconds")
    }

    fn threads(&mut self, name: &str) -> Result<Option<usize>, Failure> {
        self.number(name, |n| (1..=1024).contains(n), "a number from 1 to 1024")
    }

    fn model(&mut self) -> Result<ModelArgs, Failure> {
        let model = self.model.take().ok_or_else(|| Failure::usage("give a model: MODEL.twm"))?;
        let remote = self.text("remote")?;
        let token_file = if remote.is_some() { self.path("token-file") } else { None };
        Ok(ModelArgs {
            model,
            inputs: self.path("inputs"),
            threads: self.threads("threads")?,
            memory_limit: self.number("memory-limit", |_| true, "a number of bytes")?,
            remote: remote.map(|server| Access { server, token_file }),
        })
    }

    fn serve(&mut self) -> Result<Serve, Failure> {
        if let Some(word) = &self.model {
            return Err(Failure::usage(format!("what is `{}`?", word.display())));
        }
        let default = Serve::default();
        let limit = self.seconds("limit", MOST_LIMIT)?;
        let waiting = self.number("queue", |_| true, "a number")?;
        Ok(Serve {
            host: self.text("host")?.unwrap_or(default.host),
            port: self.number("port", |_| true, "a port, from 0 to 65535")?.unwrap_or(default.port),
            token_file: self.path("token-file"),
            name: self.text("name")?,
            seconds: limit.unwrap_or(default.seconds),
            store: self.number("store", |_| true, "a number of bytes")?.unwrap_or(default.store),
            waiting: waiting.unwrap_or(default.waiting),
            devices: default.devices,
            work: &[WORK],
        })
    }

    fn command(&mut self, verb: &str) -> Result<Command, Failure> {
        match verb {
            "serve" => return Ok(Command::Serve(self.serve()?)),
            "measure" => {
                let request =
                    self.model.take().ok_or_else(|| Failure::usage("give a request: REQUEST.json"))?;
                return Ok(Command::Measure(request));
            }
            WORK => return Ok(Command::Work),
            _ => {}
        }
        let of = self.model()?;
        Ok(match verb {
            "run" => Command::Run(RunArgs {
                of,
                outputs: self.path("outputs"),
                seed: self.number("seed", |_| true, "a number")?.unwrap_or(0),
            }),
            "bench" => Command::Bench(BenchArgs {
                of,
                seconds: self.seconds("seconds", MOST_SECONDS)?.unwrap_or(3.0),
                sessions: self.threads("sessions")?.unwrap_or(1),
            }),
            "profile" => {
                let seconds = self.seconds("seconds", MOST_SECONDS)?.unwrap_or(2.0);
                Command::Profile(ProfileArgs { of, seconds, by: by(self.take("by"))? })
            }
            _ => {
                return Err(Failure::usage(format!(
                    "no verb `{verb}`: there are run, bench, profile, measure and serve"
                )));
            }
        })
    }
}

fn by(text: Option<OsString>) -> Result<By, Failure> {
    match text.as_ref().map(|text| text.to_string_lossy()).as_deref() {
        None | Some("node") => Ok(By::Node),
        Some("kernel") => Ok(By::Kernel),
        Some("op") => Ok(By::Op),
        Some(other) => Err(Failure::usage(format!("--by {other}: there are node, kernel and op"))),
    }
}

/// Reads a command line.
pub(crate) fn parse(mut parser: Parser) -> Result<Command, Failure> {
    let mut given = Given::default();
    while let Some(arg) = parser.next().map_err(Failure::usage)? {
        match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Print(HELP.to_string())),
            Arg::Short('V') | Arg::Long("version") => {
                let text = concat!("tilewright-run ", env!("CARGO_PKG_VERSION"), "\n");
                return Ok(Command::Print(text.to_string()));
            }
            Arg::Value(word) if given.verb.is_none() => given.verb = Some(word),
            Arg::Value(word) if given.model.is_none() => given.model = Some(word.into()),
            Arg::Value(word) => return Err(Failure::usage(format!("what is `{}`?", word.to_string_lossy()))),
            Arg::Short(c) => return Err(Failure::usage(format!("no option -{c}"))),
            Arg::Long(name) => {
                let name = name.to_string();
                let value = parser.value().map_err(Failure::usage)?;
                if given.options.iter().any(|(other, _)| *other == name) {
                    return Err(Failure::usage(format!("--{name} is given twice")));
                }
                given.options.push((name, value));
            }
        }
    }
    let Some(verb) = given.verb.take() else { return Ok(Command::Print(HELP.to_string())) };
    let verb = verb.string().map_err(Failure::usage)?;
    let command = given.command(&verb)?;
    match given.options.first() {
        Some((name, _)) => Err(Failure::usage(format!("`{verb}` has no option --{name}"))),
        None => Ok(command),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, Failure> {
        parse(Parser::from_args(line.split_whitespace()))
    }

    #[test]
    fn options_belong_to_verbs() {
        let Ok(Command::Run(run)) = parsed("run --seed 7 m.twm --outputs=y.npz") else { panic!("a run") };
        assert_eq!((run.seed, run.outputs, run.of.model), (7, Some("y.npz".into()), "m.twm".into()));
        let Ok(Command::Bench(bench)) = parsed("bench m.twm --threads 2 --seconds .5") else {
            panic!("a measurement")
        };
        assert_eq!((bench.of.threads, bench.seconds, bench.sessions), (Some(2), 0.5, 1));
        let Ok(Command::Profile(profile)) = parsed("profile m.twm --by kernel") else { panic!("a profile") };
        assert!(matches!(profile.by, By::Kernel));
        let Ok(Command::Run(run)) = parsed("run m.twm --remote a:1 --token-file t") else { panic!("a run") };
        let access = run.of.remote.map(|access| (access.server, access.token_file));
        assert_eq!(access, Some(("a:1".to_string(), Some("t".into()))));
        let Ok(Command::Serve(serve)) = parsed("serve --port 0 --limit 2.5") else { panic!("a server") };
        assert_eq!((serve.host.as_str(), serve.port, serve.seconds), ("127.0.0.1", 0, 2.5));
        for help in ["", "--help", "run -h"] {
            assert!(matches!(parsed(help), Ok(Command::Print(text)) if text == HELP), "{help}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, expected) in [
            ("run", "give a model: MODEL.twm"),
            ("tune m.twm", "no verb `tune`: there are run, bench, profile, measure and serve"),
            ("measure", "give a request: REQUEST.json"),
            ("measure r.json --threads 2", "`measure` has no option --threads"),
            ("run m.twm n.twm", "what is `n.twm`?"),
            ("run m.twm --seconds 1", "`run` has no option --seconds"),
            ("run m.twm --seed", "missing argument for option '--seed'"),
            ("run m.twm --seed 1 --seed 2", "--seed is given twice"),
            ("bench m.twm --threads 0", "--threads 0: not a number from 1 to 1024"),
            ("bench m.twm --seconds nan", "--seconds nan: not a number of seconds"),
            ("profile m.twm --by line", "--by line: there are node, kernel and op"),
            ("run m.twm -x", "no option -x"),
            ("run m.twm --token-file t", "`run` has no option --token-file"),
            ("serve m.twm", "what is `m.twm`?"),
            ("serve --port 65536", "--port 65536: not a port, from 0 to 65535"),
            ("serve --remote a:1", "`serve` has no option --remote"),
        ] {
            let failure = parsed(line).err().map(|failure| failure.message);
            assert_eq!(failure.as_deref(), Some(expected), "{line}");
        }
    }
}
