//! Attributes that are numbers or names.

use super::Attr;
use crate::ir::{ParamId, SharedId};

macro_rules! numbers {
    ($($(#[$doc:meta])+ $Name:ident($ty:ty) [$($sample:expr),+];)+) => { $(
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $Name(pub $ty);

        impl Attr for $Name {
            fn choices() -> Vec<Self> {
                vec![$($Name($sample)),+]
            }

            fn text(&self) -> String {
                format!(" {}", self.0)
            }
        }
    )+ };
}

numbers! {
    /// A named barrier, 0 to 15.
    BarId(u32) [0, 1, 15];
    /// Threads that meet at a named barrier, a multiple of 32; those that wait and those that only
    /// arrive.
    BarThreads(u32) [32, 64, 128];
    /// The number of groups that may remain pending.
    Pending(u32) [0, 1, 2];
    /// Registers per thread, a multiple of 8 from 24 to 256.
    RegCount(u32) [24, 40, 232];
    /// The truth table of a function of three bits: bit `4a + 2b + c` is its value.
    Lut(u8) [0xe8, 0x96, 0xca];
}

/// A remark in the text and the PTX, without effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remark(pub String);

impl Attr for Remark {
    fn choices() -> Vec<Self> {
        vec![Remark("a remark".into())]
    }

    fn text(&self) -> String {
        format!(" {}", self.0)
    }
}

impl Attr for SharedId {
    fn choices() -> Vec<Self> {
        vec![SharedId(0)]
    }

    fn text(&self) -> String {
        format!(" {self}")
    }
}

impl Attr for ParamId {
    fn choices() -> Vec<Self> {
        vec![ParamId(0)]
    }

    fn text(&self) -> String {
        format!(" {self}")
    }
}
