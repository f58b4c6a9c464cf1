//! Where the time of a run goes, in the names of the model: times of instructions, rows that sum them up, one run as a trace,
//! and who reads what whom wrote.

mod graph;
mod measure;
mod report;
mod rows;
mod table;
mod trace;

pub use graph::{Spot, edges, layout};
pub use measure::{Amount, OfDevice, Profile, measure};
pub use report::Report;
pub use rows::{By, Grouped, LeastSeconds, Row, grouped, kind, rows};
pub use table::{short, text};
pub use trace::{Share, Span, Trace, TracePool, trace};
