//! Tilers as types.

use super::tuple::for_tuples;
use super::{Int, StaticLayout, plain};
use crate::Tiler;

/// A tiler as a type: a typed layout, an [`Int`] (the first `N` elements), [`Keep`], or
/// a tuple of these, one per mode.
///
/// ```
/// use tilewright_layout::typed::{Int, Keep, RowMajor, StaticLayout, Strided, ZippedDivide};
/// type EveryThird = Strided<Int<2>, Int<3>>;
/// type Tiles = ZippedDivide<RowMajor<8, 6>, (Int<4>, EveryThird)>;
/// assert_eq!(Tiles::LAYOUT.to_string(), "((4,2),(2,3)):((6,3),(24,1))");
/// ```
pub trait StaticTiler: 'static {
    /// The tiler as a value.
    const TILER: Tiler;
}

/// `_`: leaves a mode as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keep;

impl StaticTiler for Keep {
    const TILER: Tiler = Tiler::KEEP;
}

impl<const EXTENT: i64> StaticTiler for Int<EXTENT> {
    const TILER: Tiler = Tiler::extent(EXTENT);
}

impl<L: StaticLayout> StaticTiler for L {
    const TILER: Tiler = Tiler::layout(&plain::<L>("tile"));
}

macro_rules! by_mode {
    ($($part:ident)*) => {
        impl<$($part: StaticTiler),*> StaticTiler for ($($part,)*) {
            const TILER: Tiler = match Tiler::by_mode(&[$($part::TILER),*]) {
                Ok(tiler) => tiler,
                Err(error) => panic!("{}", error.message().as_str()),
            };
        }
    };
}
for_tuples!(by_mode);
