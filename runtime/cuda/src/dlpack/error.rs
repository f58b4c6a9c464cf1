//! Why a tensor is not taken over or given away.

use tilewright_runtime::dlpack::VERSION;

/// Why a tensor cannot be taken over or given away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DlpackError {
    /// No tensor at all.
    #[error("{name:?}: found a null pointer, wanted a tensor")]
    Null {
        /// What the caller calls it.
        name: String,
    },
    /// A newer major version of DLPack, whose structs may be others.
    #[error("{name:?}: found DLPack {major}.{minor}, wanted version {}", VERSION.major)]
    Version {
        /// What the caller calls it.
        name: String,
        /// As found.
        major: u32,
        /// As found.
        minor: u32,
    },
    /// Memory of another device.
    #[error("{name:?}: found memory of {found}, wanted that of {wanted}")]
    Device {
        /// What the caller calls it.
        name: String,
        /// As found.
        found: String,
        /// The device of the session.
        wanted: String,
    },
    /// Elements that models do not have, or that DLPack does not.
    #[error("{name:?}: found elements of {found}, wanted {wanted}")]
    DType {
        /// What the caller calls it.
        name: String,
        /// As found.
        found: String,
        /// What would do.
        wanted: &'static str,
    },
    /// A negative number of axes, or axes without extents.
    #[error("{name:?}: found {ndim} axes and {shape} extents, wanted extents for each of no or more axes", shape = if *has_shape { "some" } else { "no" })]
    Rank {
        /// What the caller calls it.
        name: String,
        /// As found.
        ndim: i32,
        /// Whether there are extents.
        has_shape: bool,
    },
    /// Extents that are negative or make more bytes than there are addresses.
    #[error("{name:?}: found extents {found:?}, wanted such that are not negative and fit into memory")]
    Extents {
        /// What the caller calls it.
        name: String,
        /// As found.
        found: Vec<i64>,
    },
    /// Elements that do not lie one after the other in row-major order.
    #[error("{name:?}: found strides {found:?}, wanted {wanted:?} (a copy in row-major order has them)")]
    Strides {
        /// What the caller calls it.
        name: String,
        /// As found, in elements.
        found: Vec<i64>,
        /// Those of row-major order.
        wanted: Vec<i64>,
    },
    /// Memory that must not be written, for an output.
    #[error("{name:?}: found memory that must not be written, wanted that of an output")]
    ReadOnly {
        /// What the caller calls it.
        name: String,
    },
    /// Elements that are not aligned, or no memory where there are elements.
    #[error("{name:?}: found address {address:#x}, wanted a multiple of {align} other than 0")]
    Address {
        /// What the caller calls it.
        name: String,
        /// As found, with the offset.
        address: u64,
        /// Bytes of an element.
        align: usize,
    },
}
