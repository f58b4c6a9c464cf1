//! ONNX: models with their external data, import to and export from the graph IR.

pub mod error;
pub mod export;
pub mod import;
pub mod model;
pub mod tensor;

mod external;

pub use error::OnnxError;
pub use export::{ExportError, export};
pub use import::{ImportErrors, ImportOptions, import, import_noting};
pub use model::{OnnxModel, encode};
pub use tilewright_proto as proto;
