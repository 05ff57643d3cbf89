//! Parts that the compiler knows against the same parts by values, and the walks along an axis.

use tilewright_layout::typed::{
    BlockedProduct, ColMajor, CompactRight, Concat, Contiguous, Int, Lowered, RowMajor, Shaped, StaticLayout, Strided,
    Swizzle, Swizzled,
};
use tilewright_layout::view::{Along, Host, OffsetMap, Split, TensorView};
use tilewright_layout::{Coord, Layout};

type Spread = Swizzled<Swizzle<3, 2, 3>, RowMajor<16, 32>>;
type Blocks = Shaped<16, 32, BlockedProduct<RowMajor<4, 8>, ColMajor<4, 4>>>;
type Padded = Strided<(Int<16>, Int<32>), (Int<40>, Int<1>)>;

fn numbers(count: usize) -> Vec<usize> {
    (0..count).collect()
}

fn elements<L: OffsetMap>(view: &TensorView<'_, usize, L, Host>) -> Vec<usize> {
    view.iter().copied().collect()
}

/// Every typed part of a 16×32 layout has the elements that the part by values has.
fn agree<L: StaticLayout>() {
    let data = numbers(Lowered::<L>::REACH);
    let view = TensorView::<usize, L>::from_slice(&data).unwrap();
    for row in 0..16 {
        let by = view.slice(&Coord::parse(&format!("({row},_)")).unwrap()).unwrap();
        assert_eq!(elements(&view.slice_mode::<0>(row).unwrap()), elements(&by));
        assert_eq!(elements(&view.row(row).unwrap()), elements(&by));
    }
    for column in 0..32 {
        let by = view.slice(&Coord::parse(&format!("(_,{column})")).unwrap()).unwrap();
        assert_eq!(elements(&view.slice_mode::<1>(column).unwrap()), elements(&by));
    }
    for part in 0..4 {
        let by = view.split(Split { mode: 0, parts: 4, multiple: 1 }, part).unwrap();
        assert_eq!(elements(&view.split_mode::<0, 4>(part).unwrap()), elements(&by));
        let by = view.split(Split { mode: 1, parts: 4, multiple: 1 }, part).unwrap();
        assert_eq!(elements(&view.split_mode::<1, 4>(part).unwrap()), elements(&by));
    }
    assert_eq!(elements(&view.transpose()), elements(&view.permute(&[1, 0]).unwrap()));
    let order = Layout::parse("(8,4):(4,1)").unwrap();
    type Order = Concat<(Strided<Int<8>, Int<4>>, Contiguous<4>)>;
    assert_eq!(elements(&view.compose_with::<Order>()), elements(&view.compose(&order).unwrap()));
    // A part of a part: the right half of the transposed lower quarter.
    let quarter = view.split_mode::<0, 4>(3).unwrap();
    let found = quarter.transpose().split_mode::<0, 2>(1).unwrap();
    let expected: Vec<usize> =
        (12..16).flat_map(|row| (16..32).map(move |column| *view.get([row, column]).unwrap())).collect();
    assert_eq!(elements(&found), expected);
}

#[test]
fn typed_parts_have_the_elements_of_parts_by_values() {
    agree::<RowMajor<16, 32>>();
    agree::<ColMajor<16, 32>>();
    agree::<Padded>();
    agree::<Spread>();
    agree::<Blocks>();
}

#[test]
fn what_is_not_there_is_refused() {
    let data = numbers(24);
    let view = TensorView::<usize, CompactRight<(Int<2>, Int<3>, Int<4>)>>::from_slice(&data).unwrap();
    let text = |error: tilewright_layout::view::ViewError| error.to_string();
    assert_eq!(
        text(view.slice_mode::<1>(3).map(|_| ()).unwrap_err()),
        "view: index 3 of mode 1 is not below its extent 3"
    );
    assert_eq!(
        text(view.split_mode::<2, 2>(2).map(|_| ()).unwrap_err()),
        "view: there is no tile 2 along axis 2; there are 2, counted from 0"
    );
    assert_eq!(
        text(view.tiles_along_by(&[1, 1], 0, &[0, 0, 0]).map(|_| ()).unwrap_err()),
        "view: 2 indices given for a layout of 3 modes; give one per mode"
    );
    assert!(view.tiles_along_by(&[1, 2, 4], 3, &[0, 0, 0]).is_err());
    assert!(view.tiles_along_by(&[1, 2, 4], 0, &[0, 2, 0]).is_err());
}

/// The numbers of a walk's parts, by the offset at which each begins.
fn walk<T: OffsetMap>(parts: impl Iterator<Item = TensorView<'static, usize, T, Host>>) -> Vec<usize> {
    parts.map(|part| part.layout().start() as usize).collect()
}

/// Steps, edges and circles by typed tiles and by values, against counting.
#[test]
fn walks_step_end_at_the_edge_and_go_around() {
    let data: &'static [usize] = Vec::leak(numbers(6 * 10));
    let view = TensorView::<usize, RowMajor<6, 10>>::from_slice(data).unwrap();
    for step in 1..8 {
        let typed = || view.tiles_along::<2, 2>(Along::Columns, 1).unwrap();
        let valued = || view.tiles_along_by(&[2, 2], 1, &[1, 0]).unwrap();
        let counted: Vec<usize> = (0..5).step_by(step).map(|tile| 20 + 2 * tile).collect();
        assert_eq!(walk(typed().every(step)), counted);
        assert_eq!(walk(valued().every(step)), counted);
        let left = (counted.len(), Some(counted.len()));
        assert_eq!((typed().every(step).size_hint(), valued().every(step).size_hint()), (left, left));
        let around: Vec<usize> = (0..13).map(|i| 20 + 2 * (i * step % 5)).collect();
        let mut ring = view.tiles_around::<2, 2>(Along::Columns, 1).unwrap().every(step);
        assert_eq!(walk(ring.by_ref().take(13)), around);
        assert_eq!(ring.lap(), 13 * step / 5);
        let mut ring = valued().circular().every(step);
        assert_eq!(walk(ring.by_ref().take(13)), around);
        assert_eq!(ring.lap(), 13 * step / 5);
    }
    // The last tile has what is left, in both axes, also on the second lap.
    let extents = |part: TensorView<'_, usize, _, Host>| (OffsetMap::extent(&part.layout(), 0), part.extent(1));
    let edges: Vec<_> = view.tiles_along_by(&[4, 4], 1, &[1, 0]).unwrap().circular().take(6).map(extents).collect();
    assert_eq!(edges, [(2, 4), (2, 4), (2, 2), (2, 4), (2, 4), (2, 2)]);
    let down: Vec<_> = view.tiles_along_by(&[4, 4], 0, &[0, 2]).unwrap().map(extents).collect();
    assert_eq!(down, [(4, 2), (2, 2)]);
}

mod named {
    use tilewright_layout::layout;
    use tilewright_layout::typed::{ExpandedAlike, Lowered, RowMajor, StaticLayout, TiledBy};

    layout! {
        /// `M` rows of `N` elements with `PAD` more between them.
        pub(super) type Padded<const M: usize, const N: usize, const PAD: usize> = (M, N):(N + PAD, 1);
        type Negative<const N: i64> = (N, (2, N - 1)):(-N, ({ N * N }, 2 * (N + 1)));
        type Line<const N: usize> = N:2;
        type One<const N: usize> = (N,):(1,);
        type Rows<const M: usize, const N: usize> = RowMajor<M, N>;
        type Known = Padded<8, 32, 8>;
        type Tiles = TiledBy<Rows<8, 32>, 4, 8>;
        type Written = ((2, 3), 4):((1, 2), 6);
        type Nested = ExpandedAlike<Rows<6, 4>, Written>;
    }

    /// Layouts made of shape and stride in const generics are the layouts that their text is.
    #[test]
    fn generic_numbers_make_layouts() {
        assert_eq!(Known::LAYOUT.to_string(), "(8,32):(40,1)");
        assert_eq!(Padded::<3, 5, 0>.to_string(), "(3,5):(5,1)");
        assert_eq!(format!("{:>14}|{:?}", Written, Written), "((2,3),4):((1,2),6)|((2,3),4):((1,2),6)");
        assert_eq!(format!("{:>12}|", Line::<4>), "         4:2|");
        assert_eq!(One::<4>::LAYOUT.to_string(), "(4):(1)");
        assert_eq!(Negative::<3>::LAYOUT.to_string(), "(3,(2,2)):(-3,(9,8))");
        assert_eq!(Tiles::LAYOUT.to_string(), "((4,8),(2,4)):((32,1),(128,8))");
        assert_eq!(Nested::LAYOUT.to_string(), "((2,3),4):((4,8),1)");
        fn corner<const M: usize, const N: usize>() -> usize {
            Lowered::<Padded<M, N, 4>>::at([M - 1, N - 1])
        }
        assert_eq!(corner::<4, 6>(), 35);
    }
}
