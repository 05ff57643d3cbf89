//! Typed layouts: a layout as a zero-sized type, checked by the compiler.
//!
//! A [`StaticLayout`] is a type with a constant: the [`Layout`] that it stands for, computed by the
//! same `const fn` algebra that runs at run time. There is no second algebra here. A combinator
//! that has no result, such as a tile that does not divide its tensor, is a compile error that
//! prints the layouts and the numbers.
//!
//! ```
//! use tilewright_layout::typed::{BlockedProduct, Int, Lowered, RowMajor, StaticLayout, Swizzle, Swizzled, TiledBy};
//! type Block = BlockedProduct<RowMajor<2, 5>, RowMajor<3, 4>>;
//! assert_eq!(Block::LAYOUT.to_string(), "((2,3),(5,4)):((5,40),(1,10))");
//!
//! // A 64x64 tile of 16-bit elements whose rows are spread over the banks, cut into 16x16 tiles.
//! type Shared = Swizzled<Swizzle<3, 3, 3>, RowMajor<64, 64>>;
//! type Tiles = TiledBy<Shared, 16, 16>;
//! assert_eq!(Tiles::LAYOUT.to_string(), "((16,16),(4,4)):((64,1),(1024,16))");
//! assert_eq!(Lowered::<Shared>::at([1, 0]), 64 + 8);
//! ```
//!
//! | to write | use |
//! |---|---|
//! | a shape | [`Int`], tuples of it |
//! | a layout from numbers | [`RowMajor`], [`ColMajor`], [`Contiguous`], [`Strided`], [`Compact`], [`CompactRight`], [`Ordered`], [`Concat`] |
//! | tiles of a layout | [`TiledBy`], [`LogicalDivide`], [`ZippedDivide`], [`TiledDivide`], [`FlatDivide`], [`TileToShape`], [`TileToShapeIn`] |
//! | copies of a layout | [`BlockedProduct`], [`RakedProduct`], [`LogicalProduct`], [`ZippedProduct`], [`TiledProduct`], [`FlatProduct`] |
//! | a layout of coordinates of a layout | [`Composed`], [`ComposedByMode`], [`Transposed`], [`Mode`], [`Sliced`], [`PartOf`], [`Coalesced`], [`Flattened`] |
//! | the nesting of another layout | [`ExpandedAlike`] |
//! | banks | [`Swizzled`], [`OperandTile`] |
//! | a shape in a function's signature | [`MatrixLayout`], [`Shaped`] |
//! | an element | [`Lowered`] |
//! | memory | [`ArrayTensor`] |
//!
//! An associated constant is evaluated where it is used, so `cargo check` does not see a broken
//! layout that only generic code names. Name the layouts of a program with
//! [`layout!`](crate::layout!): it evaluates them where they stand, and makes them from shape and
//! stride, in const generics too: `layout! { type Padded<const M: usize> = (M, 64):(72, 1); }`.

mod banks;
mod contract;
mod divide;
mod index;
mod lowered;
mod matrix;
mod named;
mod numbers;
mod operand_tile;
mod product;
mod rearrange;
mod storage;
mod tiler;
mod tuple;

pub(crate) use banks::reach;
pub use banks::{StaticSwizzle, Swizzle, Swizzled};
pub use contract::contract;
pub use divide::{
    FlatDivide, LogicalDivide, LogicalDivideCeil, TileToShape, TileToShapeIn, TiledBy, TiledDivide, TilesOf, Within,
    ZippedDivide,
};
pub use index::Idx;
pub use lowered::{Lowered, MAX_RANK, MAX_RUNS};
pub use matrix::{MatrixLayout, Shaped};
pub use numbers::{
    ColMajor, Compact, CompactRight, Concat, Contiguous, LayoutList, Ordered, RowMajor, Strided, of_numbers,
};
pub use operand_tile::{KMajor, MnMajor, OperandTile, StaticMajor, operand_tile};
pub use product::{BlockedProduct, FlatProduct, LogicalProduct, RakedProduct, TiledProduct, ZippedProduct};
pub use rearrange::{
    Coalesced, Complement, Composed, ComposedByMode, Downcast, ExpandedAlike, Filtered, Flattened, Grouped,
    LeftInverse, Mode, PartOf, PartsOf, RightInverse, Selected, Sliced, Transposed, Upcast,
};
pub use storage::{ArrayTensor, Storage};
pub use tiler::{Keep, StaticTiler};
pub use tuple::{FirstFastest, InOrder, Int, LastFastest, StaticOrder, StaticTuple};

use crate::{Layout, LayoutError, Message};

/// A layout that is known to the compiler, and has no value at run time.
///
/// The offset of a coordinate is `SWIZZLE.apply(LAYOUT.offset(coordinate))`. The swizzle is always
/// outermost: a combinator that rearranges coordinates carries it along, and one for which it has
/// no meaning refuses it. Use [`Lowered`] to compute offsets; it applies both.
pub trait StaticLayout: Copy + Default + Send + Sync + 'static {
    /// Coordinates to offsets, before the swizzle.
    const LAYOUT: Layout;
    /// The permutation of the offsets; the identity for most layouts.
    const SWIZZLE: crate::Swizzle = crate::Swizzle::IDENTITY;
}

/// Declares zero-sized layouts: the type, the traits that hold without bounds on its parameters,
/// and the constant.
macro_rules! static_layout {
    ($(
        $(#[$meta:meta])*
        $name:ident [$($generics:tt)*] [$($args:tt)*] ($($holds:ty),*) {
            $(SWIZZLE = $swizzle:expr;)?
            LAYOUT = $layout:expr;
        }
    )*) => {$(
        $(#[$meta])*
        pub struct $name<$($generics)*>(core::marker::PhantomData<fn() -> ($($holds,)*)>);

        impl<$($generics)*> Clone for $name<$($args)*> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<$($generics)*> Copy for $name<$($args)*> {}
        impl<$($generics)*> Default for $name<$($args)*> {
            fn default() -> Self {
                $name(core::marker::PhantomData)
            }
        }
        impl<$($generics)*> core::fmt::Debug for $name<$($args)*> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
        impl<$($generics)*> core::fmt::Display for $name<$($args)*> {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad($crate::typed::notation::<Self>().as_str())
            }
        }
        impl<$($generics)*> $crate::typed::StaticLayout for $name<$($args)*> {
            const LAYOUT: $crate::Layout = $layout;
            $(const SWIZZLE: $crate::Swizzle = $swizzle;)?
        }
    )*};
}
pub(crate) use static_layout;

/// A typed layout as text, in the notation of the field.
///
/// ```
/// use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled, notation};
/// type Shared = Swizzled<Swizzle<3, 3, 3>, RowMajor<8, 64>>;
/// assert_eq!(notation::<Shared>().as_str(), "S<3,3,3> o 0 o (8,64):(64,1)");
/// // A value of the type prints so too.
/// assert_eq!(Shared::default().to_string(), "S<3,3,3> o 0 o (8,64):(64,1)");
/// ```
pub const fn notation<L: StaticLayout>() -> Message {
    let message = Message::new();
    let message = if L::SWIZZLE.bits() == 0 { message } else { message.swizzle(&L::SWIZZLE).text(" o 0 o ") };
    message.layout(&L::LAYOUT)
}

/// The result, or a compile error that names the operation, its layouts and the numbers.
pub(crate) const fn checked(operation: &str, operands: &[Layout], result: Result<Layout, LayoutError>) -> Layout {
    match result {
        Ok(layout) => layout,
        Err(error) => {
            let message = sentence(operation, operands).text(": ").text(error.message().as_str());
            panic!("{}", message.as_str())
        }
    }
}

/// `operation of A and B`.
pub(crate) const fn sentence(operation: &str, operands: &[Layout]) -> Message {
    let mut message = Message::new().text(operation).text(" of ");
    let mut i = 0;
    while i < operands.len() {
        message = if i == 0 { message } else { message.text(" and ") }.layout(&operands[i]);
        i += 1;
    }
    message
}

/// The layout of `L` where a swizzle has no meaning.
pub(crate) const fn plain<L: StaticLayout>(operation: &str) -> Layout {
    if L::SWIZZLE.bits() != 0 {
        let message = Message::new()
            .text(operation)
            .text(" of ")
            .text(notation::<L>().as_str())
            .text(": a swizzled layout cannot stand here; apply the swizzle to the result, outermost");
        panic!("{}", message.as_str())
    }
    L::LAYOUT
}
