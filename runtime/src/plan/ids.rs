//! How entries of a plan refer to one another.

use core::fmt;

use serde::{Deserialize, Serialize};

/// Alignment, in bytes, of every buffer that is not an alias: one cache line, and the widest vector register.
pub const ALIGN: usize = 64;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in the table this id refers to.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    )*};
}

ids! {
    /// A size slot: index into [`Plan::sizes`](super::Plan::sizes).
    SizeId, "s";
    /// A buffer: index into [`Plan::buffers`](super::Plan::buffers).
    BufferId, "b";
    /// A kernel: index into [`Plan::kernels`](super::Plan::kernels) and into the entry table of every code image.
    KernelId, "k";
    /// A string: index into [`Plan::texts`](super::Plan::texts).
    TextId, "t";
    /// A host value: index into [`Plan::values`](super::Plan::values).
    HostId, "h";
}
