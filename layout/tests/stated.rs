//! Statements of the documentation on single functions that no other test covers: laws on random
//! layouts, edge cases by example.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tilewright_layout::ops::Order;
use tilewright_layout::swizzle::canonical::{CanonicalAtom, SwizzleWidth, ldmatrix_swizzle};
use tilewright_layout::testing::{any_layout, compact, nesting, shape, signed_layout, swizzle};
use tilewright_layout::{Composed, IntTuple, Layout, LayoutError, Swizzle, Swizzled, Tiler, laws};

fn layout(text: &str) -> Layout {
    Layout::parse(text).unwrap()
}

fn tuple(text: &str) -> IntTuple {
    IntTuple::parse(text).unwrap()
}

/// The results as text; a refusal as its message.
fn shown(result: Result<Layout, LayoutError>) -> String {
    result.map_or_else(|error| error.to_string(), |layout| layout.to_string())
}

fn image(layout: &Layout) -> BTreeSet<i64> {
    (0..layout.size()).map(|i| layout.at(i)).collect()
}

/// Whether no two of the strides that matter are equal.
fn distinct_strides(layout: &Layout) -> bool {
    let used: Vec<i64> = layout.strides().iter().copied().filter(|d| *d != 0).collect();
    used.iter().collect::<BTreeSet<_>>().len() == used.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn marked_modes_are_simplified_alone(layout in signed_layout()) {
        let rank = layout.rank();
        let profile = if layout.is_leaf() { IntTuple::int(1) } else { IntTuple::flat(&vec![1; rank]).unwrap() }.profile();
        let coalesced = layout.coalesce_modes(&profile).unwrap();
        let filtered = layout.filter_modes(&profile).unwrap();
        for i in 0..rank {
            let mode = layout.mode(i).unwrap();
            prop_assert!(layout.is_leaf() || coalesced.mode(i) == Ok(mode.coalesce()));
            prop_assert!(layout.is_leaf() || filtered.mode(i) == Ok(mode.filter()));
        }
        let once = layout.filter_zeros();
        prop_assert!(once.profile().congruent(&layout.profile()));
        prop_assert_eq!(image(&once), image(&layout));
        let marks = IntTuple::flat(&(0..rank).map(|i| i as i64 % 2).collect::<Vec<_>>()).unwrap();
        if !layout.is_leaf() {
            let closed = layout.filter_zeros_by(&marks).unwrap();
            let expected = |i| if i % 2 == 0 { 1 } else { layout.extent(i) };
            prop_assert!((0..rank).all(|i| closed.extent(i) == expected(i)));
        }
    }

    #[test]
    fn a_bound_by_modes_is_a_bound(tile in 1i64..7, modes in prop::collection::vec(1i64..5, 1..4)) {
        // The first mode is a multiple of the tile, so each mode is divided without a remainder.
        let mut extents = modes;
        extents[0] *= tile;
        let shape = IntTuple::flat(&extents).unwrap();
        let layout = Layout::leaf(tile, 1).unwrap();
        prop_assert_eq!(layout.complement_in(&shape), layout.complement(shape.product().unwrap()));
    }

    #[test]
    fn an_injective_layout_is_undone(layout in any_layout()) {
        if let (true, Ok(inverse)) = (layout.is_injective(), layout.left_inverse()) {
            prop_assert!((0..layout.size()).all(|i| inverse.at(layout.at(i)) == i));
        }
    }

    #[test]
    fn copies_come_in_their_order(block in nesting(), copies in compact()) {
        if let Ok(product) = block.logical_product(&Tiler::layout(&copies)) {
            let places = product.mode(1).unwrap();
            let mut order: Vec<i64> = (0..copies.size()).collect();
            order.sort_by_key(|i| copies.at(*i));
            prop_assert!(order.windows(2).all(|pair| places.at(pair[0]) < places.at(pair[1])));
        }
    }

    #[test]
    fn products_pair_modes(m in 1i64..5, n in 1i64..5, copies in compact()) {
        let block = Layout::row_major(&IntTuple::flat(&[m, n]).unwrap()).unwrap();
        let padded = copies.append_to(&Layout::ONE, 2.max(copies.rank())).unwrap();
        if let (Ok(blocked), Ok(product)) = (block.blocked_product(&copies), block.logical_product(&Tiler::layout(&padded))) {
            prop_assert_eq!(image(&blocked), image(&product));
            prop_assert_eq!(image(&block.raked_product(&copies).unwrap()), image(&product));
        }
    }

    #[test]
    fn a_block_is_tiled_to_the_shape(m in 1i64..5, n in 1i64..5, down in 1i64..5, across in 1i64..5, right in any::<bool>()) {
        let block = Layout::row_major(&IntTuple::flat(&[m, n]).unwrap()).unwrap();
        let shape = IntTuple::flat(&[m * down, n * across]).unwrap();
        let tiled = block.tile_to_shape(&shape, if right { Order::Right } else { Order::Left }).unwrap();
        prop_assert_eq!((tiled.extent(0), tiled.extent(1)), (m * down, n * across));
        prop_assert!(tiled.is_bijective());
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let coordinate = IntTuple::flat(&[i, j]).unwrap();
            prop_assert_eq!(tiled.offset(&coordinate), block.offset(&coordinate));
        }
        prop_assert!(block.tile_to_shape(&IntTuple::flat(&[m * down + 1, n]).unwrap(), Order::Left).is_err() || m == 1);
    }

    #[test]
    fn swizzled_elements_are_found_in_larger_ones(swizzle in swizzle(), layout in nesting(), power in 0i64..4) {
        let factor = 1 << power;
        let swizzled = Swizzled::new(swizzle, 0, layout);
        if let (Ok(large), true) = (swizzled.upcast(factor), power <= swizzle.base()) {
            let expected: BTreeSet<i64> = (0..layout.size()).map(|i| swizzled.at(i) / factor).collect();
            prop_assert_eq!((0..large.size()).map(|i| large.at(i)).collect::<BTreeSet<_>>(), expected);
        }
        if let Ok(small) = swizzled.downcast(factor) && layout.is_bijective() {
            let back = small.upcast(factor).unwrap();
            prop_assert!(back.swizzle() == swizzle && (0..layout.size()).all(|i| back.at(i) == swizzled.at(i)));
        }
    }

    #[test]
    fn orders_of_different_numbers_are_bijective(shape in shape(), keys in prop::collection::vec(-9i64..9, 6)) {
        let count = shape.values().len();
        // Distinct numbers of either sign: the position breaks ties.
        let order: Vec<i64> = (0..count).map(|i| keys[i] * 8 + i as i64).collect();
        let flat = IntTuple::flat(shape.values()).unwrap();
        let ordered = Layout::ordered(&flat, &IntTuple::flat(&order).unwrap()).unwrap();
        prop_assert!(ordered.is_bijective());
        let mut by_number: Vec<usize> = (0..count).filter(|i| shape.values()[*i] > 1).collect();
        by_number.sort_by_key(|i| order[*i]);
        prop_assert!(by_number.windows(2).all(|pair| ordered.strides()[pair[0]] < ordered.strides()[pair[1]]));
    }

    #[test]
    fn compact_strides_start_where_they_are_told(shape in shape(), start in -4i64..5) {
        let one = IntTuple::int(1);
        let many = IntTuple::int(start);
        for (plain, scaled) in [
            (Layout::col_major_from(&shape, &one), Layout::col_major_from(&shape, &many)),
            (Layout::row_major_from(&shape, &one), Layout::row_major_from(&shape, &many)),
        ] {
            let plain = plain.unwrap();
            let scaled = scaled.unwrap();
            prop_assert!((0..plain.size()).all(|i| scaled.at(i) == start * plain.at(i)));
        }
    }

    #[test]
    fn upcast_finds_the_elements_that_hold_one(layout in nesting(), factor in 1i64..9) {
        if let Ok(large) = layout.upcast(factor) {
            prop_assert_eq!(image(&large), image(&layout).into_iter().map(|o| o / factor).collect::<BTreeSet<_>>());
        }
    }

    #[test]
    fn a_layout_in_the_likeness_is_compact(layout in any_layout()) {
        prop_assume!(distinct_strides(&layout));
        let like = layout.compact_like().unwrap();
        prop_assert_eq!(like.shape(), layout.shape());
        prop_assert!(like.filter_zeros().is_bijective());
        let pairs = || layout.extents().iter().zip(layout.strides().iter().zip(like.strides())).filter(|(s, _)| **s > 1);
        for (_, (before, after)) in pairs() {
            prop_assert_eq!(*before == 0, *after == 0);
            for (_, (other_before, other_after)) in pairs() {
                prop_assert!(before >= other_before || after < other_after);
            }
        }
    }

    #[test]
    fn a_fragment_has_a_register_per_element(layout in nesting()) {
        prop_assume!(distinct_strides(&layout));
        let fragment = layout.fragment_like().unwrap();
        prop_assert_eq!(fragment.size(), layout.size());
        prop_assert_eq!(fragment.extent(0), layout.extent(0));
        prop_assert!(fragment.is_bijective());
    }

    #[test]
    fn modes_are_moved_not_changed(layout in signed_layout(), other in signed_layout(), begin in 0usize..4, end in 0usize..4) {
        let before = layout.prepend(&other).unwrap();
        let after = layout.append(&other).unwrap();
        prop_assert_eq!(after.take(0, layout.rank()).unwrap().flatten().shape().product().unwrap(), layout.size());
        for (i, j) in (0..layout.size()).zip((0..other.size()).cycle()) {
            prop_assert_eq!(after.at(i + layout.size() * j), layout.at(i) + other.at(j));
            prop_assert_eq!(before.at(j + other.size() * i), layout.at(i) + other.at(j));
        }
        if let Ok(grouped) = layout.group(begin, end) {
            prop_assert_eq!(laws::same_function("group keeps the function", &grouped, &layout), Ok(()));
        }
        prop_assert_eq!(layout.flatten().unflatten(&layout.profile()), Ok(layout));
    }

    #[test]
    fn zip_exchanges_the_upper_levels(a in signed_layout(), b in signed_layout(), c in signed_layout(), d in signed_layout()) {
        let pair = |x, y| Layout::tuple(&[x, y]).unwrap();
        let zipped = pair(pair(a, b), pair(c, d)).zip().unwrap();
        prop_assert_eq!(zipped, pair(pair(a, c), pair(b, d)));
        prop_assert_eq!(zipped.zip().unwrap(), pair(pair(a, b), pair(c, d)));
    }

    #[test]
    fn common_layouts_agree_in_both(a in compact(), keys in prop::collection::vec(any::<u16>(), 6)) {
        let flat = IntTuple::flat(a.shape().values()).unwrap();
        let order: Vec<i64> = (0..a.extents().len()).map(|i| i64::from(keys[i]) * 8 + i as i64).collect();
        let b = Layout::ordered(&flat, &IntTuple::flat(&order).unwrap()).unwrap();
        if let Ok(common) = a.max_common_layout(&b) {
            prop_assert_eq!(a.max_common_vector(&b), Ok(common.size()));
            prop_assert!((0..common.size()).all(|i| a.at(common.at(i)) == i && b.at(common.at(i)) == i));
        }
    }

    #[test]
    fn alignment_divides_what_leaves_the_run(layout in signed_layout()) {
        let alignment = layout.max_alignment();
        prop_assert_eq!(layout.right_inverse().size() % alignment, 0);
        let outside = layout.strides().iter().zip(layout.extents()).filter(|(d, s)| **s > 1 && d.abs() >= layout.right_inverse().size());
        prop_assert!(outside.map(|(d, _)| d % alignment).all(|rest| rest == 0));
    }

    #[test]
    fn a_distribution_stays_inside(shape in shape(), count in 1i64..40) {
        let spread = shape.domain_distribute(count).unwrap();
        prop_assert!(spread.is_injective() && count % spread.size() == 0 && spread.cosize() <= shape.product().unwrap());
    }

    #[test]
    fn a_merged_swizzle_is_both(a in swizzle(), b in swizzle(), offset in -4096i64..4096) {
        if let Ok(merged) = a.merge(&b) {
            prop_assert_eq!(merged.apply(offset), a.apply(b.apply(offset)));
        }
        prop_assert_eq!(a.apply(a.apply(offset)), offset);
        prop_assert_eq!(a.apply(offset) < 0, offset < 0);
        prop_assert_eq!(Swizzle::from_masks(a.source_mask(), a.target_mask()).unwrap().source_mask(), a.source_mask());
    }

    #[test]
    fn swizzles_of_other_elements_agree(swizzle in swizzle(), power in 0i64..5, offset in 0i64..1 << 14) {
        let factor = 1 << power;
        prop_assert_eq!(swizzle.downcast(factor).unwrap().upcast(factor).unwrap(), swizzle);
        if power <= swizzle.base() {
            prop_assert_eq!(swizzle.upcast(factor).unwrap().apply(offset / factor), swizzle.apply(offset) / factor);
            let there = swizzle.recast(8, 8 * factor).unwrap();
            prop_assert_eq!(there.recast(8 * factor, 8).unwrap(), swizzle);
        }
    }

    #[test]
    fn swizzled_inverses_invert(swizzle in swizzle(), layout in nesting(), tile in 1i64..5) {
        let swizzled = Swizzled::new(swizzle, 0, layout);
        if let Ok(inverse) = swizzled.left_inverse() {
            prop_assert!((0..layout.size()).all(|i| swizzled.at(inverse.at(swizzled.at(i))) == swizzled.at(i)));
        }
        if let Ok(first) = swizzled.compose_tiler(&Tiler::extent(tile)) {
            prop_assert!((0..first.size().min(layout.size())).all(|i| first.at(i) == swizzled.at(i)));
        }
    }

    #[test]
    fn swizzled_vectors_are_whole(swizzle in swizzle(), layout in compact(), start in 0i64..64) {
        let swizzled = Swizzled::new(swizzle, start, layout);
        if let (Ok(count), Ok(common)) = (swizzled.max_common_vector(&layout), layout.max_common_layout(&layout)) {
            prop_assert!((0..count).all(|i| swizzled.at(common.at(i)) == swizzled.at(0) + i));
        }
        // A vector that is aligned in the layout is whole and aligned after offset and swizzle.
        let width = Composed::Swizzled(swizzled).vector_width(8);
        for i in (0..layout.size()).filter(|i| layout.at(*i) % width == 0) {
            let inverse = layout.right_inverse();
            let first = swizzled.at(i);
            prop_assert_eq!(first % width, 0);
            prop_assert!((0..width).all(|step| swizzled.at(inverse.at(layout.at(i) + step)) == first + step));
        }
    }
}

/// `max_common_vector` and `vector_width` looked at the swizzle alone, so an offset of 68 counted 8
/// elements where 4 follow.
#[test]
fn an_offset_before_the_swizzle_shortens_vectors() {
    let swizzle = Swizzle::new(3, 3, 3).unwrap();
    let rows = layout("(8,64):(64,1)");
    let shifted = Swizzled::new(swizzle, 68, rows);
    assert_eq!((0..5).map(|column| shifted.at(8 * column)).collect::<Vec<_>>(), [76, 77, 78, 79, 64]);
    assert_eq!(shifted.max_common_vector(&rows), Ok(4));
    assert_eq!(Composed::Swizzled(shifted).vector_width(16), 4);
    assert_eq!(Composed::Swizzled(Swizzled::new(Swizzle::IDENTITY, 0, rows)).vector_width(16), 8);
}

/// A tile whose copies leave gaps was divided by all the same, and offset 3 was in no tile.
#[test]
fn a_tile_that_leaves_gaps_divides_nothing() {
    let tile = layout("(3,5):(1,4)");
    let error = layout("30:1").logical_divide(&Tiler::layout(&tile)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "divide: the copies of the tile have 30 elements spread over 39 offsets, so they leave gaps; use strides that are \
         multiples of what the smaller ones span"
    );
    assert!(matches!(
        tile.complement_exact(30),
        Err(LayoutError::Gaps { operation: "complement", count: 30, reach: 39 })
    ));
    assert!(!layout("30:1").divides_evenly(&Tiler::layout(&tile)));
    // Where the gaps lie beyond the layout, nothing is missed.
    assert_eq!(shown(layout("3:1").logical_divide(&Tiler::layout(&tile))), "((3,5),1):((1,4),0)");
}

/// The refusal of a `raked_product` named `blocked_product`.
#[test]
fn a_refused_raked_product_says_so() {
    let error = layout("4:1").raked_product(&layout("(3):(1)")).unwrap_err();
    assert!(error.to_string().starts_with("raked_product: "), "{error}");
}

#[test]
fn ldmatrix_rows_lie_in_different_banks() {
    for row_bytes in [16, 32, 64, 128, 256, 512, 1024] {
        let swizzle = ldmatrix_swizzle(row_bytes).unwrap();
        let units = row_bytes / 16;
        for column in 0..units {
            let places: BTreeSet<i64> = (0..8).map(|row| swizzle.apply(row * units + column) % 8).collect();
            assert_eq!(places.len(), 8, "rows of {row_bytes} bytes, column {column}");
        }
    }
}

#[test]
fn a_descriptor_knows_the_atom() {
    for atom in CanonicalAtom::ALL {
        let tile = atom.tile_to_shape(16, &tuple("(128,128)"), Order::Left).unwrap();
        match tile.matrix_descriptor(16) {
            Ok(found) => assert_eq!((found.major, found.width), (atom.major, atom.width)),
            Err(error) => assert_eq!(atom.width, SwizzleWidth::Interleaved, "{atom:?}: {error}"),
        }
        let one = atom.of_elements(16).unwrap().matrix_descriptor(16);
        assert!(one.is_err() || one.unwrap().stride == 0, "{atom:?}");
    }
}

#[test]
fn one_element_and_no_mode() {
    let empty = layout("():()");
    assert_eq!((empty.size(), empty.cosize(), empty.rank(), empty.at(0)), (1, 1, 0, 0));
    for one in [empty, layout("1:5"), layout("(1,1):(5,-7)")] {
        assert_eq!(one.coalesce(), Layout::ONE);
        assert_eq!(one.filter(), Layout::ONE);
        assert_eq!(one.right_inverse(), Layout::ONE);
        assert_eq!(one.left_inverse(), Ok(Layout::ONE));
        assert_eq!(one.nullspace(), Layout::ONE);
        assert_eq!(shown(one.complement(12)), "12:1");
        assert_eq!(one.complement_self(), Ok(Layout::ONE));
        assert_eq!(one.max_alignment(), 1);
    }
    assert_eq!(Layout::col_major(&tuple("()")), Ok(empty));
    assert_eq!(shown(layout("(4,8):(8,1)").composition(&empty)), "():()");
    assert_eq!(shown(empty.composition(&layout("3:1"))), "3:0");
    assert_eq!(shown(empty.append(&layout("4:1"))), "(4):(1)");
    assert_eq!(shown(empty.logical_divide(&Tiler::extent(2))), "(2,1):(0,0)");
    assert_eq!(shown(empty.logical_product(&Tiler::layout(&layout("4:1")))), "((),4):((),1)");
    assert_eq!(shown(layout("(2,3):(1,2)").select(&[])), "():()");
    assert_eq!(shown(empty.zip()), "():()");
    assert_eq!(shown(Ok(layout("((2,()),3):((1,()),2)").flatten())), "(2,3):(1,2)");
}

#[test]
fn an_extent_of_zero_is_refused() {
    let refused = "extent 0 of integer 0 of the shape is below 1";
    for result in [
        Layout::leaf(0, 1),
        Layout::col_major(&IntTuple::int(0)),
        layout("4:1").complement(0),
        layout("8:1").logical_divide(&Tiler::extent(0)),
        layout("8:1").logical_product(&Tiler::extent(0)),
        layout("8:1").compose_tiler(&Tiler::extent(0)),
    ] {
        assert!(shown(result).contains(refused), "{}", shown(result));
    }
    assert!(tuple("12").shape_div(&IntTuple::int(0)).is_err() && tuple("3").elem_scale(&IntTuple::int(0)).is_err());
}

#[test]
fn stride_zero_repeats() {
    let repeated = layout("4:0");
    assert_eq!(shown(repeated.complement(12)), "12:1");
    assert_eq!(repeated.left_inverse(), Ok(repeated));
    assert_eq!(shown(repeated.logical_divide(&Tiler::extent(2))), "(2,2):(0,0)");
    assert_eq!(shown(layout("8:1").logical_divide(&Tiler::layout(&repeated))), "(4,8):(0,1)");
    assert_eq!(shown(repeated.logical_product(&Tiler::extent(3))), "(4,3):(0,1)");
    assert_eq!(shown(layout("4:1").logical_product(&Tiler::layout(&layout("3:0")))), "(4,3):(1,0)");
    assert_eq!(shown(layout("(4,8):(8,1)").composition(&repeated)), "4:0");
    assert_eq!(shown(layout("(4,2):(0,1)").upcast(2)), "(4,1):(0,1)");
    assert_eq!(shown(layout("(4,2):(1,0)").downcast(2)), "(8,2):(1,0)");
    assert_eq!(layout("(2,3):(0,0)").filter(), Layout::ONE);
    assert_eq!(layout("(2,2):(0,0)").coalesce(), repeated);
    assert_eq!(shown(layout("(2,4):(1,0)").fragment_like()), "(2,(4)):(1,(2))");
    assert_eq!(shown(layout("(2,4):(0,1)").fragment_like()), "(2,(4)):(0,(1))");
    assert!(repeated.coordinate_of_offset(0).is_err());
}

#[test]
fn negative_strides_walk_back_or_are_refused() {
    let back = layout("4:-1");
    assert_eq!(back.cosize(), 4);
    assert_eq!(layout("(2,3):(-3,-6)").coalesce(), layout("6:-3"));
    assert_eq!(back.right_inverse(), Layout::ONE);
    assert_eq!(shown(back.composition(&back)), "4:1");
    assert_eq!(shown(layout("8:-1").logical_divide(&Tiler::extent(4))), "(4,2):(-1,-4)");
    assert_eq!(shown(layout("4:1").logical_product(&Tiler::layout(&layout("3:-1")))), "(4,3):(1,-4)");
    assert_eq!(shown(layout("8:-1").upcast(4)), "2:-1");
    assert_eq!(shown(layout("(4,4):(1,-1)").downcast(2)), "(8,8):(1,-1)");
    assert_eq!(shown(layout("(4,3):(-1,4)").compact_like()), "(4,3):(1,4)");
    for refused in [back.complement(12), back.left_inverse(), back.logical_product(&Tiler::extent(3))] {
        assert!(matches!(refused, Err(LayoutError::NegativeStride { stride: -1, .. })), "{refused:?}");
    }
    assert!(matches!(back.downcast(2), Err(LayoutError::NotContiguous { .. })));
}

#[test]
fn a_tuple_of_one_is_not_an_integer() {
    assert_eq!(shown(layout("8:1").select(&[0])), "(8):(1)");
    assert_eq!(shown(layout("8:1").take(0, 1)), "(8):(1)");
    assert_eq!(shown(layout("8:1").group(0, 1)), "((8)):((1))");
    assert_eq!(shown(layout("8:1").unflatten(&tuple("(1)").profile())), "(8):(1)");
    assert_eq!(shown(layout("8:1").coalesce_modes(&tuple("(1)").profile())), "(8):(1)");
    assert_eq!(shown(layout("8:1").replace(0, &layout("(2,2):(5,7)"))), "(2,2):(5,7)");
    assert_eq!(shown(layout("8:1").append_to(&Layout::ONE, 1)), "8:1");
    assert_eq!(layout("(4):(1)").offset(&IntTuple::int(3)), Ok(3));
    assert!(layout("4:1").offset(&tuple("(3)")).is_err());
}

#[test]
fn what_is_beyond_the_end() {
    assert_eq!(layout("(4,8):(8,1)").at(32), 8);
    assert_eq!(shown(layout("(4,8):(8,1)").composition(&layout("64:1"))), "(4,16):(8,1)");
    assert_eq!(shown(layout("8:1").logical_divide(&Tiler::extent(16))), "(16,1):(1,0)");
    assert_eq!(layout("4:1").max_common_vector(&layout("8:1")), Ok(8));
    let open = tilewright_layout::Coord::parse("(9,_)").unwrap();
    assert_eq!(layout("(4,8):(8,1)").slice_and_offset(&open).unwrap().1, 72);
    assert_eq!(tuple("(10,6)").ceil_div(&tuple("(4)")), Ok(tuple("(3,6)")));
    assert!(!layout("(8,6):(6,1)").divides_evenly(&Tiler::extent(3)));
}

/// `replace(8:1, 1, 2:8)` was accepted: an integer has one mode, and nothing after it. So with
/// every operation that names modes by number, on an integer and on tuples.
#[test]
fn modes_beyond_the_rank_are_refused() {
    let mode = layout("2:8");
    for (text, rank) in [("8:1", 1), ("(8):(1)", 1), ("(4,8):(8,1)", 2), ("(2,(3,4),5):(1,(2,6),24)", 3)] {
        let whole = layout(text);
        let leaf = usize::from(whole.is_leaf());
        for beyond in [rank + 1 - leaf, rank + 1, rank + 7, usize::MAX - 1] {
            let refused = |name: &str, result: Result<Layout, LayoutError>| {
                assert!(result.is_err(), "{name} of {text} by mode {beyond} gave {}", shown(result));
            };
            refused("replace", whole.replace(beyond, &mode));
            refused("mode", whole.mode(beyond));
            refused("select", whole.select(&[0, beyond]));
            refused("take", whole.take(0, beyond.max(rank + 1)));
            refused("take", whole.take(beyond, beyond.max(rank + 1)));
            refused("group", whole.group(0, beyond.max(rank + 1)));
            refused("group", whole.group(beyond.max(rank + 1), beyond.max(rank + 1)));
        }
        assert_eq!(whole.extent(rank), 1, "{text}");
        refused_profiles(&whole, rank);
    }
    assert_eq!(shown(layout("8:1").replace(0, &mode)), "2:8");
    assert_eq!(shown(layout("(8):(1)").replace(1, &mode)), "(8,2):(1,8)");
}

/// A profile, a tiler or a coordinate of more modes than the layout has.
fn refused_profiles(whole: &Layout, rank: usize) {
    let wide = IntTuple::flat(&vec![1; rank + 1]).unwrap();
    let tiler = Tiler::by_mode(&vec![Tiler::extent(1); rank + 1]).unwrap();
    let open = tilewright_layout::Coord::tuple(&vec![tilewright_layout::Coord::ALL; rank + 1]).unwrap();
    for (name, refused) in [
        ("coalesce", whole.coalesce_modes(&wide.profile()).is_err()),
        ("filter", whole.filter_modes(&wide.profile()).is_err()),
        ("filter_zeros", whole.filter_zeros_by(&wide).is_err()),
        ("composition", whole.compose_tiler(&tiler).is_err()),
        ("logical_divide", whole.logical_divide(&tiler).is_err()),
        ("zipped_divide", whole.zipped_divide(&tiler).is_err()),
        ("tiled_divide", whole.tiled_divide(&tiler).is_err()),
        ("flat_divide", whole.flat_divide(&tiler).is_err()),
        ("slice", whole.slice(&open).is_err()),
        ("dice", whole.dice(&open).is_err()),
        ("offset", whole.offset(&wide).is_err()),
        ("append", whole.append_to(whole, rank - 1).is_err()),
        ("prepend", whole.prepend_to(whole, rank - 1).is_err()),
        ("unflatten", whole.flatten().unflatten(&IntTuple::flat(&[1; 9]).unwrap().profile()).is_err()),
    ] {
        assert!(refused, "{name} of {whole} by {} modes", rank + 1);
    }
}
