//! Indexes into the lists of a graph, as types.

/// Declares an index; with a prefix, one that prints as the text form has it.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The index into a list.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $crate::index::index!($(#[$doc])* $name);

        impl $name {
            /// The index with that place in a list; lists of a graph have less than 2^32 entries.
            pub(crate) fn at(place: usize) -> $name {
                $name(u32::try_from(place).unwrap_or(u32::MAX))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, self.0)
            }
        }
    };
}

pub(crate) use index;
