//! Indexes into a kernel, typed, printing as the text form spells them.

use core::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])+ $Name:ident $prefix:literal;)+) => { $(
        $(#[$doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $Name(pub u32);

        impl $Name {
            /// The position in the table that this indexes.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        impl fmt::Debug for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )+ };
}

ids! {
    /// A value: written by one statement, never changed. Indexes
    /// [`Kernel::values`](super::Kernel::values).
    ValueId "v";
    /// A mutable register or register array. Indexes [`Kernel::vars`](super::Kernel::vars).
    VarId "r";
    /// An allocation in shared memory. Indexes [`Kernel::shared`](super::Kernel::shared).
    SharedId "s";
    /// A kernel parameter. Indexes [`Kernel::params`](super::Kernel::params).
    ParamId "p";
    /// A statement, numbered in the order of recording, which is the order of the text.
    StmtId "#";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prints_as_the_text_form_spells_it() {
        assert_eq!(format!("{} {:?} {} {}", ValueId(7), VarId(3), SharedId(0), StmtId(12)), "v7 r3 s0 #12");
    }
}
