//! Named layouts: checked where they stand.

/// Names typed layouts, and checks them on the spot.
///
/// A plain `type` alias of a broken layout compiles until generic code uses it. A layout named here is evaluated by
/// `cargo check`. The right side is a typed layout, or a string in the notation `shape:stride`.
///
/// ```
/// use tilewright_layout::layout;
/// use tilewright_layout::typed::{RowMajor, StaticLayout, Swizzle, Swizzled};
/// layout! {
///     /// A 64x64 tile of 16-bit elements in shared memory.
///     pub type Shared = Swizzled<Swizzle<3, 3, 3>, RowMajor<64, 64>>;
///     type Odd = "((2,3),4):((1,2),6)";
/// }
/// assert_eq!((Shared::LAYOUT.size(), Odd::LAYOUT.size()), (4096, 24));
/// ```
///
/// ```compile_fail
/// use tilewright_layout::typed::{RowMajor, TiledBy};
/// tilewright_layout::layout! { type Broken = TiledBy<RowMajor<100, 64>, 16, 16>; }
/// ```
#[macro_export]
macro_rules! layout {
    () => {};
    ($(#[$meta:meta])* $visibility:vis type $name:ident = $text:literal; $($rest:tt)*) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default)]
        $visibility struct $name;

        impl $crate::typed::StaticLayout for $name {
            const LAYOUT: $crate::Layout = $crate::Layout::constant($crate::Layout::parse($text));
        }
        const _: ($crate::Layout, $crate::Swizzle) = (
            <$name as $crate::typed::StaticLayout>::LAYOUT,
            <$name as $crate::typed::StaticLayout>::SWIZZLE,
        );
        $crate::layout! { $($rest)* }
    };
    ($(#[$meta:meta])* $visibility:vis type $name:ident = $layout:ty; $($rest:tt)*) => {
        $(#[$meta])*
        $visibility type $name = $layout;
        const _: ($crate::Layout, $crate::Swizzle) = (
            <$name as $crate::typed::StaticLayout>::LAYOUT,
            <$name as $crate::typed::StaticLayout>::SWIZZLE,
        );
        $crate::layout! { $($rest)* }
    };
}
