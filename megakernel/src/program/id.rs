//! Indexes into a program's tables, as types that print the way the text form spells them.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The index as an offset into its table.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $name {
            /// Saturates: a table has fewer entries than `u32::MAX`.
            fn from(index: usize) -> Self {
                $name(u32::try_from(index).unwrap_or(u32::MAX))
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
    /// A buffer, `b7`.
    BufferId "b";
    /// A task, `t7`.
    TaskId "t";
    /// A counter, `c7`.
    CounterId "c";
    /// A streaming multiprocessor (on the host: a worker), `sm7`. Those of device d are `d·sms ..
    /// (d + 1)·sms`.
    SmId "sm";
    /// A device of a program for several, `dev1`.
    DeviceId "dev";
}
