//! Laws of the parts of a view whose extents are known at run time: each is the elements that it
//! says, once.

use std::cell::Cell;

use proptest::prelude::*;
use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled};
use tilewright_layout::view::{Split, TensorView, ViewError};
use tilewright_layout::{IntTuple, Layout, Tiler};

type Spread = Swizzled<Swizzle<2, 0, 3>, RowMajor<8, 8>>;

fn offsets(layout: &Layout) -> Vec<usize> {
    (0..layout.cosize() as usize).collect()
}

fn view<'a>(data: &'a [usize], layout: &Layout) -> TensorView<'a, usize, Layout> {
    TensorView::with_layout(data, *layout).unwrap()
}

/// A mode: one integer, or two that may leave gaps. Strides are `scale` and up.
fn mode(scale: i64) -> impl Strategy<Value = (Layout, i64)> {
    (1i64..5, 1i64..4, 0i64..3, any::<bool>()).prop_map(move |(m, n, gap, nested)| {
        let step = m * scale + gap;
        let text = if nested { format!("({m},{n}):({scale},{step})") } else { format!("{}:{scale}", m * n) };
        let layout = Layout::parse(&text).unwrap();
        (layout, step * n)
    })
}

/// A layout of two modes, each an integer or nested, one to one.
fn matrix() -> impl Strategy<Value = Layout> {
    mode(1)
        .prop_flat_map(|(first, span)| (Just(first), mode(span)))
        .prop_map(|(first, (second, _))| Layout::tuple(&[first, second]).unwrap())
}

/// The elements of some rows and columns, first mode fastest.
fn picked(layout: &Layout, rows: &[usize], columns: &[usize]) -> Vec<usize> {
    let at = |mode: usize, i: usize| layout.mode(mode).unwrap().at(i as i64) as usize;
    columns.iter().flat_map(|&c| rows.iter().map(move |&r| at(0, r) + at(1, c))).collect()
}

fn indices(from: usize, step: usize, end: usize) -> Vec<usize> {
    (from..end).step_by(step).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_range_is_its_elements_or_refused(layout in matrix(), mode in 0usize..2, a in 0usize..12, b in 0usize..12) {
        let data = offsets(&layout);
        let view = view(&data, &layout);
        let extents = [view.extent(0), view.extent(1)];
        let start = a.min(b) % extents[mode];
        let end = (a.max(b) % extents[mode]) + 1;
        prop_assume!(start < end);
        let mut wanted = extents.map(|extent| indices(0, 1, extent));
        wanted[mode] = indices(start, 1, end);
        match view.range(mode, start..end) {
            Ok(part) => {
                prop_assert_eq!(part.extent(mode), end - start);
                prop_assert_eq!(part.iter().copied().collect::<Vec<_>>(), picked(&layout, &wanted[0], &wanted[1]));
            }
            // Only a nested mode can have no strides there.
            Err(error) => {
                prop_assert!(matches!(error, ViewError::Torn { .. }), "{}", error);
                prop_assert!(!layout.mode(mode).unwrap().is_leaf());
            }
        }
    }

    #[test]
    fn clipped_tiles_and_parts_cover_each_element_once(layout in matrix(), m in 1usize..6, n in 1usize..6) {
        let layout = layout.flatten();
        let cells = vec![Cell::new(0u32); layout.cosize() as usize];
        let view = TensorView::<Cell<u32>, Layout>::with_layout(&cells, layout).unwrap();
        let sizes: Vec<usize> = (0..view.rank()).map(|mode| if mode % 2 == 0 { m } else { n }).collect();
        let counts: Vec<usize> = sizes.iter().enumerate().map(|(mode, size)| view.extent(mode).div_ceil(*size)).collect();
        let grid = Layout::col_major(&IntTuple::flat(&counts.iter().map(|c| *c as i64).collect::<Vec<_>>()).unwrap()).unwrap();
        for tile in 0..grid.size() {
            let place: Vec<usize> = grid.coordinate(tile).values().iter().map(|i| *i as usize).collect();
            view.clipped_tile(&sizes, &place).unwrap().iter().for_each(|cell| cell.set(cell.get() + 1));
        }
        prop_assert!(view.iter().all(|cell| cell.get() == 1));
        for part in view.parts_along(0, m).unwrap() {
            part.iter().for_each(|cell| cell.set(cell.get() + 1));
        }
        prop_assert!(view.iter().all(|cell| cell.get() == 2));
    }

    #[test]
    fn parts_along_a_mode_are_its_ranges(layout in matrix(), extent in 1usize..8) {
        let data = offsets(&layout);
        let view = view(&data, &layout);
        let ranges: Result<Vec<_>, _> = indices(0, extent, view.extent(1))
            .into_iter()
            .map(|start| view.range(1, start..view.extent(1).min(start + extent)))
            .collect();
        match (view.parts_along(1, extent), ranges) {
            (Ok(parts), Ok(ranges)) => {
                let ring = view.parts_along(1, extent).unwrap().circular();
                prop_assert_eq!(parts.round(), ranges.len());
                let parts: Vec<_> = parts.map(|part| part.layout()).collect();
                let ranges: Vec<_> = ranges.iter().map(|part| part.layout()).collect();
                prop_assert_eq!(&parts, &ranges);
                let twice: Vec<_> = ring.take(2 * parts.len()).map(|part| part.layout()).collect();
                prop_assert_eq!(twice, [ranges.clone(), ranges].concat());
            }
            (Err(error), Err(_)) => prop_assert!(matches!(error, ViewError::Torn { .. }), "{}", error),
            (parts, ranges) => prop_assert!(false, "parts {}, ranges {}", parts.is_ok(), ranges.is_ok()),
        }
    }

    #[test]
    fn a_split_covers_its_mode_in_order(extent in 1i64..40, parts in 1usize..9, multiple in 1usize..6) {
        let layout = Layout::leaf(extent, 3).unwrap();
        let data = offsets(&layout);
        let view = view(&data, &layout);
        let split = Split { mode: 0, parts, multiple };
        let found: Vec<Vec<usize>> =
            (0..).map_while(|part| view.split(split, part).ok()).map(|part| part.iter().copied().collect()).collect();
        prop_assert!(found.len() <= parts);
        prop_assert!(found.iter().rev().skip(1).all(|part| part.len() % multiple == 0 && part.len() == found[0].len()));
        prop_assert_eq!(found.concat(), view.iter().copied().collect::<Vec<_>>());
        let error = view.split(split, found.len()).map(|part| part.size());
        prop_assert_eq!(error, Err(ViewError::NoSuchTile { axis: 0, index: found.len(), count: found.len() }));
    }

    #[test]
    fn clipped_threads_have_every_so_many_th_element(
        rows in 1i64..9, columns in 1i64..9, m in 1i64..5, n in 1i64..5, right in any::<bool>(),
    ) {
        let layout = Layout::parse(&format!("({rows},{columns}):({columns},1)")).unwrap();
        let data = offsets(&layout);
        let view = view(&data, &layout);
        let shape = IntTuple::flat(&[m, n]).unwrap();
        let threads = if right { Layout::row_major(&shape) } else { Layout::col_major(&shape) }.unwrap();
        for r in 0..m {
            for c in 0..n {
                let thread = threads.offset(&IntTuple::flat(&[r, c]).unwrap()).unwrap() as usize;
                let part = view.distribute_clipped(&threads, thread).unwrap();
                let rows = indices(r as usize, m as usize, rows as usize);
                let columns = indices(c as usize, n as usize, columns as usize);
                let found = part.map(|part| part.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(found.unwrap_or_default(), picked(&layout, &rows, &columns));
                if let Ok(even) = view.distribute_by(&threads, thread) {
                    let clipped = view.distribute_clipped(&threads, thread).unwrap().unwrap();
                    prop_assert_eq!(even.iter().collect::<Vec<_>>(), clipped.iter().collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn a_composed_view_is_the_view_after_the_order(layout in matrix(), order in matrix()) {
        let data = offsets(&layout);
        let view = view(&data, &layout);
        let all: Vec<usize> = view.iter().copied().collect();
        match view.compose(&order) {
            Ok(composed) => {
                prop_assert_eq!(composed.rank(), order.rank());
                let expected: Vec<usize> = (0..order.size()).map(|i| all[order.at(i) as usize]).collect();
                prop_assert_eq!(composed.iter().copied().collect::<Vec<_>>(), expected);
            }
            Err(ViewError::TooShort { needed, given }) => {
                prop_assert_eq!((needed as i64, given), (order.cosize(), all.len()));
                prop_assert!(needed > given);
            }
            Err(error) => prop_assert!(matches!(error, ViewError::Layout(_)), "{}", error),
        }
    }
}

#[test]
fn parts_of_a_swizzled_view_are_swizzled_as_the_view_is() {
    let data: Vec<usize> = (0..64).collect();
    let view = TensorView::<usize, Spread>::from_slice(&data).unwrap();
    let part = view.range(0, 3..8).unwrap().range(1, 1..6).unwrap();
    let columns = view.permute(&[1, 0]).unwrap();
    let pairs = view.flat_divide(&Tiler::by_mode(&[Tiler::extent(2), Tiler::extent(4)]).unwrap()).unwrap();
    let clipped = view.distribute_clipped(&Layout::parse("(3,3):(3,1)").unwrap(), 4).unwrap().unwrap();
    let flat = view.compose(&Layout::leaf(64, 1).unwrap()).unwrap();
    for row in 0..8 {
        for column in 0..8 {
            let expected = view.get([row, column]);
            if row >= 3 && (1..6).contains(&column) {
                assert_eq!(part.get([row - 3, column - 1]), expected);
            }
            if row % 3 == 1 && column % 3 == 1 {
                assert_eq!(clipped.get([row / 3, column / 3]), expected);
            }
            assert_eq!(columns.get([column, row]), expected);
            assert_eq!(pairs.get([row % 2, column % 4, row / 2, column / 4]), expected);
            assert_eq!(flat.get([row + 8 * column]), expected);
        }
    }
    let third = view.parts_along(1, 3).unwrap().nth(2).unwrap();
    assert_eq!((third.extent(1), third.get([5, 1])), (2, view.get([5, 7])));
}

#[test]
fn a_start_beyond_every_slice_is_an_error() {
    use tilewright_layout::{Swizzle, Swizzled};
    let far = Swizzled::new(Swizzle::IDENTITY, i64::MAX, Layout::leaf(4, 1).unwrap());
    let error = TensorView::<u32, Swizzled>::with_layout(&[], far).map(|view| view.size());
    assert!(matches!(error, Err(ViewError::Layout(tilewright_layout::LayoutError::Overflow { .. }))));
}

#[test]
fn errors_of_parts_say_what_was_wrong() {
    let data: Vec<usize> = (0..24).collect();
    let view = TensorView::<usize, RowMajor<4, 6>>::from_slice(&data).unwrap();
    let text = |error: ViewError| error.to_string();
    assert_eq!(
        text(view.range(2, 0..1).map(|part| part.size()).unwrap_err()),
        "view: there is no mode 2; there are 2, counted from 0"
    );
    assert_eq!(
        text(view.range(0, 3..3).map(|part| part.size()).unwrap_err()),
        "view: the range 3..3 of mode 0 is empty; an extent is at least 1"
    );
    assert_eq!(
        view.range(1, 2..7).map(|part| part.size()),
        Err(ViewError::OutOfBounds { mode: 1, index: 6, extent: 6 })
    );
    assert_eq!(view.clipped_tile(&[2], &[0, 0]).map(|t| t.size()), Err(ViewError::Rank { given: 1, expected: 2 }));
    assert_eq!(
        view.clipped_tile(&[3, 4], &[1, 2]).map(|t| t.size()),
        Err(ViewError::NoSuchTile { axis: 1, index: 2, count: 2 })
    );
    assert!(text(view.clipped_tile(&[0, 1], &[0, 0]).map(|t| t.size()).unwrap_err()).contains("at least 1"));
    assert!(text(view.parts_along(0, 0).map(|p| p.round()).unwrap_err()).contains("at least 1"));
    let none = Split { mode: 1, parts: 0, multiple: 1 };
    assert!(text(view.split(none, 0).map(|part| part.size()).unwrap_err()).contains("the number of parts"));
    assert_eq!(view.permute(&[0]).map(|v| v.size()), Err(ViewError::Rank { given: 1, expected: 2 }));
    assert!(text(view.permute(&[1, 1]).map(|v| v.size()).unwrap_err()).contains("named twice"));
    assert_eq!(
        view.compose(&Layout::parse("4:-1").unwrap()).map(|v| v.size()),
        Err(ViewError::NegativeStride { stride: -1 })
    );
    let threads = Layout::parse("4:1").unwrap();
    assert_eq!(
        view.distribute_clipped(&threads, 0).map(|part| part.is_some()),
        Err(ViewError::Rank { given: 1, expected: 2 })
    );
    // Mode 0 walks 0, 1, 10, 11: indices 1 and 2 are 9 apart, 0 and 1 are not.
    let nested =
        TensorView::<usize, Layout>::with_layout(&data, Layout::parse("((2,2),2):((1,10),5)").unwrap()).unwrap();
    let torn = ViewError::Torn { mode: 0, start: 1, step: 1, count: 2 };
    assert_eq!(nested.range(0, 1..3).map(|part| part.size()), Err(torn));
    assert!(text(torn).contains("2 elements of mode 0"));
    assert_eq!(nested.range(0, 2..4).map(|part| part.iter().copied().collect::<Vec<_>>()), Ok(vec![10, 11, 15, 16]));
}
