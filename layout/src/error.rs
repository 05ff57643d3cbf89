//! Errors of a layout or of an operation on layouts.

use core::fmt;

use crate::Message;

/// Why an operation of the algebra was refused: which mode, which number, which bound, and what to
/// do.
///
/// [`LayoutError::message`] is a `const fn`: a compile-time panic prints the same text as
/// `Display`.
///
/// ```
/// use tilewright_layout::Layout;
/// let rows = Layout::parse("(10,8):(8,1)").unwrap();
/// let error = rows.composition(&Layout::parse("6:4").unwrap()).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "composition: 6 elements taken with stride 4 leave mode 0, which has 10, and 10 is not a multiple of 4; use a \
///      stride that divides 10, or stay within the mode",
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are the numbers that the message prints")]
pub enum LayoutError {
    /// An extent below 1.
    Extent { leaf: usize, extent: i64 },
    /// Shape and stride nest differently.
    Congruence { shape_leaves: usize, stride_leaves: usize },
    /// More integers, tuples or modes than the fixed capacity.
    Capacity { what: &'static str, limit: usize },
    /// A size or an offset that 64 bits do not hold.
    Overflow { what: &'static str, left: i64, right: i64 },
    /// Text that is not in the notation.
    Syntax { at: usize, expected: &'static str },
    /// Composition: a mode of the right layout ends in the middle of a mode of the left one.
    ShapeDivisibility { mode: usize, extent: i64, divisor: i64 },
    /// Composition: a stride of the right layout neither fits in nor steps over a mode of the left
    /// one.
    StrideDivisibility { mode: usize, stride: i64, extent: i64 },
    /// Composition: a strided mode of the right layout runs over the end of a mode that its stride
    /// does not divide.
    Leaves { mode: usize, extent: i64, stride: i64, count: i64 },
    /// Composition: modes of the right layout add up to more than a mode of the left one holds.
    Carry { mode: usize, reach: i64, extent: i64 },
    /// Two coordinates share an offset where they must not.
    Overlap { operation: &'static str, stride: i64, reach: i64 },
    /// Copies of a layout that leave offsets between them.
    Gaps { operation: &'static str, count: i64, reach: i64 },
    /// Copies of a block that reach further than the room that the block leaves, so that offsets
    /// repeat.
    Room { operation: &'static str, room: i64, reach: i64 },
    /// An offset for which no coordinate of the layout was found.
    NotAnOffset { operation: &'static str, offset: i64 },
    /// A negative stride where the operation has no meaning for one.
    NegativeStride { operation: &'static str, stride: i64 },
    /// A number that another must divide, and does not.
    Indivisible { operation: &'static str, value: i64, divisor: i64 },
    /// A tuple with the wrong number of modes.
    Rank { operation: &'static str, given: usize, expected: usize },
    /// Two shapes that must be alike, and differ in a mode.
    Shape { operation: &'static str, mode: usize, left: i64, right: i64 },
    /// A mode that is not there.
    NoSuchMode { operation: &'static str, index: i64, rank: usize },
    /// A tuple where an integer was needed.
    NotAnInteger { operation: &'static str, modes: usize },
    /// A range of modes that is empty, reversed or too long.
    Range { operation: &'static str, begin: i64, end: i64, rank: usize },
    /// No stride is 1, and the operation splits elements.
    NotContiguous { operation: &'static str, factor: i64 },
    /// An argument out of its bounds.
    Argument { operation: &'static str, argument: &'static str, value: i64, bound: &'static str },
    /// Two swizzles that do not merge into one, or a swizzle that cannot pass a layout.
    Swizzle { operation: &'static str, reason: &'static str },
}

impl LayoutError {
    /// The error as text.
    pub const fn message(&self) -> Message {
        let m = Message::new();
        match *self {
            LayoutError::Extent { leaf, extent } => m
                .text("layout: extent ")
                .number(extent)
                .text(" of integer ")
                .number(leaf as i64)
                .text(" of the shape is below 1; every extent counts at least one element"),
            LayoutError::Congruence { shape_leaves, stride_leaves } => m
                .text("layout: shape (")
                .number(shape_leaves as i64)
                .text(" integers) and stride (")
                .number(stride_leaves as i64)
                .text(" integers) are not nested alike; give one stride per extent, in the same parentheses"),
            LayoutError::Capacity { what, limit } => m
                .text("layout: more than ")
                .number(limit as i64)
                .text(" ")
                .text(what)
                .text("; coalesce the layout or flatten it first"),
            LayoutError::Overflow { what, left, right } => m
                .text("layout: ")
                .text(what)
                .text(" of ")
                .number(left)
                .text(" and ")
                .number(right)
                .text(" is beyond 60 bits; use smaller extents or strides"),
            LayoutError::Syntax { at, expected } => {
                m.text("notation: expected ").text(expected).text(" at byte ").number(at as i64)
            }
            _ => self.operation_message(),
        }
    }

    const fn operation_message(&self) -> Message {
        let m = Message::new();
        match *self {
            LayoutError::ShapeDivisibility { mode, extent, divisor } => m
                .text("composition: ")
                .number(extent)
                .text(" elements are left to take where mode ")
                .number(mode as i64)
                .text(" of the left layout gives ")
                .number(divisor)
                .text(", and ")
                .number(divisor)
                .text(" does not divide ")
                .number(extent)
                .text("; use an extent that is a multiple of ")
                .number(divisor),
            LayoutError::StrideDivisibility { mode, stride, extent } => m
                .text("composition: stride ")
                .number(stride)
                .text(" steps over mode ")
                .number(mode as i64)
                .text(" of the left layout, which has ")
                .number(extent)
                .text(" elements, and ")
                .number(extent)
                .text(" does not divide ")
                .number(stride)
                .text("; use a stride that is a multiple of ")
                .number(extent),
            LayoutError::Leaves { mode, extent, stride, count } => m
                .text("composition: ")
                .number(count)
                .text(" elements taken with stride ")
                .number(stride)
                .text(" leave mode ")
                .number(mode as i64)
                .text(", which has ")
                .number(extent)
                .text(", and ")
                .number(extent)
                .text(" is not a multiple of ")
                .number(stride)
                .text("; use a stride that divides ")
                .number(extent)
                .text(", or stay within the mode"),
            LayoutError::Carry { mode, reach, extent } => m
                .text("composition: the modes of the right layout together reach element ")
                .number(reach)
                .text(" of mode ")
                .number(mode as i64)
                .text(" of the left layout, which has ")
                .number(extent)
                .text("; the sum would carry into the next mode, so no layout describes it; use modes that nest"),
            LayoutError::Overlap { operation, stride, reach } => m
                .text(operation)
                .text(": stride ")
                .number(stride)
                .text(" starts inside the ")
                .number(reach)
                .text(" offsets of the modes before it; the layout must not map two coordinates to one offset"),
            LayoutError::Gaps { operation, count, reach } => m
                .text(operation)
                .text(": the copies of the tile have ")
                .number(count)
                .text(" elements spread over ")
                .number(reach)
                .text(" offsets, so they leave gaps; use strides that are multiples of what the smaller ones span"),
            LayoutError::Room { operation, room, reach } => m
                .text(operation)
                .text(": the block leaves room for ")
                .number(room)
                .text(" copies that repeat no offset, and the layout of copies needs ")
                .number(reach)
                .text("; use fewer copies, or a block whose strides are multiples of what the smaller ones span"),
            LayoutError::NotAnOffset { operation, offset } => m
                .text(operation)
                .text(": no coordinate was found with offset ")
                .number(offset)
                .text("; use an offset that the layout reaches"),
            LayoutError::NegativeStride { operation, stride } => m
                .text(operation)
                .text(": stride ")
                .number(stride)
                .text(" is negative; the operation is defined for strides of at least 0"),
            _ => self.argument_message(),
        }
    }

    const fn argument_message(&self) -> Message {
        let m = Message::new();
        match *self {
            LayoutError::Indivisible { operation, value, divisor } => m
                .text(operation)
                .text(": ")
                .number(divisor)
                .text(" does not divide ")
                .number(value)
                .text("; use a divisor of ")
                .number(value),
            LayoutError::Rank { operation, given, expected } => m
                .text(operation)
                .text(": ")
                .number(given as i64)
                .text(" modes given where ")
                .number(expected as i64)
                .text(" fit; give one per mode of the layout"),
            LayoutError::Shape { operation, mode, left, right } => m
                .text(operation)
                .text(": mode ")
                .number(mode as i64)
                .text(" has ")
                .number(left)
                .text(" elements on one side and ")
                .number(right)
                .text(" on the other; give both the same shape"),
            LayoutError::NoSuchMode { operation, index, rank } => m
                .text(operation)
                .text(": there is no mode ")
                .number(index)
                .text("; the layout has ")
                .number(rank as i64)
                .text(", counted from 0"),
            LayoutError::NotAnInteger { operation, modes } => m
                .text(operation)
                .text(": a tuple of ")
                .number(modes as i64)
                .text(" modes stands where the other side has an integer; nest both alike"),
            LayoutError::Range { operation, begin, end, rank } => m
                .text(operation)
                .text(": modes ")
                .number(begin)
                .text("..")
                .number(end)
                .text(" are not a range within the layout's ")
                .number(rank as i64),
            LayoutError::NotContiguous { operation, factor } => m
                .text(operation)
                .text(": no mode has stride 1, so elements cannot be split by ")
                .number(factor)
                .text("; use a layout with a contiguous mode"),
            LayoutError::Argument { operation, argument, value, bound } => {
                m.text(operation).text(": ").text(argument).text(" is ").number(value).text("; it must be ").text(bound)
            }
            LayoutError::Swizzle { operation, reason } => m.text(operation).text(": ").text(reason),
            // `message` and `operation_message` have the other variants.
            _ => m.text("layout error"),
        }
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message().as_str())
    }
}

impl core::error::Error for LayoutError {}
