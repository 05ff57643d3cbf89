//! Laws of views: what tiles, threads, vectors and slices cover.

use std::cell::Cell;

use proptest::prelude::*;
use tilewright_layout::typed::{
    BlockedProduct, ColMajor, Idx, Int, Lowered, RowMajor, Shaped, StaticLayout, Strided, Swizzle, Swizzled, TiledBy,
    TilesOf,
};
use tilewright_layout::view::{Along, Global, OffsetMap, Shared, Space, TensorView, ViewError};
use tilewright_layout::{Coord, IntTuple, Layout, Tiler};

type Spread = Swizzled<Swizzle<3, 2, 3>, RowMajor<16, 32>>;
type Blocks = BlockedProduct<RowMajor<4, 8>, ColMajor<4, 4>>;

/// Writes each element of `parts` once, and says how often each place of the memory was written.
fn count<'a, L: OffsetMap, S: Space>(
    parts: impl Iterator<Item = TensorView<'a, Cell<u32>, L, S>>,
    memory: &TensorView<'a, Cell<u32>, Layout, S>,
) -> Vec<u32> {
    parts.flat_map(|part| part.iter()).for_each(|cell| cell.set(cell.get() + 1));
    memory.iter().map(Cell::get).collect()
}

fn memory<'a>(cells: &'a [Cell<u32>]) -> TensorView<'a, Cell<u32>, Layout> {
    TensorView::with_layout(cells, Layout::leaf(cells.len() as i64, 1).unwrap()).unwrap()
}

fn cells(count: usize) -> Vec<Cell<u32>> {
    vec![Cell::new(0); count]
}

fn every_part_once<L: StaticLayout>() {
    let ones = vec![1; Lowered::<L>::SIZE];
    let a = cells(ones.len());
    let b = cells(ones.len());
    let c = cells(ones.len());
    let d = cells(ones.len());
    let view = |cells| TensorView::<'_, Cell<u32>, L>::from_slice(cells).unwrap();
    assert_eq!(count(view(&a).tiles::<4, 8>(), &memory(&a)), ones);
    let threads = (0..32).map(|thread| view(&b).distribute::<RowMajor<4, 8>>(thread).unwrap());
    assert_eq!(count(threads, &memory(&b)), ones);
    let rows = (0..4).flat_map(|row| view(&c).tiles_along::<4, 8>(Along::Columns, row).unwrap());
    assert_eq!(count(rows, &memory(&c)), ones);
    let columns = (0..4).flat_map(|column| view(&d).tiles_along::<4, 8>(Along::Rows, column).unwrap());
    assert_eq!(count(columns, &memory(&d)), ones);
}

#[test]
fn tiles_threads_and_tile_iterators_cover_each_element_once() {
    every_part_once::<RowMajor<16, 32>>();
    every_part_once::<ColMajor<16, 32>>();
    every_part_once::<Spread>();
    every_part_once::<Blocks>();
}

#[test]
fn a_swizzled_view_is_the_swizzled_layout() {
    let data: Vec<u32> = (0..512).collect();
    let view = TensorView::<u32, Spread, Shared>::from_slice(&data).unwrap();
    for row in 0..16 {
        for column in 0..32 {
            let offset = Spread::SWIZZLE.apply((row * 32 + column) as i64) as usize;
            assert_eq!(view.get([row, column]), Ok(&data[offset]));
            let tile = view.tile::<4, 8>([row / 4, column / 8]).unwrap();
            assert_eq!(tile.get([row % 4, column % 8]), Ok(&data[offset]));
            assert_eq!(view.to_value().get([row, column]), Ok(&data[offset]));
            assert_eq!(view.row(row).unwrap().get([column]), Ok(&data[offset]));
            assert_eq!(view.column(column).unwrap().get([row]), Ok(&data[offset]));
            assert_eq!(
                tile.layout().offset(&IntTuple::flat(&[row as i64 % 4, column as i64 % 8]).unwrap()).unwrap(),
                offset as i64
            );
        }
    }
}

#[test]
fn threads_own_what_the_thread_layout_says() {
    let data: Vec<u32> = (0..512).collect();
    let view = TensorView::<u32, RowMajor<16, 32>, Global>::from_slice(&data).unwrap();
    let rows = RowMajor::<4, 8>::LAYOUT;
    let columns = ColMajor::<4, 8>::LAYOUT;
    for r in 0..16 {
        for c in 0..32 {
            let place = IntTuple::flat(&[r as i64 % 4, c as i64 % 8]).unwrap();
            let by_row = rows.offset(&place).unwrap() as usize;
            let by_column = columns.offset(&place).unwrap() as usize;
            let expected = view.get([r, c]);
            assert_eq!(view.distribute::<RowMajor<4, 8>>(by_row).unwrap().get([r / 4, c / 8]), expected);
            assert_eq!(view.distribute::<ColMajor<4, 8>>(by_column).unwrap().get([r / 4, c / 8]), expected);
            assert_eq!(view.distribute_by(&columns, by_column).unwrap().get([r / 4, c / 8]), expected);
        }
    }
}

#[test]
fn vectors_are_the_elements_in_order() {
    let data: Vec<u32> = (0..512).collect();
    let view = TensorView::<u32, Spread>::from_slice(&data).unwrap();
    let vectors = view.vectorize::<1, 4>().unwrap();
    assert_eq!([vectors.extent(0), vectors.extent(1), vectors.extent(2)], [16, 8, 1]);
    for row in 0..16 {
        for column in 0..8 {
            let expected: Vec<u32> = (0..4).map(|i| *view.get([row, 4 * column + i]).unwrap()).collect();
            assert_eq!(vectors.get([row, column]).unwrap(), expected);
        }
    }
    assert_eq!(vectors.get([0, 8]), Err(ViewError::OutOfBounds { mode: 1, index: 8, extent: 8 }));
    let odd = TensorView::<u32, RowMajor<4, 8>>::from_slice(&data).unwrap().tile::<4, 2>([0, 1]).unwrap();
    let error = odd.vectorize::<1, 1>().map(|v| v.extent(0));
    assert_eq!(error, Ok(4));
}

#[test]
fn a_part_that_starts_off_the_alignment_is_not_vectorized() {
    type Padded = Strided<(Int<4>, Int<8>), (Int<9>, Int<1>)>;
    let data = [0u32; 36];
    let view = TensorView::<u32, Padded>::from_slice(&data).unwrap();
    let row = |index| view.tile::<1, 8>([index, 0]).unwrap().vectorize::<1, 4>().map(|vectors| vectors.extent(1));
    assert_eq!(row(0), Ok(2));
    assert_eq!(row(1), Err(ViewError::Misaligned { offset: 9, vector: 4 }));
}

#[test]
fn errors_say_what_was_wrong() {
    let data = [0u32; 100];
    let text = |error: ViewError| error.to_string();
    let view = TensorView::<u32, RowMajor<4, 8>>::from_slice(&data).unwrap();
    assert_eq!(
        TensorView::<u32, RowMajor<16, 8>>::from_slice(&data).map(|v| v.size()),
        Err(ViewError::TooShort { needed: 128, given: 100 })
    );
    assert_eq!(
        text(view.tile::<2, 4>([0, 2]).map(|t| t.size()).unwrap_err()),
        "view: there is no tile 2 along axis 1; there are 2, counted from 0"
    );
    assert_eq!(
        view.distribute::<RowMajor<2, 2>>(4).map(|t| t.size()),
        Err(ViewError::NoSuchThread { thread: 4, count: 4 })
    );
    assert_eq!(
        view.tiles_along::<2, 4>(Along::Rows, 2).map(|t| t.round()),
        Err(ViewError::NoSuchTile { axis: 1, index: 2, count: 2 })
    );
    assert_eq!(view.row(4).map(|r| r.size()), Err(ViewError::OutOfBounds { mode: 0, index: 4, extent: 4 }));
    let value = view.to_value();
    assert_eq!(value.get([0]), Err(ViewError::Rank { given: 1, expected: 2 }));
    let tiler = Tiler::by_mode(&[Tiler::extent(3), Tiler::extent(8)]).unwrap();
    assert!(text(value.tile_by(&tiler, &[0, 0]).map(|t| t.size()).unwrap_err()).contains("does not divide"));
    let backwards = Layout::parse("4:-1").unwrap();
    assert_eq!(
        TensorView::<u32, Layout>::with_layout(&data, backwards).map(|v| v.size()),
        Err(ViewError::NegativeStride { stride: -1 })
    );
    let gaps = Layout::parse("(2,2):(1,4)").unwrap();
    assert!(
        text(value.distribute_by(&gaps, 0).map(|t| t.size()).unwrap_err()).contains("every thread number used once")
    );
    assert!(matches!(
        value.slice(&Coord::parse("(7,_)").unwrap()).map(|s| s.size()),
        Err(ViewError::OutOfBounds { .. })
    ));
}

#[test]
fn a_part_copies_to_a_part() {
    let mut data: Vec<u32> = (0..32).collect();
    let view = TensorView::<Cell<u32>, RowMajor<4, 8>>::from_mut(&mut data).unwrap();
    let from = view.row(1).unwrap();
    let to = view.row(2).unwrap();
    for (cell, value) in to.iter().zip(from.iter()) {
        cell.set(value.get());
    }
    let plain: Vec<u32> = (100..108).collect();
    view.row(3)
        .unwrap()
        .copy_from(&TensorView::<u32, Layout>::with_layout(&plain, Layout::leaf(8, 1).unwrap()).unwrap())
        .unwrap();
    view.set([0, 7], 77).unwrap();
    assert_eq!(data[7], 77);
    assert_eq!(data[16..24], [8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(data[24..32], plain);
}

#[test]
fn typed_bounds_reach_every_element_without_a_check() {
    let data: Vec<u32> = (0..512).collect();
    type Matrix = Shaped<16, 32, Blocks>;
    let view = TensorView::<u32, Matrix>::from_slice(&data).unwrap();
    let mut seen: Vec<u32> =
        Idx::<16>::all().flat_map(|r| Idx::<32>::all().map(move |c| (r, c))).map(|(r, c)| *view.at(r, c)).collect();
    seen.sort_unstable();
    assert_eq!(seen, data);
}

#[test]
fn a_bounded_iterator_ends_and_a_circular_one_counts_its_laps() {
    let data = [0u32; 512];
    let view = TensorView::<u32, RowMajor<16, 32>>::from_slice(&data).unwrap();
    let mut bounded = view.tiles_along::<16, 8>(Along::Columns, 0).unwrap();
    assert_eq!((bounded.size_hint(), bounded.by_ref().count()), ((4, Some(4)), 4));
    assert!(bounded.next().is_none() && bounded.size_hint() == (0, Some(0)));
    let mut ring = view.tiles_around::<16, 8>(Along::Columns, 0).unwrap();
    for step in 0..23 {
        assert_eq!(ring.lap(), step / 4);
        assert_eq!(ring.next().unwrap().offset([0, 0]), Ok(step % 4 * 8));
    }
    assert_eq!(Lowered::<TilesOf<RowMajor<16, 32>, 16, 8>>::SIZE, ring.round());
}

/// A layout value of (tiles of a) matrix, a dividing tile and a place: extents and strides at
/// random.
fn matrix() -> impl Strategy<Value = (Layout, i64, i64)> {
    (1i64..5, 1i64..5, 1i64..5, 1i64..5, any::<bool>(), 0i64..4).prop_map(|(m, n, down, across, right, pad)| {
        let rows = m * down;
        let columns = n * across;
        let text = if right {
            format!("({rows},{columns}):({},1)", columns + pad)
        } else {
            format!("({rows},{columns}):(1,{})", rows + pad)
        };
        (Layout::parse(&text).unwrap(), m, n)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn tile_by_covers_each_element_once((layout, m, n) in matrix()) {
        let cells = cells(layout.cosize() as usize);
        let view = TensorView::<Cell<u32>, Layout>::with_layout(&cells, layout).unwrap();
        let tiler = Tiler::by_mode(&[Tiler::extent(m), Tiler::extent(n)]).unwrap();
        for i in 0..(layout.extent(0) / m) as usize {
            for j in 0..(layout.extent(1) / n) as usize {
                view.tile_by(&tiler, &[i, j]).unwrap().iter().for_each(|cell| cell.set(cell.get() + 1));
            }
        }
        prop_assert!(view.iter().all(|cell| cell.get() == 1));
    }

    #[test]
    fn distribute_by_partitions((layout, m, n) in matrix(), right in any::<bool>()) {
        let cells = cells(layout.cosize() as usize);
        let view = TensorView::<Cell<u32>, Layout>::with_layout(&cells, layout).unwrap();
        let shape = IntTuple::flat(&[m, n]).unwrap();
        let threads = if right { Layout::row_major(&shape) } else { Layout::col_major(&shape) }.unwrap();
        for thread in 0..threads.size() as usize {
            view.distribute_by(&threads, thread).unwrap().iter().for_each(|cell| cell.set(cell.get() + 1));
        }
        prop_assert!(view.iter().all(|cell| cell.get() == 1));
    }

    #[test]
    fn slices_are_the_rows_and_columns((layout, _, _) in matrix(), row in 0usize..16, column in 0usize..16) {
        let data: Vec<u32> = (0..layout.cosize() as u32).collect();
        let view = TensorView::<u32, Layout>::with_layout(&data, layout).unwrap();
        let row = row % view.extent(0);
        let column = column % view.extent(1);
        let along = view.slice(&Coord::parse(&format!("({row},_)")).unwrap()).unwrap();
        let down = view.slice(&Coord::parse(&format!("(_,{column})")).unwrap()).unwrap();
        prop_assert_eq!(along.get([column]), view.get([row, column]));
        prop_assert_eq!(down.get([row]), view.get([row, column]));
    }

    #[test]
    fn lowered_indexing_is_the_layout(i in 0usize..512) {
        fn check<L: StaticLayout>(i: usize) {
            let offset = L::SWIZZLE.apply(L::LAYOUT.at(i as i64)) as usize;
            assert_eq!(Lowered::<L>::swizzle(Lowered::<L>::flat(i)), offset);
            let rows = L::LAYOUT.extent(0) as usize;
            assert_eq!(Lowered::<L>::at([i % rows, i / rows]), offset);
        }
        check::<RowMajor<16, 32>>(i);
        check::<ColMajor<16, 32>>(i);
        check::<Spread>(i);
        check::<Blocks>(i);
        check::<TiledBy<Spread, 4, 8>>(i);
        check::<TiledBy<Blocks, 8, 4>>(i);
    }
}
