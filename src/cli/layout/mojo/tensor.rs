//! Tensors of the cases: memory seen through a layout, and how that library lists elements.

use serde_json::{Value as Json, json};
use tilewright_layout::view::{OffsetMap, TensorView, ViewError};
use tilewright_layout::{Layout, Swizzle, Swizzled};

use super::case::{CaseOutcome, GoldenCase, Obstacle};
use crate::algebra::LayoutValue;
use crate::algebra::listed;

/// A view of the memory of a case.
pub(super) type Tensor<'m> = TensorView<'m, i64, Swizzled>;

/// The order in which the lanes of a vector are listed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneOrder {
    RowMajor,
    Colexicographic,
}

/// The layout of a tensor, without a swizzle.
pub(super) fn plain(layout: Layout) -> Swizzled {
    Swizzled::new(Swizzle::IDENTITY, 0, layout)
}

/// The memory of a tensor: the offsets themselves, or, for the fill `arange`, the row-major number
/// of the element at each.
pub(super) fn memory(case: &GoldenCase<'_>, layout: &Swizzled) -> Result<Vec<i64>, Obstacle> {
    let mut memory = offsets(layout)?;
    if case.args["fill"].as_str() == Some("arange") {
        let tensor = TensorView::<_, Swizzled>::with_layout_mut(&mut memory, *layout)?;
        for (cell, number) in tensor.permute(&row_by_row(tensor.rank()))?.iter().zip(0..) {
            cell.set(number);
        }
    }
    Ok(memory)
}

/// Memory that a tensor fits in, each place with its offset.
pub(super) fn offsets(layout: &Swizzled) -> Result<Vec<i64>, Obstacle> {
    let (_, needed) = layout.span()?;
    listed("memory", needed as i64)?;
    listed("a tensor", layout.size())?;
    Ok((0..needed as i64).collect())
}

/// The order of modes in which a view's iterator, first mode fastest, walks row by row.
pub(super) fn row_by_row(rank: usize) -> Vec<usize> {
    (0..rank).rev().collect()
}

/// The elements, nested row-major. The first `lanes` modes number the elements of a vector.
pub(super) fn values(view: &Tensor<'_>, lanes: usize, order: LaneOrder) -> CaseOutcome {
    let mut modes: Vec<usize> = (0..lanes).collect();
    if order == LaneOrder::RowMajor {
        modes.reverse();
    }
    modes.extend((lanes..view.rank()).rev());
    let flat: Vec<i64> = view.permute(&modes)?.iter().copied().collect();
    let width: usize = (0..lanes).map(|mode| view.extent(mode)).product();
    let items = if lanes == 0 {
        flat.into_iter().map(Json::from).collect()
    } else {
        flat.chunks(width).map(|vector| json!(vector)).collect()
    };
    let extents: Vec<usize> = (lanes..view.rank()).map(|mode| view.extent(mode)).collect();
    Ok(nested(items, &extents))
}

/// A list as rows of rows.
pub(super) fn nested(mut items: Vec<Json>, extents: &[usize]) -> Json {
    for extent in extents.iter().skip(1).rev() {
        items = items.chunks(*extent).map(|row| Json::from(row.to_vec())).collect();
    }
    Json::from(items)
}

/// The element at a coordinate of up to four integers.
pub(super) fn element(view: &Tensor<'_>, coordinate: &[usize]) -> CaseOutcome {
    let found = match *coordinate {
        [a] => view.get([a]),
        [a, b] => view.get([a, b]),
        [a, b, c] => view.get([a, b, c]),
        [a, b, c, d] => view.get([a, b, c, d]),
        _ => Err(ViewError::Rank { given: coordinate.len(), expected: view.rank() }),
    };
    Ok(json!(found?))
}

/// The extents of the modes from `from` on.
pub(super) fn extents(view: &Tensor<'_>, from: usize) -> Json {
    (from..view.rank()).map(|mode| view.extent(mode)).collect()
}

/// Some of a view's modes, as a layout.
pub(super) fn modes(view: &Tensor<'_>, from: usize, to: usize) -> CaseOutcome {
    Ok(LayoutValue::from(view.layout().layout().take(from, to)?).to_json())
}

/// The offset at which a view begins.
pub(super) fn start(view: &Tensor<'_>) -> i64 {
    view.layout().at(0)
}
