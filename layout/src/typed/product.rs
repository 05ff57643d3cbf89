//! Copies of a layout.

use super::divide::by_tiler;
use super::{StaticLayout, StaticTiler, checked, plain, static_layout};

static_layout! {
    /// Blocks `A` side by side, arranged like `B`: mode `i` is (mode `i` of `A`, mode `i` of `B`).
    ///
    /// ```
    /// use tilewright_layout::typed::{BlockedProduct, RowMajor, StaticLayout};
    /// type Blocks = BlockedProduct<RowMajor<2, 5>, RowMajor<3, 4>>;
    /// assert_eq!(Blocks::LAYOUT.to_string(), "((2,3),(5,4)):((5,40),(1,10))");
    /// ```
    BlockedProduct [A: StaticLayout, B: StaticLayout] [A, B] (A, B) {
        SWIZZLE = A::SWIZZLE;
        LAYOUT = {
            let copies = plain::<B>("the copies of a blocked_product");
            checked("blocked_product", &[A::LAYOUT, copies], A::LAYOUT.blocked_product(&copies))
        };
    }

    /// Blocks `A` interleaved, arranged like `B`: mode `i` is (mode `i` of `B`, mode `i` of `A`).
    ///
    /// ```
    /// use tilewright_layout::typed::{RakedProduct, RowMajor, StaticLayout};
    /// type Blocks = RakedProduct<RowMajor<2, 5>, RowMajor<3, 4>>;
    /// assert_eq!(Blocks::LAYOUT.to_string(), "((3,2),(4,5)):((40,5),(10,1))");
    /// ```
    RakedProduct [A: StaticLayout, B: StaticLayout] [A, B] (A, B) {
        SWIZZLE = A::SWIZZLE;
        LAYOUT = {
            let copies = plain::<B>("the copies of a raked_product");
            checked("raked_product", &[A::LAYOUT, copies], A::LAYOUT.raked_product(&copies))
        };
    }

    /// Each mode as (block, copies); see
    /// [`Layout::logical_product`](crate::Layout::logical_product).
    ///
    /// ```
    /// use tilewright_layout::typed::{Contiguous, Int, LogicalProduct, StaticLayout, Strided};
    /// type Copies = LogicalProduct<Strided<(Int<2>, Int<2>), (Int<4>, Int<1>)>, Contiguous<6>>;
    /// assert_eq!(Copies::LAYOUT.to_string(), "((2,2),(2,3)):((4,1),(2,8))");
    /// ```
    LogicalProduct [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = by_tiler("logical_product", &L::LAYOUT, &T::TILER, L::LAYOUT.logical_product(&T::TILER));
    }

    /// `((blocks),(copies))`; see [`Layout::zipped_product`](crate::Layout::zipped_product).
    ///
    /// ```
    /// use tilewright_layout::typed::{Contiguous, RowMajor, StaticLayout, ZippedProduct};
    /// type Copies = ZippedProduct<Contiguous<4>, RowMajor<2, 3>>;
    /// assert_eq!(Copies::LAYOUT.to_string(), "(4,(2,3)):(1,(12,4))");
    /// ```
    ZippedProduct [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = by_tiler("zipped_product", &L::LAYOUT, &T::TILER, L::LAYOUT.zipped_product(&T::TILER));
    }

    /// `((blocks),copies,copies,..)`; see [`Layout::tiled_product`](crate::Layout::tiled_product).
    ///
    /// ```
    /// use tilewright_layout::typed::{Contiguous, RowMajor, StaticLayout, TiledProduct};
    /// type Copies = TiledProduct<Contiguous<4>, RowMajor<2, 3>>;
    /// assert_eq!(Copies::LAYOUT.to_string(), "(4,2,3):(1,12,4)");
    /// ```
    TiledProduct [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = by_tiler("tiled_product", &L::LAYOUT, &T::TILER, L::LAYOUT.tiled_product(&T::TILER));
    }

    /// `(block,block,..,copies,copies,..)`; see
    /// [`Layout::flat_product`](crate::Layout::flat_product).
    ///
    /// ```
    /// use tilewright_layout::typed::{FlatProduct, RowMajor, StaticLayout};
    /// type Copies = FlatProduct<RowMajor<2, 2>, RowMajor<2, 3>>;
    /// assert_eq!(Copies::LAYOUT.to_string(), "(2,2,2,3):(2,1,12,4)");
    /// ```
    FlatProduct [L: StaticLayout, T: StaticTiler] [L, T] (L, T) {
        SWIZZLE = L::SWIZZLE;
        LAYOUT = by_tiler("flat_product", &L::LAYOUT, &T::TILER, L::LAYOUT.flat_product(&T::TILER));
    }
}
