//! Why a case of Mojo's is not compared.

/// Why a case of Mojo's is not compared: a difference of convention, or something outside of this
/// algebra.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// A number that is not known.
    Unknown,
    /// Arithmetic on lists of integers.
    Helper,
    /// An extent of 0.
    Nothing,
    /// A tile of a nested mode.
    NestedTile,
    /// A drawing.
    Drawing,
    /// A rounded quotient.
    Rounded,
    /// A depth of several nested modes.
    Depth,
    /// An operation that is not known here.
    NoCounterpart,
}

impl SkipReason {
    /// A description of the skipped cases.
    pub fn cases(self) -> &'static str {
        match self {
            SkipReason::Unknown => "an extent or stride of -1",
            SkipReason::Helper => "`abs`, `fill_like`, `mul`, `reverse`, `sorted`, `sum`, `tuple_min`",
            SkipReason::Nothing => "shapes of tiles beyond the edge",
            SkipReason::NestedTile => "tiles of a row-major nested mode",
            SkipReason::Drawing => "`format_layout`",
            SkipReason::Rounded => "`shape_div` of extents that do not divide",
            SkipReason::Depth => "`depth` of several nested modes",
            SkipReason::NoCounterpart => "anything else",
        }
    }

    /// The difference from this library.
    pub fn why(self) -> &'static str {
        match self {
            SkipReason::Unknown => {
                "stands for \"known at run time\"; extents here are numbers, or absent from the type"
            }
            SkipReason::Helper => "lists of integers; here iterators over `IntTuple::values` do it",
            SkipReason::Nothing => "extent 0 there; an extent here is at least 1, and there is no such tile",
            SkipReason::NestedTile => {
                "counted row by row inside the mode there; first integer fastest here, as coordinates are"
            }
            SkipReason::Drawing => "a picture with other rules; `TextGrid` draws the same numbers",
            SkipReason::Rounded => "1 there; refused here",
            SkipReason::Depth => "the sum of their depths there; the deepest counts here",
            SkipReason::NoCounterpart => "an operation without a counterpart",
        }
    }
}
