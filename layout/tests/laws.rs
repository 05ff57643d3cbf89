//! The laws of the algebra on random layouts, 1,000 cases each.

use proptest::prelude::*;
use tilewright_layout::ops::Order;
use tilewright_layout::testing::{any_layout, compact, extent, nesting, shape, signed_layout, swizzle};
use tilewright_layout::{Composed, Coord, IntTuple, Layout, Swizzled, Tiler, laws};

/// A law that must hold, with its counterexample where it does not.
fn hold(law: Result<(), laws::Counterexample>) -> Result<(), TestCaseError> {
    law.map_err(|counterexample| TestCaseError::fail(counterexample.to_string()))
}

/// Whether every offset of `inner` is below the size of `outer`.
fn inside(inner: &Layout, outer: &Layout) -> bool {
    (0..inner.size()).all(|i| (0..outer.size()).contains(&inner.at(i)))
}

/// A shape of the same size: integers split in two where they are even, tuples joined to one
/// integer, or kept.
fn rearranged(shape: &IntTuple, choices: &mut impl Iterator<Item = usize>) -> IntTuple {
    let choice = choices.next().unwrap_or(0);
    match (shape.is_int(), choice) {
        (true, 0) if shape.product().unwrap() % 2 == 0 => IntTuple::flat(&[2, shape.product().unwrap() / 2]).unwrap(),
        (false, 1) => IntTuple::int(shape.product().unwrap()),
        (true, _) => *shape,
        (false, _) => {
            let modes: Vec<IntTuple> =
                (0..shape.rank()).map(|i| rearranged(&shape.mode(i).unwrap(), choices)).collect();
            IntTuple::tuple(&modes).unwrap()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn coalesce_keeps_the_function(layout in signed_layout()) {
        hold(laws::coalesce(&layout, &layout.coalesce()))?;
    }

    /// Two layouts over one shape, each refined its own way, come to one nesting and stay the
    /// functions that they are.
    #[test]
    fn modes_expanded_alike_are_congruent_and_the_same_functions(
        layout in signed_layout(),
        other in signed_layout(),
        keys in prop::collection::vec(-20i64..20, 8),
        choices in prop::collection::vec(0usize..4, 12),
    ) {
        // A partner that splits some integers of the layout and joins some of its tuples.
        let shape = rearranged(&layout.shape(), &mut choices.iter().copied().cycle());
        let flat: Vec<i64> = keys.iter().copied().cycle().take(shape.values().len()).collect();
        let flat = Layout::new(&IntTuple::flat(shape.values()).unwrap(), &IntTuple::flat(&flat).unwrap()).unwrap();
        let partner = if shape.is_int() { flat.mode(0).unwrap() } else { flat.unflatten(&shape.profile()).unwrap() };
        let (a, b) = layout.expand_modes_alike(&partner).unwrap();
        prop_assert_eq!(a.shape(), b.shape());
        prop_assert!(layout.shape().compatible(&a.shape()) && partner.shape().compatible(&b.shape()));
        hold(laws::same_function("expanded", &a, &layout))?;
        hold(laws::same_function("expanded", &b, &partner))?;
        prop_assert_eq!(partner.expand_modes_alike(&layout), Ok((b, a)));
        prop_assert_eq!(layout.expand_modes_alike(&layout), Ok((layout, layout)));
        // Of two layouts at random the answer is right, or a refusal.
        if let Ok((a, b)) = layout.expand_modes_alike(&other) {
            prop_assert!(a.shape() == b.shape());
            hold(laws::same_function("expanded", &a, &layout))?;
            hold(laws::same_function("expanded", &b, &other))?;
        }
    }

    #[test]
    fn composition_is_one_after_the_other(a in compact(), b in any_layout()) {
        if let Ok(result) = a.composition(&b) && inside(&b, &a) {
            hold(laws::composition(&a, &b, &result))?;
        }
    }

    #[test]
    fn composition_with_a_tile_of_its_own_shape(a in compact(), extents in shape()) {
        // A compact right layout of a divisor's size always composes with a compact left one of one
        // mode.
        let left = Layout::leaf(extents.product().unwrap(), 3).unwrap();
        let right = Layout::col_major(&extents).unwrap();
        hold(laws::composition(&left, &right, &left.composition(&right).unwrap()))?;
        let identity = Layout::leaf(a.size(), 1).unwrap();
        hold(laws::same_function("identity o A", &identity.composition(&a).unwrap(), &a))?;
        hold(laws::same_function("A o identity", &a.composition(&identity).unwrap(), &a))?;
    }

    #[test]
    fn composition_is_associative(a in compact(), b in compact(), c in compact()) {
        if let (Ok(ab), Ok(bc)) = (a.composition(&b), b.composition(&c))
            && let (Ok(left), Ok(right)) = (ab.composition(&c), a.composition(&bc))
            && inside(&b, &a) && inside(&c, &b)
        {
            hold(laws::same_function("(A o B) o C == A o (B o C)", &left, &right))?;
        }
    }

    #[test]
    fn complement_is_disjoint_ordered_and_covers(layout in nesting(), copies in 1i64..5) {
        let bound = layout.filter().cosize();
        let nests = layout.complement_self().unwrap().size() * layout.filter().size();
        let bound = if nests % bound == 0 { nests * copies } else { bound };
        let covers = layout.complement_exact(bound).is_ok();
        hold(laws::complement(&layout, bound, &layout.complement(bound).unwrap(), covers))?;
    }

    #[test]
    fn complement_of_any_layout_is_disjoint_or_refused(layout in any_layout(), bound in 1i64..200) {
        if let Ok(result) = layout.complement(bound) {
            hold(laws::complement(&layout, bound, &result, false))?;
        }
    }

    #[test]
    fn right_inverse_inverts(layout in signed_layout()) {
        hold(laws::right_inverse(&layout, &layout.right_inverse()))?;
    }

    #[test]
    fn inverses_of_a_bijection_are_its_inverse(layout in compact()) {
        let right = layout.right_inverse();
        let left = layout.left_inverse().unwrap();
        prop_assert_eq!(right, left);
        prop_assert_eq!(right.size(), layout.size());
        hold(laws::left_inverse(&layout, &left))?;
        hold(laws::same_function("inverse of inverse", &right.right_inverse(), &layout))?;
    }

    #[test]
    fn left_inverse_inverts_or_refuses(layout in any_layout()) {
        if let Ok(result) = layout.left_inverse() {
            hold(laws::left_inverse(&layout, &result))?;
        }
    }

    #[test]
    fn divide_agrees_with_its_definition(layout in compact(), tile in nesting()) {
        if let Ok(result) = layout.logical_divide(&Tiler::layout(&tile)) && inside(&tile, &layout) {
            hold(laws::logical_divide(&layout, &tile, &result))?;
        }
    }

    #[test]
    fn divide_by_any_tile_covers_or_is_refused(layout in compact(), tile in any_layout()) {
        if let Ok(result) = layout.logical_divide(&Tiler::layout(&tile)) && inside(&tile, &layout) {
            hold(laws::logical_divide(&layout, &tile, &result))?;
        }
    }

    #[test]
    fn an_exact_complement_fills_its_bound(layout in any_layout(), bound in 1i64..200) {
        if let Ok(rest) = layout.complement_exact(bound) {
            hold(laws::complement(&layout, bound, &rest, true))?;
        }
    }

    #[test]
    fn tiles_cover_each_element_once(m in 1i64..5, n in 1i64..5, tiles_m in 1i64..5, tiles_n in 1i64..5, rows in any::<bool>()) {
        let shape = IntTuple::flat(&[m * tiles_m, n * tiles_n]).unwrap();
        let layout = if rows { Layout::row_major(&shape) } else { Layout::col_major(&shape) }.unwrap();
        let tiler = Tiler::by_mode(&[Tiler::extent(m), Tiler::extent(n)]).unwrap();
        for divided in [layout.zipped_divide(&tiler), layout.tiled_divide(&tiler), layout.flat_divide(&tiler)] {
            let mut offsets: Vec<i64> = (0..layout.size()).map(|i| divided.unwrap().at(i)).collect();
            offsets.sort_unstable();
            prop_assert_eq!(offsets, (0..layout.size()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn product_agrees_with_its_definition(block in nesting(), copies in compact()) {
        if let Ok(result) = block.logical_product(&Tiler::layout(&copies)) {
            hold(laws::logical_product(&block, &copies, &result))?;
        }
    }

    #[test]
    fn products_hold_the_same_elements(block in compact(), copies in compact()) {
        if let (Ok(blocked), Ok(raked)) = (block.blocked_product(&copies), block.raked_product(&copies)) {
            hold(laws::injective(&blocked))?;
            let sorted = |l: Layout| {
                let mut offsets: Vec<i64> = (0..l.size()).map(|i| l.at(i)).collect();
                offsets.sort_unstable();
                offsets
            };
            prop_assert_eq!(sorted(blocked), sorted(raked));
        }
    }

    #[test]
    fn filter_keeps_the_offsets(layout in signed_layout()) {
        hold(laws::filter(&layout, &layout.filter()))?;
    }

    #[test]
    fn slices_agree_with_the_layout(layout in signed_layout(), fixed in any::<u8>(), seed in 0i64..512) {
        let coordinate = layout.coordinate(seed % layout.size());
        let modes: Vec<Coord> = (0..layout.rank())
            .map(|i| if fixed >> i & 1 == 1 { Coord::of(coordinate.mode(i).unwrap()) } else { Coord::ALL })
            .collect();
        let coord = if layout.is_leaf() { modes[0] } else { Coord::tuple(&modes).unwrap() };
        let (slice, offset) = layout.slice_and_offset(&coord).unwrap();
        for i in 0..slice.size() {
            // The full coordinate: open modes take the digits of `i` in turn.
            let mut rest = i;
            let full: Vec<IntTuple> = (0..layout.rank())
                .map(|mode| {
                    let extent = layout.mode(mode).unwrap().size();
                    if fixed >> mode & 1 == 1 { coordinate.mode(mode).unwrap() } else {
                        let digit = rest % extent;
                        rest /= extent;
                        IntTuple::int(digit)
                    }
                })
                .collect();
            let full = if layout.is_leaf() { full[0] } else { IntTuple::tuple(&full).unwrap() };
            prop_assert_eq!(slice.at(i) + offset, layout.offset(&full).unwrap());
        }
    }

    #[test]
    fn casts_are_inverse(layout in compact(), power in 0u32..4) {
        let factor = 1 << power;
        if let Ok(fine) = layout.downcast(factor) {
            hold(laws::same_function("upcast(downcast(L, n), n) == L", &fine.upcast(factor).unwrap(), &layout))?;
        }
    }

    #[test]
    fn swizzle_is_an_involution(swizzle in swizzle()) {
        hold(laws::swizzle_involution(&swizzle, 1 << 12))?;
        prop_assert_eq!(swizzle.merge(&swizzle).unwrap().bits(), 0);
    }

    #[test]
    fn swizzled_layouts_keep_their_laws(swizzle in swizzle(), layout in compact(), row in any::<bool>(), at in 0i64..64) {
        let swizzled = Swizzled::new(swizzle, 0, layout);
        if let Ok(inverse) = swizzled.right_inverse() {
            for offset in 0..inverse.size() {
                prop_assert_eq!(swizzled.at(inverse.at(offset)), offset);
            }
        }
        if let Ok(moved) = layout.after_swizzle(&swizzle) {
            for i in 0..layout.size() {
                prop_assert_eq!(moved.at(i), layout.at(swizzle.apply(i)));
            }
        }
        if layout.rank() == 2 {
            let fixed = Coord::of(IntTuple::int(at % layout.extent(usize::from(!row))));
            let coordinate = Coord::tuple(&if row { [Coord::ALL, fixed] } else { [fixed, Coord::ALL] }).unwrap();
            if let Ok((slice, offset)) = swizzled.slice_and_offset(&coordinate) {
                let (plain, start) = layout.slice_and_offset(&coordinate).unwrap();
                for i in 0..plain.size() {
                    prop_assert_eq!(slice.at(i) + offset, swizzle.apply(start + plain.at(i)));
                }
            }
        }
    }

    #[test]
    fn text_is_read_back(layout in signed_layout()) {
        prop_assert_eq!(Layout::parse(&layout.to_string()).unwrap(), layout);
        prop_assert_eq!(IntTuple::parse(&layout.shape().to_string()).unwrap(), layout.shape());
    }

    #[test]
    fn no_text_panics(text in "[-0-9(),:_ ]{0,40}") {
        // Whatever is read prints back to something that reads the same.
        if let Ok(layout) = Layout::parse(&text) {
            prop_assert_eq!(Layout::parse(&layout.to_string()).unwrap(), layout);
        }
    }

    #[test]
    fn huge_numbers_are_refused_or_indexed(extents in prop::collection::vec(1i64..i64::MAX, 1..5), stride in any::<i64>()) {
        let shape = IntTuple::flat(&extents).unwrap();
        let strides = IntTuple::flat(&vec![stride; extents.len()]).unwrap();
        if let Ok(layout) = Layout::new(&shape, &strides) {
            prop_assert!(layout.cosize() >= 1);
            prop_assert_eq!(layout.coalesce().size(), layout.size());
            prop_assert!(layout.downcast(1 << 40).is_err() || layout.cosize() < 1 << 21);
        }
    }

    #[test]
    fn vectors_are_contiguous_and_aligned(layout in compact(), stretch in extent()) {
        let width = layout.vector_width(16);
        prop_assert!(width * 16 <= 128 && width.count_ones() == 1);
        let wide = layout.downcast(width * stretch).unwrap_or(layout);
        prop_assert!(wide.vector_width(16) >= width.min(8));
        prop_assert_eq!(Composed::Plain(layout).vector_width(16), width);
    }
}

fn layout(text: &str) -> Layout {
    Layout::parse(text).unwrap()
}

#[test]
fn laws_catch_planted_bugs() {
    let rows = layout("(4,8):(8,1)");
    // A result of the field's own rules that is not the function: 8 elements of stride 6 leave a
    // mode of 8.
    assert!(laws::composition(&layout("(8,8):(8,1)"), &layout("8:6"), &layout("(2,4):(48,1)")).is_err());
    assert!(laws::coalesce(&rows, &layout("32:1")).is_err());
    assert!(laws::coalesce(&layout("(4,8):(1,4)"), &layout("(4,8):(1,4)")).is_err());
    assert!(laws::filter(&layout("(2,4):(0,1)"), &layout("3:1")).is_err());
    assert!(laws::complement(&layout("4:2"), 16, &layout("(2,2):(1,4)"), true).is_err());
    assert!(laws::complement(&layout("4:2"), 16, &layout("2:8"), true).is_err());
    assert!(laws::right_inverse(&rows, &layout("(4,8):(8,1)")).is_err());
    assert!(laws::left_inverse(&rows, &layout("(4,8):(8,1)")).is_err());
    assert!(laws::logical_divide(&rows, &layout("4:1"), &layout("(4,8):(1,4)")).is_err());
    assert!(laws::logical_product(&layout("4:1"), &layout("2:1"), &layout("(4,2):(1,3)")).is_err());
    assert!(laws::injective(&layout("(4,4):(1,3)")).is_err());
    assert!(laws::bijective(&layout("(4,4):(1,8)")).is_err());
}

#[test]
fn a_counterexample_names_two_coordinates_of_one_offset() {
    let shared = layout("(4,4):(1,3)");
    let counterexample = laws::injective(&shared).unwrap_err();
    assert_ne!(counterexample.at, counterexample.expected);
    assert_eq!(shared.at(counterexample.at), counterexample.found);
    assert_eq!(shared.at(counterexample.expected), counterexample.found);
}

#[test]
fn the_capacity_is_a_refusal() {
    let most = IntTuple::flat(&[2; 32]).unwrap();
    assert!(Layout::col_major(&most).is_ok());
    assert!(IntTuple::flat(&[2; 33]).is_err());
    let wide = Layout::col_major(&most).unwrap();
    assert_eq!(
        Layout::tuple(&[wide, wide]).unwrap_err().to_string(),
        "layout: more than 32 integers; coalesce the layout or flatten it first"
    );
    assert_eq!(layout(&wide.to_string()), wide);
}

/// The compiler runs the same algebra.
#[test]
fn constants_are_the_same_algebra() {
    const ROWS: Layout = Layout::constant(Layout::parse("(64,64):(64,1)"));
    const TILES: Layout = Layout::constant(ROWS.blocked_product(&ROWS));
    assert_eq!(TILES, layout("(64,64):(64,1)").blocked_product(&ROWS).unwrap());
}

/// Row after row of (call, result): products of blocks that leave too little room repeated offsets,
/// as CuTe's do.
#[test]
fn products_that_would_repeat_offsets_are_refused() {
    let block = layout("(2,2):(3,9)");
    let copies = layout("4:1");
    let refusal = "product: the block leaves room for 3 copies that repeat no offset, and the layout of copies needs 4; \
                   use fewer copies, or a block whose strides are multiples of what the smaller ones span";
    let tiler = Tiler::layout(&copies);
    for product in [
        block.logical_product(&tiler),
        block.zipped_product(&tiler),
        block.tiled_product(&tiler),
        block.flat_product(&tiler),
        block.blocked_product(&layout("(4,1):(1,0)")),
        block.raked_product(&layout("(4,1):(1,0)")),
        layout("(2,2,2):(3,1,18)")
            .tile_to_shape(&IntTuple::parse("(8,2,2)").unwrap(), Order::By(&IntTuple::parse("(0,2,1)").unwrap())),
    ] {
        assert_eq!(product.map_err(|error| error.to_string()), Err(refusal.to_owned()));
    }
    // Three copies fit, and so do any number that starts where the block ends.
    assert_eq!(block.logical_product(&Tiler::layout(&layout("3:1"))).unwrap(), layout("((2,2),3):((3,9),1)"));
    assert_eq!(
        block.logical_product(&Tiler::layout(&layout("(3,2):(1,3)"))).unwrap().to_string(),
        "((2,2),(3,2)):((3,9),(1,18))"
    );
    // A block whose gaps take no copy at all repeated itself with stride 0.
    assert!(layout("(2,2,2):(1,3,11)").logical_product(&Tiler::layout(&layout("2:1"))).is_err());
}

#[test]
fn an_offset_of_a_padded_layout_has_its_coordinate_or_none() {
    let padded = layout("(3,4):(5,1)");
    let coordinates: Vec<_> = (-1..16).map(|offset| padded.coordinate_of_offset(offset).ok()).collect();
    for (offset, coordinate) in (-1..16).zip(coordinates) {
        let row_and_column = (offset >= 0 && offset % 5 < 4 && offset / 5 < 3).then_some([offset / 5, offset % 5]);
        assert_eq!(coordinate, row_and_column.map(|c| IntTuple::flat(&c).unwrap()), "{offset}");
    }
    // Strides that do not nest, and negative ones.
    assert_eq!(layout("(2,2,2):(2,3,4)").coordinate_of_offset(5).unwrap().to_string(), "(1,1,0)");
    assert_eq!(layout("(3,4):(1,-3)").coordinate_of_offset(-8).unwrap().to_string(), "(1,3)");
    assert!(layout("8:-1").coordinate_of_offset(i64::MIN).is_err());
}

#[test]
fn a_mode_of_one_element_takes_no_step() {
    assert_eq!(layout("(12,1):(1,1)").composition(&layout("(12,1):(1,32)")).unwrap().to_string(), "(12,1):(1,0)");
    assert_eq!(layout("(4,8):(8,1)").composition(&layout("(2,1):(1,5)")).unwrap().to_string(), "(2,1):(8,0)");
    assert_eq!(layout("(1,4):(3,1)").upcast(2).unwrap().to_string(), "(1,2):(0,1)");
    // Its stride of 1 is no contiguous mode where another is: the parts of an element would repeat.
    assert_eq!(layout("(1,9):(1,1)").downcast(4).unwrap().to_string(), "(1,36):(4,1)");
    assert_eq!(layout("1:1").downcast(4).unwrap().to_string(), "4:1");
    let huge = layout("1:1152921504606846976");
    assert_eq!(layout("(4,4):(4,1)").composition(&huge).unwrap().size(), 1);
}

#[test]
fn layouts_that_do_not_compose_share_what_a_walk_finds() {
    let common = |a: &str, b: &str| {
        let a = layout(a);
        let b = layout(b);
        let found = a.max_common_layout(&b).unwrap();
        assert_eq!(a.max_common_vector(&b), Ok(found.size()));
        found.to_string()
    };
    assert_eq!(common("(16,3):(3,1)", "(3,12):(12,1)"), "1:0");
    assert_eq!(common("(4,3):(1,10)", "(6,2):(1,6)"), "4:1");
    assert_eq!(common("(8,4):(1,8)", "(8,4):(1,16)"), "8:1");
}

/// Products of sizes that wrapped to 0 and took part in quotients, scales and comparisons; extents
/// of 0.
#[test]
fn sizes_beyond_64_bits_and_extents_of_0_are_refused() {
    let tuple = |text: &str| IntTuple::parse(text).unwrap();
    let wraps = tuple("((4294967296,4294967296),1)");
    assert!(tuple("(4294967296,4294967296)").product().is_err());
    assert!(tuple("(6,1)").elem_scale(&wraps).is_err());
    assert!(tuple("(6,1)").shape_div(&wraps).is_err());
    assert!(tuple("(6,1)").ceil_div(&wraps).is_err());
    assert!(tuple("(1,1)").expand_modes_alike(&wraps).is_err());
    assert!(wraps.product_each().is_err());
    let rows = layout("(4,8):(8,1)");
    assert!(Layout::col_major(&tuple("(4,0)")).is_err() && Layout::leaf(0, 1).is_err());
    assert!(rows.logical_divide(&Tiler::extent(0)).is_err() && rows.compose_tiler(&Tiler::extent(0)).is_err());
    assert!(rows.logical_product(&Tiler::extent(0)).is_err() && rows.complement(0).is_err());
    assert!(rows.tile_to_shape(&tuple("(0,8)"), Order::Left).is_err() && rows.upcast(0).is_err());
}
