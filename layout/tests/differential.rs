//! Each function against a definition that enumerates: slow, and too short to be wrong.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use tilewright_layout::analysis::wavefronts;
use tilewright_layout::testing::{any_layout, compact, nesting, shape, signed_layout, swizzle};
use tilewright_layout::{Composed, IntTuple, Layout};

/// Counts like an odometer, first integer fastest: every coordinate of the extents in order.
fn odometer(extents: &[i64]) -> Vec<Vec<i64>> {
    let mut all = vec![vec![]];
    for &extent in extents.iter().rev() {
        all = all
            .into_iter()
            .flat_map(|tail: Vec<i64>| {
                (0..extent).map(move |digit| {
                    let mut coordinate = vec![digit];
                    coordinate.extend(&tail);
                    coordinate
                })
            })
            .collect();
    }
    all
}

/// The offsets of a layout in order, by the inner product of coordinate and strides.
fn table(layout: &Layout) -> Vec<i64> {
    let dot = |coordinate: Vec<i64>| coordinate.iter().zip(layout.strides()).map(|(c, d)| c * d).sum();
    odometer(layout.extents()).into_iter().map(dot).collect()
}

fn image(layout: &Layout) -> BTreeSet<i64> {
    table(layout).into_iter().collect()
}

/// Wavefronts by sets of words.
fn counts_words_per_bank(addresses: &[i64], bytes: i64) -> i64 {
    let group = usize::try_from((128 / bytes).min(32)).unwrap();
    let mut total = 0;
    for threads in addresses.chunks(group) {
        let mut banks: HashMap<i64, BTreeSet<i64>> = HashMap::new();
        for address in threads {
            for byte in *address..address + bytes {
                banks.entry(byte / 4 % 32).or_default().insert(byte / 4);
            }
        }
        total += banks.values().map(BTreeSet::len).max().unwrap_or(0) as i64;
    }
    total
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn index_and_coordinate(layout in signed_layout()) {
        for (i, (coordinate, offset)) in odometer(layout.extents()).into_iter().zip(table(&layout)).enumerate() {
            let i = i as i64;
            prop_assert_eq!(layout.at(i), offset);
            let found = layout.coordinate(i);
            prop_assert_eq!(found.values(), &coordinate[..]);
            prop_assert_eq!(layout.offset(&found).unwrap(), offset);
            prop_assert_eq!(layout.shape().index_of(&found).unwrap(), i);
        }
    }

    #[test]
    fn sizes(layout in any_layout()) {
        prop_assert_eq!(layout.size(), table(&layout).len() as i64);
        prop_assert_eq!(layout.cosize(), table(&layout).into_iter().max().unwrap() + 1);
    }

    #[test]
    fn compact_orders(shape in shape()) {
        let columns = Layout::col_major(&shape).unwrap();
        prop_assert_eq!(table(&columns), (0..shape.product().unwrap()).collect::<Vec<_>>());
        // Row-major: the same counting with the integers reversed.
        let rows = Layout::row_major(&shape).unwrap();
        let reversed: Vec<i64> = shape.values().iter().rev().copied().collect();
        let expected: HashMap<Vec<i64>, i64> = odometer(&reversed).into_iter().zip(0..).collect();
        for (coordinate, offset) in odometer(shape.values()).into_iter().zip(table(&rows)) {
            prop_assert_eq!(offset, expected[&coordinate.into_iter().rev().collect::<Vec<_>>()]);
        }
    }

    #[test]
    fn coalesce_and_flatten(layout in signed_layout()) {
        prop_assert_eq!(table(&layout.coalesce()), table(&layout));
        prop_assert_eq!(table(&layout.flatten()), table(&layout));
    }

    #[test]
    fn filter_and_injective(layout in any_layout()) {
        prop_assert_eq!(image(&layout.filter()), image(&layout));
        prop_assert_eq!(layout.is_injective(), image(&layout).len() as i64 == layout.size());
        let all: BTreeSet<i64> = (0..layout.size()).collect();
        prop_assert_eq!(layout.is_bijective(), image(&layout) == all);
    }

    #[test]
    fn composition(a in compact(), b in any_layout()) {
        let outer = table(&a);
        let inner = table(&b);
        if let Ok(result) = a.composition(&b) && inner.iter().all(|&i| i < a.size()) {
            prop_assert_eq!(table(&result), inner.iter().map(|&i| outer[i as usize]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn complement_starts_the_copies(layout in nesting()) {
        // Copies of the layout, each at the first offset that nothing covers yet, until the bound
        // is full.
        let bound = layout.filter().cosize() * 2;
        if let Ok(rest) = layout.complement_exact(bound) {
            let tile = image(&layout);
            let mut covered = BTreeSet::new();
            let mut starts = vec![];
            for offset in 0..bound {
                if !covered.contains(&offset) {
                    starts.push(offset);
                    covered.extend(tile.iter().map(|t| t + offset));
                }
            }
            prop_assert_eq!(table(&rest), starts);
        }
    }

    #[test]
    fn right_inverse_is_as_long_as_the_gapless_run(layout in compact()) {
        let places: HashMap<i64, i64> = table(&layout).into_iter().zip(0..).collect();
        let inverse = layout.right_inverse();
        prop_assert_eq!(inverse.size(), layout.size());
        for offset in 0..layout.size() {
            prop_assert_eq!(inverse.at(offset), places[&offset]);
        }
    }

    #[test]
    fn left_inverse(layout in nesting()) {
        let places: HashMap<i64, i64> = table(&layout).into_iter().zip(0..).collect();
        let inverse = layout.left_inverse().unwrap();
        for (offset, index) in places {
            prop_assert_eq!(inverse.at(offset), index);
        }
    }

    #[test]
    fn nullspace_is_what_maps_to_zero(layout in nesting(), copies in 1i64..4) {
        let repeated = layout.append(&Layout::leaf(copies, 0).unwrap()).unwrap();
        let zeros: BTreeSet<i64> = (0..repeated.size()).filter(|i| repeated.at(*i) == 0).collect();
        prop_assert_eq!(image(&repeated.nullspace()), zeros);
    }

    #[test]
    fn upcast_reaches_the_same_places(layout in compact(), power in 0u32..4) {
        let factor = 1 << power;
        if let Ok(large) = layout.upcast(factor) && layout.divides_contiguously(factor) {
            let expected: BTreeSet<i64> = image(&layout).into_iter().map(|o| o / factor).collect();
            prop_assert_eq!(image(&large), expected);
        }
    }

    #[test]
    fn common_vectors(a in compact(), order in any::<bool>()) {
        let shape = a.shape();
        let b = if order { Layout::row_major(&shape) } else { Layout::col_major(&shape) }.unwrap();
        if let Ok(common) = a.max_common_vector(&b) {
            let first = a.right_inverse();
            let second = b.right_inverse();
            let longest = (0..a.size()).take_while(|o| first.at(*o) == second.at(*o)).count() as i64;
            prop_assert!(common <= longest);
            prop_assert_eq!(image(&a.max_common_layout(&b).unwrap()), (0..common).map(|o| second.at(o)).collect());
        }
    }

    #[test]
    fn shape_division_rounds_up(shape in shape(), divisor in 1i64..10) {
        let flat = IntTuple::int(shape.product().unwrap());
        let quotient = flat.ceil_div(&IntTuple::int(divisor)).unwrap();
        prop_assert_eq!(quotient.product().unwrap(), (shape.product().unwrap() as f64 / divisor as f64).ceil() as i64);
        let parts = shape.ceil_div(&IntTuple::int(divisor)).unwrap();
        prop_assert!(parts.congruent(&shape));
        if let Ok(exact) = shape.shape_div(&IntTuple::int(divisor)) && shape.product().unwrap() % divisor == 0 {
            prop_assert_eq!(exact, parts);
            prop_assert_eq!(exact.product().unwrap() * divisor, shape.product().unwrap());
        }
    }

    #[test]
    fn compatible_shapes_count_alike(shape in shape()) {
        let flat = IntTuple::int(shape.product().unwrap());
        prop_assert!(flat.compatible(&shape) && flat.weakly_congruent(&shape));
        prop_assert_eq!(shape.compatible(&flat), shape.is_int());
        for i in 0..shape.product().unwrap() {
            let there = IntTuple::int(i).between(&flat, &shape).unwrap();
            prop_assert_eq!(there.between(&shape, &flat).unwrap(), IntTuple::int(i));
        }
    }

    #[test]
    fn swizzle_bits(swizzle in swizzle(), offset in 0i64..1 << 14) {
        // Bit by bit.
        let mut expected = offset;
        for bit in 0..swizzle.bits() {
            let low = swizzle.base() + bit;
            let high = swizzle.base() + bit + swizzle.shift().abs();
            let (from, into) = if swizzle.shift() < 0 { (low, high) } else { (high, low) };
            if offset >> from & 1 == 1 {
                expected ^= 1 << into;
            }
        }
        prop_assert_eq!(swizzle.apply(offset), expected);
    }

    #[test]
    fn bank_conflicts(stride in 0i64..80, swizzle in swizzle(), power in 0u32..5, threads in 1i64..33) {
        let bytes = 1i64 << power;
        let access = Composed::new(swizzle, 0, Layout::leaf(threads, stride).unwrap());
        let addresses: Vec<i64> = (0..threads).map(|t| access.at(t) * bytes).collect();
        let found = wavefronts(&access, bytes, bytes).unwrap();
        prop_assert_eq!(found.count, counts_words_per_bank(&addresses, bytes));
        prop_assert!(found.excess() >= 0);
    }
}

/// Whether an upcast by the factor loses no part of an element.
trait Contiguously {
    fn divides_contiguously(&self, factor: i64) -> bool;
}

impl Contiguously for Layout {
    fn divides_contiguously(&self, factor: i64) -> bool {
        let image = image(self);
        image.iter().all(|o| (o / factor * factor..o / factor * factor + factor).all(|p| image.contains(&p)))
            && self.extents().iter().zip(self.strides()).all(|(s, d)| *d == 0 || (s * d) % factor == 0)
    }
}
