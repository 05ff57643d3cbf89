//! Pictures of layouts: a grid of offsets as text, or as SVG with colours.
//!
//! Rows are mode 0, columns are all other modes together. A layout of one mode is one row.

mod svg;
mod text;

use crate::Composed;

pub use svg::{Colour, LayoutSvg};
pub use text::TextGrid;

/// Rows and columns of the picture of a layout.
pub(crate) const fn extent(layout: &Composed) -> (i64, i64) {
    let inner = layout.layout();
    if inner.rank() < 2 {
        return (1, inner.size());
    }
    let rows = inner.extent(0);
    (rows, inner.size() / rows)
}

/// The offset that stands at a row and a column.
pub(crate) const fn cell(layout: &Composed, rows: i64, row: i64, column: i64) -> i64 {
    layout.at(row + rows * column)
}
