//! `tile`: splits, then all outer loops outside all inner ones.

use serde::{Deserialize, Serialize};

use crate::func::Func;
use crate::schedule::{Apply, Reorder, ScheduleError, Split};

/// Splits each of several nested loops by its factor and moves the inner loops inside all outer ones.
///
/// Makes the outer loops, then the inner ones, in the order given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tile {
    /// The loops.
    pub loops: Vec<String>,
    /// The extents of the inner loops.
    pub factors: Vec<i64>,
}

impl Apply for Tile {
    const NAME: &'static str = "tile";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        if self.loops.len() != self.factors.len() {
            let reason = format!("{} factors for {} loops", self.factors.len(), self.loops.len());
            return Err(ScheduleError::new(Self::NAME, &self.loops.join(", "), reason));
        }
        let (mut outer, mut inner) = (Vec::new(), Vec::new());
        for (name, factor) in self.loops.iter().zip(&self.factors) {
            let split = Split { loop_name: name.clone(), factors: vec![None, Some(*factor)] };
            let mut made = split.apply(func)?.into_iter();
            outer.extend(made.next());
            inner.extend(made.next());
        }
        let loops = [outer, inner].concat();
        Reorder { loops: loops.clone() }.apply(func)?;
        Ok(loops)
    }
}
