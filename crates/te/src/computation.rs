//! What scheduling starts from: a function, other functions of the same meaning, and what is known of the parameters.

use serde::{Deserialize, Serialize};

use crate::func::Func;
use crate::schedule::Piece;

/// How an input or output of a function is laid out: `None` is row-major.
pub type Layout = Option<Vec<Piece>>;

/// A function to be scheduled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Computation {
    /// The function as its operators define it; unscheduled.
    pub func: Func,
    /// Other algorithms for the same results, up to rounding.
    pub variants: Vec<Variant>,
    /// Which inputs are constants in every call: their layout is the schedule's to choose.
    pub constant_inputs: Vec<bool>,
    /// How each parameter is laid out; missing ones are row-major.
    pub layouts: Vec<Layout>,
}

/// Another way to compute what a function computes. Its parameters are the function's, but for constants that it wants
/// in another form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Variant {
    /// Name of the algorithm.
    pub algorithm: String,
    /// The function; unscheduled.
    pub func: Func,
    /// For each input the function that makes it of the constant that [`Computation::func`] takes there; `None` where it
    /// is the same.
    pub prepare: Vec<Option<Func>>,
}

/// Name of the algorithm that operators are defined by.
pub const DIRECT: &str = "direct";

impl Computation {
    /// A function without constants or layouts, in its only variant.
    pub fn of(func: Func) -> Computation {
        Computation { func, variants: Vec::new(), constant_inputs: Vec::new(), layouts: Vec::new() }
    }
}
