//! Graph IR: typed operators over symbolic shapes, inference, verifier, text form, passes.
//!
//! A [`Graph`] holds nodes, values and regions in arenas; a node applies an [`Op`] from the closed operator
//! table to values whose [`Type`]s have symbolic extents ([`Dim`]).

pub mod cost;
pub mod cut;
pub mod dim;
pub mod graph;
pub mod guard;
pub mod identity;
pub mod ids;
pub mod infer;
pub mod layout;
pub mod op;
pub mod order;
pub mod pass;
pub mod passes;
pub mod patch;
pub mod symbol;
pub mod tensor;
pub mod text;
pub mod types;
pub mod verify;

pub use dim::Dim;
pub use graph::{Graph, Node, Provenance, Region, Use, Value, ValueDef};
pub use guard::{Comparison, Guard};
pub use ids::{NodeId, RegionId, SymbolId, ValueId};
pub use layout::{Layout, Layouts};
pub use op::Op;
pub use symbol::{Range, Symbol, SymbolKind, SymbolTable};
pub use tensor::{Bytes, Tensor};
pub use tilewright_dtype::DType;
pub use types::{Shape, TensorType, Type};
