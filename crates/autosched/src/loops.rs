//! Loops by their names, as strategies apply to them.

use tilewright_te::IterKind;
use tilewright_te::schedule::{Schedule, ScheduleError};

/// The loops that drive a block's variables of a kind, outermost first.
pub(crate) fn loops_of(
    schedule: &Schedule,
    block: &str,
    kind: IterKind,
) -> Result<Vec<String>, ScheduleError> {
    let loops = schedule.loops(block)?.into_iter();
    Ok(loops.filter(|l| l.iter_kind == Some(kind)).map(|l| l.name).collect())
}

/// One loop of several, each directly inside the one before.
pub(crate) fn joined(schedule: &mut Schedule, loops: &[String]) -> Result<String, ScheduleError> {
    match loops {
        [one] => Ok(one.clone()),
        many => schedule.fuse(&many.iter().map(String::as_str).collect::<Vec<_>>()),
    }
}
