//! Named layouts: checked where they stand, and layouts from numbers that are const generics.

/// Names typed layouts, and checks them on the spot.
///
/// A plain `type` alias of a broken layout compiles until generic code uses it. A layout named here
/// is evaluated by `cargo check`. The right side is a typed layout, a string in the notation
/// `shape:stride`, or the notation itself, whose numbers may be any constant expression.
///
/// ```
/// use tilewright_layout::layout;
/// use tilewright_layout::typed::{RowMajor, StaticLayout, Swizzle, Swizzled};
/// layout! {
///     /// A 64x64 tile of 16-bit elements in shared memory.
///     pub type Shared = Swizzled<Swizzle<3, 3, 3>, RowMajor<64, 64>>;
///     type Odd = "((2,3),4):((1,2),6)";
///     type Padded = (16, 64):(64 + 8, 1);
/// }
/// assert_eq!((Shared::LAYOUT.size(), Odd::LAYOUT.size()), (4096, 24));
/// assert_eq!(Padded.to_string(), "(16,64):(72,1)");
/// ```
///
/// A name may have const parameters: a layout made from shape and stride in generic numbers. It is
/// evaluated where the numbers are given, so name those layouts here too. As in the notation, an
/// element that is one pair of parentheses is a tuple; write `{ .. }` around a sum that stands
/// alone.
///
/// ```
/// use tilewright_layout::layout;
/// use tilewright_layout::typed::{Composed, RowMajor, StaticLayout, Swizzle, Swizzled};
/// layout! {
///     /// `M` rows of `N` elements, `PAD` more between them.
///     pub type Padded<const M: usize, const N: usize, const PAD: usize> = (M, N):(N + PAD, 1);
///     /// Blocks of 8 columns, one after the other.
///     pub type Blocks<const M: usize, const N: usize> = (M, (8, N / 8)):(8, (1, 8 * M));
///     pub type Rows<const N: usize> = RowMajor<8, N>;
///     type Tile = Padded<16, 64, 8>;
///     type Eight = Blocks<16, 64>;
/// }
/// assert_eq!(Tile::LAYOUT.to_string(), "(16,64):(72,1)");
/// assert_eq!(Eight::default().to_string(), "(16,(8,8)):(8,(1,128))");
/// assert_eq!(Swizzled::<Swizzle<3, 3, 3>, Rows<64>>::LAYOUT.size(), 512);
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
        $crate::layout! { @struct ($(#[$meta])*) ($visibility) $name () ()
            ($crate::Layout::constant($crate::Layout::parse($text))) }
        $crate::layout! { @check $name }
        $crate::layout! { $($rest)* }
    };
    ($(#[$meta:meta])* $visibility:vis type $name:ident = $shape:tt : $stride:tt; $($rest:tt)*) => {
        $crate::layout! { @struct ($(#[$meta])*) ($visibility) $name () ()
            ($crate::layout!(@numbers $shape : $stride)) }
        $crate::layout! { @check $name }
        $crate::layout! { $($rest)* }
    };
    ($(#[$meta:meta])* $visibility:vis type $name:ident = $layout:ty; $($rest:tt)*) => {
        $(#[$meta])*
        $visibility type $name = $layout;
        $crate::layout! { @check $name }
        $crate::layout! { $($rest)* }
    };
    (
        $(#[$meta:meta])* $visibility:vis type $name:ident<$(const $parameter:ident : $kind:ty),+ $(,)?>
            = $shape:tt : $stride:tt; $($rest:tt)*
    ) => {
        $crate::layout! { @struct ($(#[$meta])*) ($visibility) $name ($(const $parameter: $kind,)+) ($($parameter,)+)
            ($crate::layout!(@numbers $shape : $stride)) }
        $crate::layout! { $($rest)* }
    };
    (
        $(#[$meta:meta])* $visibility:vis type $name:ident<$(const $parameter:ident : $kind:ty),+ $(,)?>
            = $layout:ty; $($rest:tt)*
    ) => {
        $(#[$meta])*
        $visibility type $name<$(const $parameter: $kind),+> = $layout;
        $crate::layout! { $($rest)* }
    };

    // A type of its own, whose value prints as the layout.
    (@struct ($($meta:tt)*) ($visibility:vis) $name:ident ($($generics:tt)*) ($($arguments:tt)*) ($layout:expr)) => {
        $($meta)*
        #[derive(Clone, Copy, Default)]
        $visibility struct $name<$($generics)*>;

        impl<$($generics)*> $crate::typed::StaticLayout for $name<$($arguments)*> {
            const LAYOUT: $crate::Layout = $layout;
        }
        impl<$($generics)*> ::core::fmt::Display for $name<$($arguments)*> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad($crate::typed::notation::<Self>().as_str())
            }
        }
        impl<$($generics)*> ::core::fmt::Debug for $name<$($arguments)*> {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    };
    (@check $name:ident) => {
        const _: ($crate::Layout, $crate::Swizzle) = (
            <$name as $crate::typed::StaticLayout>::LAYOUT,
            <$name as $crate::typed::StaticLayout>::SWIZZLE,
        );
    };

    // Shape and stride: parentheses are tuples, anything else is a constant expression.
    (@numbers $shape:tt : $stride:tt) => {
        $crate::typed::of_numbers(&$crate::layout!(@tuple $shape), &$crate::layout!(@tuple $stride))
    };
    (@tuple ($($modes:tt)*)) => {
        $crate::layout!(@modes [] $($modes)*)
    };
    (@tuple $number:expr) => {
        $crate::IntTuple::int($number as i64)
    };
    (@modes [$($done:expr,)*]) => {
        $crate::IntTuple::constant($crate::IntTuple::tuple(&[$($done,)*]))
    };
    (@modes [$($done:expr,)*] ($($inner:tt)*) $(, $($rest:tt)*)?) => {
        $crate::layout!(@modes [$($done,)* $crate::layout!(@modes [] $($inner)*),] $($($rest)*)?)
    };
    (@modes [$($done:expr,)*] $number:expr $(, $($rest:tt)*)?) => {
        $crate::layout!(@modes [$($done,)* $crate::IntTuple::int(($number) as i64),] $($($rest)*)?)
    };
}
