//! One case of a suite: what it expects, how it is run, and what came of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::compare::{Tolerance, compare};
use crate::project;
use crate::tensor::{self, Value, ValueKind};

/// The suites, in the order of the table, and how many cases each has in the pinned version of onnx.
pub(super) const SUITES: [(&str, usize); 5] =
    [("node", 1884), ("simple", 23), ("light", 9), ("pytorch-operator", 35), ("pytorch-converted", 82)];

/// A case that takes longer hangs.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// The same on a device or another machine, which the processor may play the part of: whole networks take their time there.
const TIME_LIMIT_ELSEWHERE: Duration = Duration::from_secs(240);

/// Exit codes of `tilewright`, as its manual states them.
const EXIT_UNSUPPORTED: i32 = 3;
const EXIT_INTERNAL: i32 = 70;

/// A case as `case.json` describes it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// SUITE/CASE.
    pub(crate) name: String,
    /// The operator under test.
    pub(crate) operator: String,
    /// Whether it counts as one that a tensor compiler can be held to.
    pub(crate) core: bool,
    comparable: bool,
    tolerance: Tolerance,
    outputs: Vec<ValueKind>,
    dir: PathBuf,
}

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Every output as expected.
    Pass,
    /// Ran, or refused a valid model as invalid: what is wrong.
    Wrong(String),
    /// The compiler itself said that it cannot: its reason.
    Unsupported(String),
    /// Died, hung, or reported a bug of its own: how.
    Crashed(String),
    /// Ran, and the expected output is random.
    NotComparable,
}

impl Outcome {
    /// The heading of its column.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Wrong(_) => "wrong",
            Outcome::Unsupported(_) => "unsupported",
            Outcome::Crashed(_) => "crashed",
            Outcome::NotComparable => "not comparable",
        }
    }

    /// Whether the case shows a fault of ours.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Outcome::Wrong(_) | Outcome::Crashed(_))
    }

    /// What there is to say beyond the label.
    pub(crate) fn message(&self) -> &str {
        match self {
            Outcome::Wrong(message) | Outcome::Unsupported(message) | Outcome::Crashed(message) => message,
            Outcome::Pass | Outcome::NotComparable => "",
        }
    }
}

impl Case {
    /// Reads `case.json` of SUITE/CASE below the suites' folder.
    pub(crate) fn load(suites: &Path, name: String) -> anyhow::Result<Case> {
        let dir = suites.join(&name);
        let text = std::fs::read_to_string(dir.join("case.json")).with_context(|| name.clone())?;
        Case::parse(name, dir, &text)
    }

    fn parse(name: String, dir: PathBuf, text: &str) -> anyhow::Result<Case> {
        let json: serde_json::Value = serde_json::from_str(text).with_context(|| name.clone())?;
        let field = |key: &str| json.get(key).with_context(|| format!("{name}: case.json lacks {key}"));
        let number = |key: &str| field(key)?.as_f64().with_context(|| format!("{name}: {key} is no number"));
        let flag = |key: &str| field(key)?.as_bool().with_context(|| format!("{name}: {key} is no bool"));
        let operator = field("operator")?.as_str().context("operator is no string")?.to_string();
        let outputs = field("outputs")?.as_array().context("outputs is no list")?;
        let outputs = outputs.iter().map(kind_of).collect::<anyhow::Result<_>>()?;
        let tolerance = Tolerance { relative: number("rtol")?, absolute: number("atol")? };
        let (core, comparable) = (flag("core")?, flag("comparable")?);
        Ok(Case { name, operator, core, comparable, tolerance, outputs, dir })
    }

    /// A case with nothing to run, for the tests of reports.
    #[cfg(test)]
    pub(crate) fn for_report(name: &str, operator: &str, core: bool) -> Case {
        let tolerance = Tolerance { relative: 0.0, absolute: 0.0 };
        let (name, operator) = (name.to_string(), operator.to_string());
        Case { name, operator, core, comparable: true, tolerance, outputs: Vec::new(), dir: PathBuf::new() }
    }

    fn read_outputs(&self, dir: &Path) -> anyhow::Result<Vec<Value>> {
        let outputs = self.outputs.iter().enumerate();
        outputs.map(|(j, &kind)| tensor::read(&dir.join(format!("output_{j}.pb")), kind)).collect()
    }

    fn judge(&self, expected: &Path, got: &Path) -> Outcome {
        let expected = match self.read_outputs(expected) {
            Ok(values) => values,
            Err(error) => return Outcome::Wrong(format!("the suite's own data: {error:#}")),
        };
        let got = match self.read_outputs(got) {
            Ok(values) => values,
            Err(error) => return Outcome::Wrong(format!("{error:#}")),
        };
        let mut pairs = expected.iter().zip(&got).enumerate();
        let fault = pairs.find_map(|(j, (expected, got))| {
            compare(expected, got, self.tolerance).err().map(|fault| format!("output {j}: {fault}"))
        });
        fault.map_or(Outcome::Pass, Outcome::Wrong)
    }
}

fn kind_of(name: &serde_json::Value) -> anyhow::Result<ValueKind> {
    match name.as_str() {
        Some("tensor") => Ok(ValueKind::Tensor),
        Some("sequence") => Ok(ValueKind::Sequence),
        Some("optional") => Ok(ValueKind::Optional),
        _ => bail!("unknown kind of output {name}"),
    }
}

/// What makes the code of cases, and what runs it.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    /// The code generator for the processor.
    pub(crate) codegen: String,
    /// The device, if not the processor alone.
    pub(crate) device: Option<String>,
    /// Another machine, if not this one.
    pub(crate) board: Option<Board>,
}

/// A machine that is not this one, and what plays its part here.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    /// What models are compiled for.
    pub(crate) machine: String,
    /// The words before `run`: an emulator with a program that runs models.
    pub(crate) runner: Vec<OsString>,
}

impl Backend {
    /// A code generator for the processor alone.
    pub(crate) fn of(codegen: &str) -> Backend {
        Backend { codegen: codegen.to_string(), device: None, board: None }
    }

    /// Its name among outputs.
    pub(crate) fn folder(&self) -> String {
        match &self.board {
            Some(board) => format!("{}-{}", self.name(), board.machine),
            None => self.name().to_string(),
        }
    }

    /// The name of the list of cases that pass: the device's, else the code generator's. On another machine the same pass.
    pub(crate) fn name(&self) -> &str {
        self.device.as_deref().unwrap_or(&self.codegen)
    }
}

/// Runs cases with one program.
pub(crate) struct Runner {
    /// The `tilewright` program.
    pub(crate) program: PathBuf,
    /// What it compiles for.
    pub(crate) backend: Backend,
    /// Where outputs go, a folder a case.
    pub(crate) outputs: PathBuf,
}

impl Runner {
    /// Runs every data set of a case; the first that does not pass is the outcome.
    pub(crate) fn run(&self, case: &Case) -> Outcome {
        for number in 0.. {
            let data = case.dir.join(format!("test_data_set_{number}"));
            if !data.exists() {
                break;
            }
            match self.run_data_set(case, &data) {
                Ok(Outcome::Pass) => {}
                Ok(other) => return other,
                Err(error) => return Outcome::Crashed(format!("cannot run the case: {error:#}")),
            }
        }
        Outcome::Pass
    }

    fn run_data_set(&self, case: &Case, data: &Path) -> anyhow::Result<Outcome> {
        let outputs = self.outputs.join(&case.name);
        if outputs.exists() {
            std::fs::remove_dir_all(&outputs)?;
        }
        std::fs::create_dir_all(&outputs)?;
        let mut outcome = None;
        for mut command in self.commands(&case.dir.join("model.onnx"), data, &outputs) {
            outcome = self.outcome(&mut command, &outputs.join("messages.txt"))?;
            if outcome.is_some() {
                break;
            }
        }
        Ok(match outcome {
            Some(Outcome::Crashed(how)) => Outcome::Crashed(how),
            _ if !case.comparable => Outcome::NotComparable,
            Some(other) => other,
            None => case.judge(data, &outputs),
        })
    }

    /// What runs a model on a data set: one command, or on another machine one that compiles and one that runs.
    fn commands(&self, model: &Path, data: &Path, outputs: &Path) -> Vec<Command> {
        let Backend { codegen, device, board } = &self.backend;
        let on_data = |command: &mut Command| {
            command.arg("--inputs").arg(data).arg("--outputs").arg(outputs).args(["--threads", "1"]);
        };
        let compiling = ["--codegen", codegen, "--no-cache"];
        let mut first = project::command(&self.program);
        let Some(Board { machine, runner }) = board else {
            first.arg("run").arg(model);
            on_data(&mut first);
            first.args(compiling).args(device.iter().flat_map(|device| ["--device", device]));
            return vec![first];
        };
        let artifact = outputs.join("model.twm");
        first.arg("compile").arg(model).args(compiling).args(["--target", machine]).arg("-o").arg(&artifact);
        let mut words = runner.iter();
        let mut second = project::command(words.next().map_or(OsStr::new(""), OsString::as_os_str));
        second.args(words).arg("run").arg(&artifact);
        on_data(&mut second);
        vec![first, second]
    }

    /// What the end of a command alone decides; `None` where the outputs do.
    fn outcome(&self, command: &mut Command, messages: &Path) -> anyhow::Result<Option<Outcome>> {
        command.stdout(Stdio::null()).stderr(File::create(messages)?);
        let is_here = self.backend.device.is_none() && self.backend.board.is_none();
        let limit = if is_here { TIME_LIMIT } else { TIME_LIMIT_ELSEWHERE };
        let status = wait(command.spawn()?, limit)?;
        let messages = String::from_utf8_lossy(&std::fs::read(messages)?).into_owned();
        Ok(outcome_of_exit(status, &messages, limit))
    }
}

/// Waits for the end of a process; `None` is one that had to be ended.
fn wait(mut child: std::process::Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// What the exit status alone decides; `None` where the outputs do.
fn outcome_of_exit(status: Option<ExitStatus>, messages: &str, limit: Duration) -> Option<Outcome> {
    let said = messages.split_whitespace().collect::<Vec<_>>().join(" ");
    let Some(status) = status else {
        return Some(Outcome::Crashed(format!("no end after {} s", limit.as_secs())));
    };
    match status.code() {
        Some(0) => None,
        Some(EXIT_UNSUPPORTED) => Some(Outcome::Unsupported(said)),
        // 101 is the exit code of a Rust panic that nothing caught.
        Some(code @ (EXIT_INTERNAL | 101)) => Some(Outcome::Crashed(format!("exit code {code}: {said}"))),
        Some(code) => Some(Outcome::Wrong(format!("a valid model refused with exit code {code}: {said}"))),
        None => Some(Outcome::Crashed(format!("{status}: {said}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"rtol": 0.001, "atol": 1e-7, "operator": "Add", "core": true, "comparable": COMPARABLE,
        "outputs": ["tensor"]}"#;

    /// Lets a shell script stand in for the program on a case that expects the uint8 tensor [7].
    fn check(script: &str, comparable: bool, expect: impl Fn(&Outcome) -> bool) {
        check_with(project::path(STAND_IN), Backend::of("cranelift"), script, comparable, expect);
    }

    const STAND_IN: &str = "xtask/data/stand-in.sh";

    fn check_with(
        program: PathBuf,
        backend: Backend,
        script: &str,
        comparable: bool,
        expect: impl Fn(&Outcome) -> bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("node/test_x/test_data_set_0");
        std::fs::create_dir_all(&data).unwrap();
        std::fs::write(data.join("output_0.pb"), [0x08, 1, 0x10, 2, 0x4a, 1, 7]).unwrap();
        std::fs::write(data.join("script.sh"), script).unwrap();
        let json = JSON.replace("COMPARABLE", &comparable.to_string());
        let case = Case::parse("node/test_x".into(), dir.path().join("node/test_x"), &json).unwrap();
        let runner = Runner { program, backend, outputs: dir.path().join("outputs") };
        let outcome = runner.run(&case);
        assert!(expect(&outcome), "{outcome:?}");
    }

    #[test]
    fn equal_outputs_pass() {
        check("cp $DATA/output_0.pb $OUT/", true, |outcome| *outcome == Outcome::Pass);
    }

    #[test]
    fn other_or_missing_outputs_are_wrong() {
        let other = r"printf '\010\001\020\002\112\001\010' > $OUT/output_0.pb";
        check(other, true, |outcome| {
            outcome.message() == "output 0: element [0] is 8, expected 7 (1 of 1 differ)"
        });
        check("true", true, |outcome| matches!(outcome, Outcome::Wrong(m) if m.contains("cannot read")));
    }

    #[test]
    fn exit_codes_are_outcomes() {
        let said = Outcome::Unsupported("no operator Foo (opset 9)".into());
        check("echo 'no operator Foo\n  (opset 9)' >&2; exit 3", true, |outcome| *outcome == said);
        check("exit 5", true, |outcome| matches!(outcome, Outcome::Wrong(m) if m.contains("exit code 5")));
        check("echo bug >&2; exit 70", true, |outcome| {
            *outcome == Outcome::Crashed("exit code 70: bug".into())
        });
        check(
            "kill -11 $$",
            true,
            |outcome| matches!(outcome, Outcome::Crashed(m) if m.contains("signal: 11")),
        );
    }

    /// On another machine one program compiles and another runs: what either says is the outcome.
    #[test]
    fn on_another_machine_two_programs_have_to_succeed() {
        let on_board = |compiler: &str, script: &str, expected: &Outcome| {
            let runner = vec!["sh".into(), project::path(STAND_IN).into()];
            let board = Some(Board { machine: "aarch64".to_string(), runner });
            let backend = Backend { board, ..Backend::of("cranelift") };
            check_with(compiler.into(), backend, script, true, |outcome| outcome == expected);
        };
        on_board("true", "cp $DATA/output_0.pb $OUT/", &Outcome::Pass);
        on_board("true", "echo no regex >&2; exit 3", &Outcome::Unsupported("no regex".into()));
        let refused = Outcome::Wrong("a valid model refused with exit code 1: ".into());
        on_board("false", "cp $DATA/output_0.pb $OUT/", &refused);
    }

    #[test]
    fn random_outputs_are_not_compared_but_crashes_still_count() {
        check("true", false, |outcome| *outcome == Outcome::NotComparable);
        check("exit 101", false, |outcome| matches!(outcome, Outcome::Crashed(_)));
    }

    #[test]
    fn a_process_that_hangs_is_ended() {
        let child = project::command("sleep").arg("60").spawn().unwrap();
        assert_eq!(wait(child, Duration::from_millis(5)).unwrap(), None);
        assert!(
            matches!(outcome_of_exit(None, "", TIME_LIMIT), Some(Outcome::Crashed(how)) if how == "no end after 60 s")
        );
    }
}
