//! Random shapes, layouts and swizzles for property tests, with shrinking. Needs the feature
//! `testing`.
//!
//! The laws to hold against them are in [`laws`](crate::laws). Layouts are small enough to be
//! enumerated: at most 512 coordinates, six integers, three levels.
//!
//! ```
//! use proptest::prelude::*;
//! use tilewright_layout::{laws, testing};
//! proptest!(|(a in testing::any_layout(), b in testing::compact())| {
//!     // The composition is right where `b` stays inside the domain of `a`.
//!     if let (Ok(c), true) = (a.composition(&b), b.cosize() <= a.size()) {
//!         prop_assert_eq!(laws::composition(&a, &b, &c), Ok(()));
//!     }
//! });
//! ```

use crate::{IntTuple, Layout, Swizzle};
use proptest::prelude::*;
use std::vec::Vec;

/// Extents with many common divisors, so that operations meet both outcomes.
pub fn extent() -> impl Strategy<Value = i64> {
    prop_oneof![Just(1), Just(2), Just(2), Just(3), Just(4), Just(4), Just(5), Just(6), Just(8)]
}

/// Shapes of up to six integers and three levels.
pub fn shape() -> impl Strategy<Value = IntTuple> {
    let leaf = extent().prop_map(IntTuple::int);
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop::collection::vec(inner, 1..4).prop_map(|modes| IntTuple::tuple(&modes).unwrap())
    })
    .prop_filter("small enough to enumerate", |shape| {
        matches!(shape.product(), Ok(1..=512)) && shape.values().len() <= 6
    })
}

/// Compact layouts in a random order of modes.
pub fn compact() -> impl Strategy<Value = Layout> {
    (shape(), prop::collection::vec(any::<u16>(), 6)).prop_map(|(shape, keys)| {
        let flat = IntTuple::flat(shape.values()).unwrap();
        // Distinct numbers: the position breaks ties.
        let order: Vec<i64> = (0..shape.values().len()).map(|i| i64::from(keys[i]) * 8 + i as i64).collect();
        let ordered = Layout::ordered(&flat, &IntTuple::flat(&order).unwrap()).unwrap();
        let profile = shape.profile();
        if shape.is_int() { ordered.coalesce() } else { ordered.unflatten(&profile).unwrap() }
    })
}

/// Layouts with any strides, some 0, some shared.
pub fn any_layout() -> impl Strategy<Value = Layout> {
    (shape(), prop::collection::vec(0i64..40, 6)).prop_map(|(shape, strides)| with_strides(&shape, &strides))
}

/// Layouts with any strides, some negative.
pub fn signed_layout() -> impl Strategy<Value = Layout> {
    (shape(), prop::collection::vec(-20i64..20, 6)).prop_map(|(shape, strides)| with_strides(&shape, &strides))
}

fn with_strides(shape: &IntTuple, strides: &[i64]) -> Layout {
    let flat = IntTuple::flat(shape.values()).unwrap();
    let stride = IntTuple::flat(&strides[..shape.values().len()]).unwrap();
    let layout = Layout::new(&flat, &stride).unwrap();
    if shape.is_int() { layout.mode(0).unwrap() } else { layout.unflatten(&shape.profile()).unwrap() }
}

/// Compact layouts, and compact layouts stretched by a factor: their strides nest.
pub fn nesting() -> impl Strategy<Value = Layout> {
    (compact(), 1i64..4).prop_map(|(layout, factor)| {
        let stride: Vec<i64> = layout.strides().iter().map(|d| d * factor).collect();
        let values = layout.extents().to_vec();
        let flat = Layout::new(&IntTuple::flat(&values).unwrap(), &IntTuple::flat(&stride).unwrap()).unwrap();
        if layout.is_leaf() { flat.mode(0).unwrap() } else { flat.unflatten(&layout.profile()).unwrap() }
    })
}

/// A matrix of either order, with or without padding after its rows or columns, and the extents of
/// a tile that divides it.
///
/// ```
/// use proptest::prelude::*;
/// use tilewright_layout::{Tiler, testing};
/// proptest!(|((matrix, [rows, columns]) in testing::tiles())| {
///     let tiler = Tiler::by_mode(&[Tiler::extent(rows), Tiler::extent(columns)]).unwrap();
///     let tiled = matrix.zipped_divide(&tiler).unwrap();
///     prop_assert_eq!(tiled.mode(0).unwrap().size(), rows * columns);
///     prop_assert_eq!(tiled.size(), matrix.size());
/// });
/// ```
pub fn tiles() -> impl Strategy<Value = (Layout, [i64; 2])> {
    (extent(), extent(), 1i64..5, 1i64..5, 0i64..3, any::<bool>()).prop_map(
        |(rows, columns, down, across, room, by_rows)| {
            let extents = [rows * down, columns * across];
            let strides = if by_rows { [extents[1] + room, 1] } else { [1, extents[0] + room] };
            let layout = Layout::new(&IntTuple::flat(&extents).unwrap(), &IntTuple::flat(&strides).unwrap()).unwrap();
            (layout, [rows, columns])
        },
    )
}

/// Swizzles of up to 12 bits in all.
pub fn swizzle() -> impl Strategy<Value = Swizzle> {
    (0i64..4, 0i64..5, 0i64..4, any::<bool>()).prop_map(|(bits, base, more, up)| {
        let shift = (bits + more).max(1);
        Swizzle::new(bits, base, if up { -shift } else { shift }).unwrap()
    })
}
