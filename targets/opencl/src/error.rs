//! What cannot be printed.

/// Why there is no code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrintError {
    /// OpenCL C has no way to say it.
    #[error("OpenCL C cannot have kernel `{kernel}`: {what}")]
    Unsupported {
        /// Name of the kernel.
        kernel: String,
        /// The operation or type.
        what: String,
    },
    /// The kernel breaks a rule of the kernel form: a bug of whoever made it.
    #[error("kernel `{kernel}` is malformed: {reason}")]
    Invalid {
        /// Name of the kernel.
        kernel: String,
        /// The rules it breaks.
        reason: String,
    },
}
