//! The expression language: what is read prints back, and nothing panics.

use proptest::prelude::*;
use tilewright::algebra::expression::Expression;
use tilewright::algebra::{LayoutValue, apply, evaluate};

/// Every operation that an expression may call.
const OPERATIONS: &[&str] = &[
    "coalesce",
    "filter",
    "filter_zeros",
    "complement",
    "composition",
    "right_inverse",
    "left_inverse",
    "nullspace",
    "logical_divide",
    "zipped_divide",
    "tiled_divide",
    "flat_divide",
    "logical_product",
    "zipped_product",
    "tiled_product",
    "flat_product",
    "blocked_product",
    "raked_product",
    "tile_to_shape",
    "upcast",
    "downcast",
    "recast_layout",
    "make_layout",
    "make_ordered_layout",
    "make_layout_like",
    "make_fragment_like",
    "flatten",
    "unflatten",
    "append",
    "prepend",
    "replace",
    "select",
    "take",
    "group_modes",
    "zip",
    "get",
    "rank",
    "depth",
    "size",
    "cosize",
    "coshape",
    "slice",
    "dice",
    "slice_and_offset",
    "index",
    "crd2idx",
    "idx2crd",
    "crd2crd",
    "get_1d_coord",
    "get_flat_coord",
    "get_hier_coord",
    "compact_col_major",
    "compact_row_major",
    "shape_div",
    "ceil_div",
    "elem_scale",
    "product_each",
    "inner_product",
    "congruent",
    "weakly_congruent",
    "compatible",
    "evenly_divides",
    "domain_distribute",
    "expand_modes_alike",
    "max_common_layout",
    "max_common_vector",
    "max_alignment",
    "idx2crd_domain",
    "swizzle",
    "make_swizzle",
    "swizzle_apply",
    "swizzle_masks",
    "swizzle_composition",
    "swizzle_upcast",
    "swizzle_downcast",
    "swizzle_recast",
    "layout_swizzle_composition",
    "composition_layout_swizzlelayout",
    "swizzle_slice_and_offset",
    "swizzle_layout",
    "swizzle_cosize",
    "swizzle_left_inverse",
    "swizzle_right_inverse",
    "swizzle_layout_upcast",
    "swizzle_layout_downcast",
    "swizzle_layout_composition",
    "swizzle_max_common_vector",
    "gmma_atom",
    "gmma_smem_layout",
    "gmma_atom_bits",
];

fn expression() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        any::<i64>().prop_filter("has an absolute value", |v| *v != i64::MIN).prop_map(Expression::Int),
        Just(Expression::Open),
        "[a-np-zA-RT-Z][a-z0-9_]{0,6}".prop_map(Expression::Word),
        (0i64..9, 0i64..9, -9i64..9).prop_map(|(b, m, s)| Expression::Swizzle(b, m, s)),
    ];
    let closed = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Expression::Tuple),
            ("[a-np-zA-RT-Z][a-z0-9_]{0,6}", prop::collection::vec(inner.clone(), 0..4))
                .prop_map(|(name, arguments)| Expression::Call(name, arguments)),
            prop::collection::vec(inner, 2..4).prop_map(|parts| Expression::Tuple(vec![Expression::Compose(parts)])),
        ]
    });
    (closed.clone(), closed, any::<bool>()).prop_map(|(shape, stride, layout)| {
        if layout { Expression::Layout(Box::new(shape), Box::new(stride)) } else { shape }
    })
}

/// Integers that meet bounds: small, negative, and near the ends.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![5 => 1i64..9, 1 => -4i64..2, 1 => prop::num::i64::ANY, 1 => (0u32..63).prop_map(|bit| 1i64 << bit)]
}

fn value() -> impl Strategy<Value = LayoutValue> {
    let tuple = number()
        .prop_map(LayoutValue::Int)
        .prop_recursive(3, 8, 3, |inner| prop::collection::vec(inner, 0..4).prop_map(LayoutValue::List));
    // A layout whose strides are drawn apart from its shape, where that makes one.
    let layout = (tuple.clone(), prop::collection::vec(number(), 8)).prop_map(|(shape, strides)| {
        let mut next = strides.into_iter().cycle();
        fn fill(shape: &LayoutValue, next: &mut dyn Iterator<Item = i64>) -> LayoutValue {
            match shape {
                LayoutValue::List(items) => LayoutValue::List(items.iter().map(|item| fill(item, next)).collect()),
                _ => LayoutValue::Int(next.next().unwrap_or(0)),
            }
        }
        let stride = fill(&shape, &mut next);
        evaluate(&format!("{shape}:{stride}")).unwrap_or(shape)
    });
    let leaf = prop_oneof![3 => layout, 2 => tuple, 1 => Just(LayoutValue::Open), 1 => Just(LayoutValue::Word("K_SW64".into()))];
    leaf.prop_recursive(2, 6, 3, |inner| prop::collection::vec(inner, 1..4).prop_map(LayoutValue::List))
}

/// Whether the layouts of a value have extents of at least 1, and sizes and spans of at most 60
/// bits, by arithmetic of 128.
fn within_bounds(value: &LayoutValue) -> bool {
    let bounded = |layout: &tilewright_layout::Layout, start: i64| {
        let modes = || layout.extents().iter().zip(layout.strides()).map(|(s, d)| (i128::from(*s), i128::from(*d)));
        let size = modes().try_fold(1i128, |size, (extent, _)| size.checked_mul(extent));
        let span: i128 = modes().map(|(extent, stride)| (extent - 1) * stride.abs()).sum();
        let sum = span + i128::from(start).abs();
        modes().all(|(extent, _)| extent >= 1) && size.is_some_and(|size| size <= 1 << 60) && sum <= 1 << 60
    };
    match value {
        LayoutValue::List(items) => items.iter().all(within_bounds),
        LayoutValue::Layout(layout) => bounded(layout, 0),
        LayoutValue::Swizzled(swizzled) => bounded(&swizzled.layout(), swizzled.start()),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn text_parse_text_is_the_identity(expression in expression()) {
        let text = expression.to_string();
        let read = Expression::parse(&text).unwrap();
        prop_assert_eq!(&read, &expression);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn no_text_panics(text in "[-0-9(),:_ oS<>a-c]{0,60}") {
        if let Ok(expression) = Expression::parse(&text) {
            prop_assert_eq!(Expression::parse(&expression.to_string()).unwrap(), expression);
        }
    }

    #[test]
    fn no_operation_panics(arguments in prop::collection::vec(value(), 0..5)) {
        for name in OPERATIONS {
            match apply(name, &arguments) {
                Ok(value) => {
                    prop_assert!(!value.to_string().is_empty());
                    prop_assert!(within_bounds(&value), "{}{:?} gave {}", name, arguments, value);
                }
                Err(refusal) => {
                    let text = refusal.to_string();
                    prop_assert!(!text.is_empty() && !text.contains('\n'), "{}", text);
                }
            }
        }
    }
}

#[test]
fn every_operation_has_a_name_in_the_table() {
    for name in OPERATIONS {
        let refusal = apply(name, &[]).unwrap_err().to_string();
        assert!(!refusal.contains("no operation is called"), "{refusal}");
    }
}

#[test]
fn expressions_have_values() {
    for (text, value) in [
        ("blocked_product((2,5):(5,1), (3,4):(4,1))", "((2,3),(5,4)):((5,40),(1,10))"),
        ("S<3,4,3> o 0 o (8,8):(8,1)", "S<3,4,3> o 0 o (8,8):(8,1)"),
        ("S<0,4,3> o 0 o (8,8):(8,1)", "(8,8):(8,1)"),
        ("(6,2):(8,2) o (4,3):(3,1)", "((2,2),3):((24,2),8)"),
        ("(8,6):(6,1) o (2,3:2)", "(2,3):(6,2)"),
        ("24:1 o 12:1 o 6:2", "6:2"),
        ("composition((8,6):(6,1), (2,_))", "(2,6):(6,1)"),
        ("slice((2,_), (4,8):(8,1))", "(8):(1)"),
        ("tile_to_shape((8,8):(8,1), (16,16), LayoutRight)", "((8,2),(8,2)):((8,128),(1,64))"),
        ("gmma_atom(K_SW128, 16)", "S<3,3,3> o 0 o (8,64):(64,1)"),
        ("index(4:2)", "(0,2,4,6)"),
        ("compatible(8, (2,4))", "true"),
        ("make_swizzle(896, 112)", "S<3,4,3>"),
    ] {
        assert_eq!(evaluate(text).unwrap().to_string(), value, "{text}");
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    for (text, refusal) in [
        ("(2,3", "column 5: expected ',' or ')', found the end"),
        (
            "(2,3):4",
            "layout: shape (2 integers) and stride (1 integers) are not nested alike; give one stride per \
                     extent, in the same parentheses",
        ),
        ("frobnicate(8:1)", "no operation is called `frobnicate`; `tilewright layout eval --help` lists them"),
        ("size(8)", "expected a layout, found an integer"),
        ("replace(8:1, 1, 2:8)", "replace: there is no mode 1; the layout has 1, counted from 0"),
        ("select(8:1, (0,1))", "select: there is no mode 1; the layout has 1, counted from 0"),
        ("take(8:1, 1, 2)", "take: modes 1..2 are not a range within the layout's 1"),
        ("group_modes(8:1, 0, 2)", "group: modes 0..2 are not a range within the layout's 1"),
        ("get(8:1, 1)", "mode: there is no mode 1; the layout has 1, counted from 0"),
        ("upcast(8:1)", "upcast takes at least 2 arguments, 1 given"),
        ("upcast(8:3, 2)", "upcast: 2 does not divide 3; use a divisor of 3"),
        (
            "gmma_atom(K_SW16, 16)",
            "`K_SW16` is not one of K_INTER, K_SW32, K_SW64, K_SW128, MN_INTER, MN_SW32, MN_SW64, \
                                   MN_SW128",
        ),
    ] {
        assert_eq!(evaluate(text).unwrap_err().to_string(), refusal, "{text}");
    }
}
