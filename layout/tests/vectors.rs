//! The widest vector that two layouts share, and the copies planned by it, against every element.

use proptest::prelude::*;
use tilewright_layout::analysis::{CopyPlan, MAX_VECTOR_BITS, Vector};
use tilewright_layout::testing::{any_layout, compact, nesting, signed_layout, swizzle};
use tilewright_layout::{Layout, Swizzle, Swizzled};

/// The number of coordinates of the modes before one.
fn before(layout: &Layout, mode: usize) -> i64 {
    (0..mode).map(|i| layout.extent(i)).product()
}

/// Whether vectors of `width` along a mode are whole, contiguous and aligned, by trying every
/// element.
fn holds(layout: &Swizzled, along: usize, width: i64) -> bool {
    let inner = layout.layout();
    let step = before(&layout.layout(), along);
    let index = |c: i64| c / step % inner.extent(along);
    inner.extent(along) % width == 0
        && (0..layout.size()).filter(|&c| index(c) % width == 0).all(|c| {
            let first = layout.at(c);
            first % width == 0 && (0..width).all(|i| layout.at(c + i * step) == first + i)
        })
}

/// The widest power of two that holds along some mode of both layouts, by trying.
fn widest(first: &Swizzled, second: &Swizzled, bits: i64) -> i64 {
    let widths = (0..8).map(|power| 1 << power).take_while(|width| *width == 1 || width * bits <= MAX_VECTOR_BITS);
    let both = |along: usize, width: i64| holds(first, along, width) && holds(second, along, width);
    widths.filter(|&w| w == 1 || (0..first.layout().rank()).any(|along| both(along, w))).last().unwrap()
}

/// A second layout over the top-level extents of a first one, nested otherwise: its strides in any
/// order, padded or not.
fn beside(first: &Layout, keys: &[i64], pad: i64) -> Layout {
    let mut order: Vec<usize> = (0..first.rank()).collect();
    order.sort_by_key(|mode| keys[*mode % keys.len()]);
    let mut strides = vec![0; first.rank()];
    let mut span = 1;
    for mode in order {
        strides[mode] = span;
        span = span * first.extent(mode) + pad;
    }
    let modes: Vec<Layout> = (0..first.rank()).map(|m| Layout::leaf(first.extent(m), strides[m]).unwrap()).collect();
    if first.is_leaf() { modes[0] } else { Layout::tuple(&modes).unwrap() }
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![2 => compact(), 1 => nesting(), 1 => any_layout(), 1 => signed_layout()]
}

fn plain(layout: Layout, start: i64) -> Swizzled {
    Swizzled::new(Swizzle::IDENTITY, start, layout)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Ranks of any size, hierarchical modes on one side, starts that are off an alignment: as wide
    /// as trying finds.
    #[test]
    fn the_common_vector_is_the_widest_that_trying_finds(
        first in layouts(),
        keys in prop::collection::vec(0i64..9, 6),
        pad in prop_oneof![2 => Just(0i64), 1 => 0i64..9],
        starts in (prop_oneof![2 => Just(0i64), 1 => 0i64..40], prop_oneof![2 => Just(0i64), 1 => 0i64..40]),
        bits in prop_oneof![Just(4i64), Just(8), Just(16), Just(32), Just(64)],
    ) {
        let second = plain(beside(&first, &keys, pad), starts.1);
        let first = plain(first, starts.0);
        let vector = Vector::common(&first, &second, bits).unwrap();
        prop_assert_eq!(vector.width, widest(&first, &second, bits), "{} and {}", first, second);
        prop_assert!(vector.width == 1 || holds(&first, vector.along, vector.width), "{}", first);
        prop_assert!(vector.width == 1 || holds(&second, vector.along, vector.width), "{}", second);
        prop_assert_eq!(Vector::common(&second, &first, bits).unwrap().width, vector.width);
        prop_assert_eq!(Vector::widest(&first, bits).width, widest(&first, &first, bits));
    }

    /// Under swizzles the vector holds at every element, also from every aligned start on, and
    /// loses only what a base splits.
    #[test]
    fn the_common_vector_holds_behind_both_swizzles(
        first in layouts(),
        keys in prop::collection::vec(0i64..9, 6),
        swizzles in (swizzle(), swizzle()),
        start in 0i64..64,
    ) {
        let second = beside(&first, &keys, 0);
        let vectors = [(&first, swizzles.0), (&second, swizzles.1)];
        let vector = Vector::common(&Swizzled::new(swizzles.0, 0, first), &Swizzled::new(swizzles.1, 0, second), 8).unwrap();
        for (layout, swizzle) in vectors {
            let moved = Swizzled::new(swizzle, start * vector.width, *layout);
            // A swizzle of a negative offset has no place in memory.
            let memory = layout.strides().iter().all(|stride| *stride >= 0);
            prop_assert!(!memory || vector.width == 1 || holds(&moved, vector.along, vector.width), "{}", moved);
        }
        let bases = [swizzles.0, swizzles.1].map(|s| if s.bits() == 0 { i64::MAX } else { 1 << s.base() });
        let unswizzled = Vector::common(&plain(first, 0), &plain(second, 0), 8).unwrap();
        prop_assert_eq!(vector.width, unswizzled.width.min(bases[0]).min(bases[1]));
    }

    /// Every element is in one vector, the vectors hold on both sides, and the first ones are
    /// neighbours in the first layout.
    #[test]
    fn a_plan_deals_every_element_once(
        first in layouts(),
        keys in prop::collection::vec(0i64..9, 6),
        threads in 1i64..70,
    ) {
        let second = plain(beside(&first, &keys, 0), 0);
        let first = plain(first, 0);
        let plan = CopyPlan::between(&first, &second, 16, threads).unwrap();
        let step = before(&first.layout(), plan.along);
        let mut seen = vec![0u32; first.size() as usize];
        for number in 0..plan.vectors.size() {
            let at = plan.vectors.at(number);
            for lane in 0..plan.width {
                seen[(at + lane * step) as usize] += 1;
            }
            prop_assert!(plan.width == 1 || second.at(at) % plan.width == 0);
        }
        prop_assert!(seen.iter().all(|count| *count == 1), "{}", plan.vectors);
        prop_assert!(plan.rounds * threads >= plan.vectors.size() && (plan.rounds - 1) * threads < plan.vectors.size());
        let steps: Vec<i64> = (1..plan.vectors.rank())
            .map(|mode| plan.vectors.mode(mode).unwrap())
            .map(|mode| first.layout().at(mode.at(1)).abs())
            .filter(|step| *step != 0)
            .collect();
        prop_assert!(plan.vectors.extents()[1..].contains(&1) || steps.is_sorted() || first.layout().depth() > 1, "{:?}", steps);
    }
}

/// The tile of a copy as it ships: rank 2, a swizzled destination, a source that the type knows
/// nothing of.
#[test]
fn a_plan_by_extents_is_the_plan_between_layouts() {
    let shared = Swizzled::new(Swizzle::new(3, 3, 3).unwrap(), 0, Layout::parse("(16,64):(64,1)").unwrap());
    let global = plain(Layout::parse("(16,64):(4096,1)").unwrap(), 0);
    let between = CopyPlan::between(&global, &shared, 16, 128).unwrap();
    assert_eq!(CopyPlan::new([16, 64], 1, 8, &shared, 16, 128).unwrap(), between);
    assert_eq!((between.width, between.along, between.rounds), (8, 1, 1));
    // A pointer that is aligned to 4 bytes takes vectors of 2.
    let vector = Vector::common(&global, &shared, 16).unwrap().dividing(2);
    assert_eq!(CopyPlan::of(&global.layout(), vector, 128).unwrap().width, 2);
}

/// Heads, positions and elements transposed: a copy of rank 3 between global memory and a
/// fragment's registers.
#[test]
fn a_vector_of_rank_three_runs_along_the_last_mode() {
    let global = plain(Layout::parse("(4,16,64):(64,256,1)").unwrap(), 0);
    let registers = plain(Layout::parse("(4,16,(2,32)):(64,256,(1,2))").unwrap(), 0);
    assert_eq!(Vector::common(&global, &registers, 16).unwrap(), Vector { width: 8, along: 2 });
    let strided = plain(Layout::parse("(4,16,(2,32)):(64,256,(32,1))").unwrap(), 0);
    assert_eq!(Vector::common(&global, &strided, 16).unwrap(), Vector { width: 1, along: 2 });
}
