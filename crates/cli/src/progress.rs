//! What is shown while a model is compiled: a progress bar, and the stages asked for.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tilewright_driver::CompileObserver;
use tilewright_driver::options::is_schedule_stage;

use crate::failure::Failure;
use crate::output;

/// Work shorter than this is not worth a bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Watches a compilation. The bar is drawn on a terminal only.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    start: Instant,
    steps: Vec<(&'static str, Duration)>,
    dump: Vec<String>,
    stages: Vec<String>,
    passes: Vec<String>,
    keep: Option<&'static str>,
    kept: Option<String>,
}

impl Progress {
    /// Prints the stages named in `dump` to standard error.
    pub(crate) fn new(dump: &[String]) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
            // The template is a constant; without it the default one serves.
            if let Ok(style) = ProgressStyle::with_template("{msg:9} [{bar:30}] {pos}/{len} {elapsed}") {
                bar.set_style(style);
            }
            bar
        });
        Progress {
            bar,
            start: Instant::now(),
            steps: Vec::new(),
            dump: dump.to_vec(),
            stages: Vec::new(),
            passes: Vec::new(),
            keep: None,
            kept: None,
        }
    }

    /// Keeps the text of a stage.
    pub(crate) fn keeping(mut self, stage: &'static str) -> Progress {
        self.keep = Some(stage);
        self
    }

    /// The text of the stage kept.
    pub(crate) fn kept(&mut self) -> Option<String> {
        self.kept.take()
    }

    /// Names and times of the steps, in order.
    pub(crate) fn steps(&self) -> &[(&'static str, Duration)] {
        &self.steps
    }

    /// Time since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Ends the bar; a usage error if a stage or pass asked for does not exist.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let is_known =
            |name: &String| name == "all" || self.stages.contains(name) || self.passes.contains(name);
        let Some(name) = self.dump.iter().find(|name| !is_known(name)) else { return Ok(()) };
        let (stages, passes) = (self.stages.join(", "), self.passes.join(", "));
        let message = format!(
            "--dump-after: no stage `{name}`; there are {stages} and all, and the graph passes {passes}"
        );
        Err(Failure::usage(message))
    }

    /// Prints to standard error, not into the bar.
    fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(text)),
            None => output::note(text),
        }
    }

    /// Shows the bar once the work has taken long enough.
    fn draw(&self) {
        if let Some(bar) = &self.bar
            && bar.is_hidden()
            && self.start.elapsed() > PATIENCE
        {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(Duration::from_millis(100));
        }
    }
}

impl CompileObserver for Progress {
    fn step(&mut self, name: &'static str) {
        if let Some(bar) = &self.bar {
            bar.set_message(name);
        }
        self.draw();
    }

    fn step_done(&mut self, name: &'static str, elapsed: Duration) {
        // Steps that depend on the target run once for each.
        match self.steps.iter_mut().find(|(step, _)| *step == name) {
            Some((_, total)) => *total += elapsed,
            None => self.steps.push((name, elapsed)),
        }
        self.draw();
    }

    fn stage(&mut self, name: &str, text: &dyn Fn() -> String) {
        if !self.stages.iter().any(|stage| stage == name) {
            self.stages.push(name.to_string());
        }
        if self.keep == Some(name) {
            self.kept = Some(text());
        }
        if self.dump.iter().any(|stage| stage == name || stage == "all") {
            let text = format!("==== after {name}\n{}\n", text());
            self.note(&text);
        }
    }

    fn pass(&mut self, name: &str, changed: bool, text: &dyn Fn() -> String) {
        if !self.passes.iter().any(|pass| pass == name) {
            self.passes.push(name.to_string());
        }
        if self.dump.iter().any(|pass| pass == name) {
            let text = if changed { text() } else { "no change\n".to_string() };
            self.note(&format!("==== after {name}\n{text}\n"));
        }
    }

    fn shows_schedules(&self) -> bool {
        let is_schedule = |stage: &str| stage == "all" || is_schedule_stage(stage);
        self.keep.is_some_and(is_schedule) || self.dump.iter().any(|stage| is_schedule(stage))
    }

    fn warning(&mut self, text: &str) {
        self.note(&format!("warning: {text}\n"));
    }

    fn remark(&mut self, text: &str) {
        self.note(&format!("{text}\n"));
    }

    fn kernels(&mut self, done: usize, total: usize) {
        if let Some(bar) = &self.bar {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
        self.draw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(dump: &[&str]) -> Progress {
        let dump: Vec<String> = dump.iter().map(ToString::to_string).collect();
        let mut progress = Progress::new(&dump).keeping("lower");
        progress.stage("import", &|| String::new());
        progress.pass("sink", false, &|| String::new());
        progress.stage("lower", &|| "text".to_string());
        progress
    }

    #[test]
    fn a_stage_that_never_came_is_a_usage_error_that_names_those_that_did() {
        let failure = watched(&["lowr"]).finish().unwrap_err();
        assert_eq!(failure.code, 2);
        let expected =
            "--dump-after: no stage `lowr`; there are import, lower and all, and the graph passes sink";
        assert_eq!(failure.message, expected);
        assert!(watched(&[]).finish().is_ok());
        assert!(watched(&["sink", "all"]).finish().is_ok());
    }

    #[test]
    fn one_stage_can_be_kept() {
        assert_eq!(watched(&[]).kept().as_deref(), Some("text"));
    }
}
