//! Golden files of schedules: each file under `tests/schedules` holds a function, for what to schedule it, and what comes of it.
//!
//! The first line, `show: SECTION..`, names what is shown. After the function and a line `----` comes a transcript: lines at the margin
//! are cases, the indented ones after them what comes of it; `BLESS=1` rewrites these. A case is
//!
//! ```text
//! for TARGET, constant PARAMETER, PARAMETER as aBcd16b, POINT = VALUE, ..
//! ```
//!
//! with the inputs that are constants, layouts (a letter a piece of a dimension, capital where it has inner pieces, an inner one with its
//! number of values), and decisions. Sections:
//!
//! - `rules`: which rule took each block, and why those before it did not;
//! - `strategies`: what was to be done, as `--dump-after strategies` prints it;
//! - `decisions`: what was chosen, of what;
//! - `trace`: the primitives, one a line;
//! - `loops`: the scheduled function;
//! - `hints`: the loops that prefetch, each below those around it;
//! - `buffers`: temporaries with their shapes and places.
//!
//! Whether schedules compute what functions do is tested by running them, in `rules.rs`; here is what they look like.

#[path = "../../../tools/golden_files.rs"]
mod golden_files;

use std::fmt::Write;

use tilewright_autosched::{Decisions, Scheduled, schedule};
use tilewright_machine::Target;
use tilewright_te::schedule::{Piece, Primitive};
use tilewright_te::{Computation, Func, Layout, Scope, Stmt};

/// A layout from its name: `aBcd16b`.
fn layout(name: &str) -> Layout {
    let mut pieces = Vec::new();
    let mut factor = None;
    for c in name.chars() {
        match c.to_digit(10) {
            Some(digit) => factor = Some(factor.unwrap_or(0) * 10 + i64::from(digit)),
            None => {
                let dim = c.to_ascii_lowercase() as usize - 'a' as usize;
                pieces.push(Piece { dim, factor: factor.take() });
            }
        }
    }
    Some(pieces)
}

/// What comes of a case: its sections, indented below their names.
fn outcome(text: &str, case: &str, show: &[&str]) -> String {
    let func: Func = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut parts = case.strip_prefix("for ").expect("`for TARGET`").split(", ");
    let target: Target = parts.next().and_then(|target| target.parse().ok()).expect("a target");
    let mut computation = Computation::of(func.clone());
    computation.constant_inputs = vec![false; func.n_inputs];
    computation.layouts = vec![None; func.params.len()];
    let param = |name: &str| {
        let is_named = |&param: &tilewright_te::Buffer| func.buffers[param].name == name;
        func.params.iter().position(is_named).unwrap_or_else(|| panic!("there is no parameter `{name}`"))
    };
    let mut decisions = Decisions::default();
    for part in parts {
        if let Some((point, value)) = part.split_once(" = ") {
            decisions.set(point, value);
        } else if let Some((name, pieces)) = part.split_once(" as ") {
            computation.layouts[param(name)] = layout(pieces);
        } else {
            let constant = part.strip_prefix("constant ").unwrap_or_else(|| panic!("what is `{part}`?"));
            computation.constant_inputs[param(constant)] = true;
        }
    }
    let scheduled = match schedule(&computation, &target, &decisions) {
        Ok(scheduled) => scheduled,
        Err(error) => return format!("error: {error}\n"),
    };
    let indented = |text: String| text.lines().map(|line| format!("  {line}\n")).collect::<String>();
    show.iter().map(|name| format!("{name}\n{}", indented(section(name, &scheduled)))).collect()
}

fn section(name: &str, scheduled: &Scheduled) -> String {
    let lines = |lines: Vec<String>| lines.into_iter().map(|line| line + "\n").collect::<String>();
    match name {
        "rules" => lines(scheduled.rulings.iter().map(ToString::to_string).collect()),
        "strategies" => scheduled.strategy.clone(),
        "decisions" => {
            let decision = |d: &tilewright_autosched::Decision| {
                let values: Vec<&str> =
                    d.candidates.iter().map(|candidate| candidate.value.as_str()).collect();
                format!("{} = {} of {}", d.point, values[d.chosen], values.join(" "))
            };
            lines(scheduled.decisions.iter().map(decision).collect())
        }
        "trace" => lines(scheduled.trace.iter().map(primitive).collect()),
        "loops" => scheduled.func.to_string(),
        "hints" => hints(&scheduled.func.to_string()),
        "buffers" => {
            let func = &scheduled.func;
            let temporaries = func.buffers.iter().filter(|(buffer, _)| !func.params.contains(buffer));
            let written = |buffer| blocks_store(&func.body, buffer);
            let shape = |data: &tilewright_te::BufferData| {
                data.shape
                    .iter()
                    .map(|e| e.as_int().map_or("?".into(), |n| n.to_string()))
                    .collect::<Vec<_>>()
            };
            let place = |scope| match scope {
                Scope::Global => "global",
                Scope::Shared => "shared",
                Scope::Stack => "stack",
                Scope::Register => "register",
            };
            let show = temporaries.filter(|(buffer, _)| written(*buffer)).map(|(_, data)| {
                format!("{}: {}[{}] {}", data.name, data.dtype, shape(data).join(", "), place(data.scope))
            });
            lines(show.collect())
        }
        other => panic!("there is no section `{other}`"),
    }
}

fn blocks_store(stmts: &[Stmt], buffer: tilewright_te::Buffer) -> bool {
    stmts.iter().any(|stmt| match stmt {
        Stmt::Loop(l) => blocks_store(&l.body, buffer),
        Stmt::Block(block) => block.init.iter().chain(&block.body).any(|store| store.buffer == buffer),
    })
}

/// A primitive as `split factors=[null,8] loop_name="i"`.
fn primitive(primitive: &Primitive) -> String {
    let json = serde_json::to_value(primitive).expect("it is serialised");
    let fields =
        json.as_object().and_then(|variant| variant.values().next()).and_then(|fields| fields.as_object());
    let fields = fields.into_iter().flatten().map(|(name, value)| format!(" {name}={value}"));
    format!("{}{}", primitive.name(), fields.collect::<String>())
}

/// Of a function's text the loops that prefetch and those around them.
fn hints(text: &str) -> String {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("for ")).collect();
    let is_around = |at: usize| {
        let inside = lines[at + 1..].iter().take_while(|line| depth(line) > depth(lines[at]));
        inside.into_iter().any(|line| line.contains(" prefetch "))
    };
    let shown = (0..lines.len()).filter(|&at| lines[at].contains(" prefetch ") || is_around(at));
    let shown: String = shown.map(|at| format!("{}\n", lines[at].trim_end_matches(" {"))).collect();
    if shown.is_empty() { "none\n".into() } else { shown }
}

/// The transcript with what comes of each of its cases now.
fn replay(func: &str, transcript: &str, show: &[&str]) -> String {
    let mut out = String::new();
    for case in transcript.lines().filter(|line| !line.starts_with(' ') && !line.is_empty()) {
        writeln!(out, "{case}").expect("a string");
        if !case.starts_with("//") {
            let lines = outcome(func, case, show);
            lines.lines().for_each(|line| writeln!(out, "  {line}").expect("a string"));
        }
    }
    out
}

#[test]
fn files() {
    golden_files::check("tests/schedules", 10, |input, transcript| {
        let (head, func) = input.split_once('\n').expect("a first line");
        let show = head.strip_prefix("show:").expect("`show: SECTION..`");
        replay(func, transcript, &show.split_whitespace().collect::<Vec<_>>())
    });
}
