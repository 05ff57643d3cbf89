//! The table of names of `docs/names.md`: every path of its host column exists, and this list has
//! every one of them.

use std::collections::BTreeSet;

/// Paths of modules, types, traits and functions: imported, so that each exists.
macro_rules! items {
    ($($path:path),* $(,)?) => {{
        $({ #[allow(unused_imports)] use $path as _; })*
        [$(stringify!($path)),*]
    }};
}

/// Functions of types: named, so that each exists. The text is the path, the value a use of it.
macro_rules! functions {
    ($($path:literal: $value:expr),* $(,)?) => {{
        $(let _ = $value;)*
        [$($path),*]
    }};
}

/// A path as the table writes it: without the crate, and without blanks.
fn short(path: &str) -> String {
    path.replace(' ', "").trim_start_matches("tilewright_layout::").to_owned()
}

fn items() -> BTreeSet<String> {
    let items = items![
        tilewright_layout::Composed,
        tilewright_layout::Coord,
        tilewright_layout::IntTuple,
        tilewright_layout::Layout,
        tilewright_layout::Swizzle,
        tilewright_layout::Swizzled,
        tilewright_layout::Tiler,
        tilewright_layout::layout,
        tilewright_layout::analysis::CopyPlan,
        tilewright_layout::analysis::wavefronts,
        tilewright_layout::fragment::fragment,
        tilewright_layout::picture::LayoutSvg,
        tilewright_layout::picture::TextGrid,
        tilewright_layout::swizzle::canonical::CanonicalAtom,
        tilewright_layout::swizzle::canonical::ldmatrix_swizzle,
        tilewright_layout::swizzle::MatrixDescriptor,
        tilewright_layout::swizzle::TensorBoxes,
        tilewright_layout::typed::ArrayTensor,
        tilewright_layout::typed::BlockedProduct,
        tilewright_layout::typed::ColMajor,
        tilewright_layout::typed::Composed,
        tilewright_layout::typed::Concat,
        tilewright_layout::typed::ExpandedAlike,
        tilewright_layout::typed::Idx,
        tilewright_layout::typed::Int,
        tilewright_layout::typed::Lowered,
        tilewright_layout::typed::MatrixLayout,
        tilewright_layout::typed::OperandTile,
        tilewright_layout::typed::RowMajor,
        tilewright_layout::typed::StaticLayout,
        tilewright_layout::typed::Strided,
        tilewright_layout::typed::Swizzled,
        tilewright_layout::typed::notation,
        tilewright_layout::view::PartIter,
        tilewright_layout::view::TensorView,
        tilewright_layout::view::TileIter,
    ];
    items.into_iter().map(short).collect()
}

fn of_layouts() -> BTreeSet<String> {
    use tilewright_layout::{IntTuple, Layout, Swizzle, Swizzled, Tiler, analysis::Vector};
    let functions = functions![
        "IntTuple::expand_modes_alike": IntTuple::expand_modes_alike,
        "IntTuple::between": IntTuple::between,
        "IntTuple::ceil_div": IntTuple::ceil_div,
        "IntTuple::compatible": IntTuple::compatible,
        "IntTuple::congruent": IntTuple::congruent,
        "IntTuple::coordinate": IntTuple::coordinate,
        "IntTuple::product": IntTuple::product,
        "IntTuple::index_of": IntTuple::index_of,
        "IntTuple::inner_product": IntTuple::inner_product,
        "IntTuple::product_each": IntTuple::product_each,
        "IntTuple::shape_div": IntTuple::shape_div,
        "IntTuple::values": IntTuple::values,
        "IntTuple::weakly_compatible": IntTuple::weakly_compatible,
        "IntTuple::weakly_congruent": IntTuple::weakly_congruent,
        "Layout::append": Layout::append,
        "Layout::at": Layout::at,
        "Layout::blocked_product": Layout::blocked_product,
        "Layout::coalesce": Layout::coalesce,
        "Layout::coalesce_modes": Layout::coalesce_modes,
        "Layout::col_major": Layout::col_major,
        "Layout::compact_like": Layout::compact_like,
        "Layout::complement": Layout::complement,
        "Layout::compose_tiler": Layout::compose_tiler,
        "Layout::composition": Layout::composition,
        "Layout::coordinate": Layout::coordinate,
        "Layout::coordinate_of_offset": Layout::coordinate_of_offset,
        "Layout::cosize": Layout::cosize,
        "Layout::depth": Layout::depth,
        "Layout::divides_evenly": Layout::divides_evenly,
        "Layout::downcast": Layout::downcast,
        "Layout::expand_modes_alike": Layout::expand_modes_alike,
        "Layout::extent": Layout::extent,
        "Layout::filter": Layout::filter,
        "Layout::filter_zeros": Layout::filter_zeros,
        "Layout::flat_divide": Layout::flat_divide,
        "Layout::flat_product": Layout::flat_product,
        "Layout::flatten": Layout::flatten,
        "Layout::fragment_like": Layout::fragment_like,
        "Layout::group": Layout::group,
        "Layout::left_inverse": Layout::left_inverse,
        "Layout::logical_divide": Layout::logical_divide,
        "Layout::logical_product": Layout::logical_product,
        "Layout::max_alignment": Layout::max_alignment,
        "Layout::max_common_layout": Layout::max_common_layout,
        "Layout::max_common_vector": Layout::max_common_vector,
        "Layout::mode": Layout::mode,
        "Layout::new": Layout::new,
        "Layout::nullspace": Layout::nullspace,
        "Layout::offset": Layout::offset,
        "Layout::ordered": Layout::ordered,
        "Layout::prepend": Layout::prepend,
        "Layout::raked_product": Layout::raked_product,
        "Layout::rank": Layout::rank,
        "Layout::recast": Layout::recast,
        "Layout::replace": Layout::replace,
        "Layout::right_inverse": Layout::right_inverse,
        "Layout::row_major": Layout::row_major,
        "Layout::select": Layout::select,
        "Layout::size": Layout::size,
        "Layout::slice": Layout::slice,
        "Layout::slice_and_offset": Layout::slice_and_offset,
        "Layout::take": Layout::take,
        "Layout::tile_to_shape": Layout::tile_to_shape,
        "Layout::tiled_divide": Layout::tiled_divide,
        "Layout::tuple": Layout::tuple,
        "Layout::unflatten": Layout::unflatten,
        "Layout::upcast": Layout::upcast,
        "Layout::zip": Layout::zip,
        "Layout::zipped_divide": Layout::zipped_divide,
        "Layout::zipped_product": Layout::zipped_product,
        "Swizzle::apply": Swizzle::apply,
        "Swizzle::new": Swizzle::new,
        "Swizzled::new": Swizzled::new,
        "Swizzled::slice_and_offset": Swizzled::slice_and_offset,
        "Tiler::by_mode": Tiler::by_mode,
        "Tiler::extent": Tiler::extent,
        "analysis::CopyPlan::between": tilewright_layout::analysis::CopyPlan::between,
        "analysis::Vector::common": Vector::common,
        "analysis::Vector::widest": Vector::widest,
    ];
    functions.into_iter().map(str::to_owned).collect()
}

fn of_views() -> BTreeSet<String> {
    use std::cell::Cell;
    use tilewright_layout::typed::{Contiguous, RowMajor};
    use tilewright_layout::view::{Host, PartIter, TensorView, TileIter};
    type View = TensorView<'static, u32, RowMajor<4, 6>, Host>;
    type Cells = TensorView<'static, Cell<u32>, RowMajor<4, 6>, Host>;
    type Tiles = TileIter<'static, u32, RowMajor<4, 6>, Host, 2, 3>;
    let functions = functions![
        "view::PartIter::circular": PartIter::<'static, u32, Host>::circular,
        "view::PartIter::every": PartIter::<'static, u32, Host>::every,
        "view::TensorView::at": View::at::<4, 6>,
        "view::TensorView::clipped_tile": View::clipped_tile,
        "view::TensorView::column": View::column,
        "view::TensorView::compose": View::compose,
        "view::TensorView::compose_with": View::compose_with::<Contiguous<24>>,
        "view::TensorView::copy_from": Cells::copy_from::<RowMajor<4, 6>, Host>,
        "view::TensorView::distribute": View::distribute::<RowMajor<2, 2>>,
        "view::TensorView::distribute_by": View::distribute_by,
        "view::TensorView::distribute_clipped": View::distribute_clipped,
        "view::TensorView::extent": View::extent,
        "view::TensorView::fill": Cells::fill,
        "view::TensorView::flat_divide": View::flat_divide,
        "view::TensorView::from_mut": Cells::from_mut,
        "view::TensorView::from_slice": View::from_slice,
        "view::TensorView::get": View::get::<2>,
        "view::TensorView::iter": View::iter,
        "view::TensorView::layout": View::layout,
        "view::TensorView::offset": View::offset::<2>,
        "view::TensorView::parts_along": View::parts_along,
        "view::TensorView::range": View::range,
        "view::TensorView::row": View::row,
        "view::TensorView::set": Cells::set::<2>,
        "view::TensorView::slice": View::slice,
        "view::TensorView::slice_mode": View::slice_mode::<0>,
        "view::TensorView::split": View::split,
        "view::TensorView::split_mode": View::split_mode::<1, 2>,
        "view::TensorView::tile": View::tile::<2, 3>,
        "view::TensorView::tile_by": View::tile_by,
        "view::TensorView::tiles": View::tiles::<2, 3>,
        "view::TensorView::tiles_along": View::tiles_along::<2, 3>,
        "view::TensorView::tiles_along_by": View::tiles_along_by,
        "view::TensorView::tiles_around": View::tiles_around::<2, 3>,
        "view::TensorView::transpose": View::transpose,
        "view::TensorView::permute": View::permute,
        "view::TensorView::vectorize": View::vectorize::<1, 2>,
        "view::TileIter::circular": Tiles::circular,
        "view::TileIter::every": Tiles::every,
    ];
    functions.into_iter().map(str::to_owned).collect()
}

/// The paths of the host column: what stands in back quotes there.
fn host_column() -> BTreeSet<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/names.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Mojo"));
    let mut paths = BTreeSet::new();
    for row in rows {
        let columns: Vec<&str> = row.split(" | ").collect();
        assert_eq!(columns.len(), 4, "a row has Mojo, CuTe, host and device: {row}");
        paths.extend(columns[2].split('`').skip(1).step_by(2).map(str::to_owned));
    }
    paths
}

#[test]
fn every_path_of_the_host_column_exists() {
    let listed = [items(), of_layouts(), of_views()].into_iter().flatten().collect::<BTreeSet<_>>();
    let written = host_column();
    let unknown: Vec<_> = written.difference(&listed).collect();
    assert!(unknown.is_empty(), "in the table, and not in this list: {unknown:#?}");
    let missing: Vec<_> = listed.difference(&written).collect();
    assert!(missing.is_empty(), "in this list, and not in the table: {missing:#?}");
}
