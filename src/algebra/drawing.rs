//! Pictures of layouts, of a size that can be looked at.

use tilewright_layout::Composed;
use tilewright_layout::picture::{Colour, LayoutSvg, TextGrid};

use super::ExpressionRefusal;

/// Most cells that a picture has.
const MAX_CELLS: i64 = 1 << 16;

/// Most cells times values that a picture of threads goes through.
const MAX_SEARCH: i64 = 1 << 24;

fn limited(operation: &'static str, size: i64, limit: i64) -> Result<(), ExpressionRefusal> {
    if size > limit { Err(ExpressionRefusal::TooLong { operation, size, limit }) } else { Ok(()) }
}

/// The layout as text: rows are mode 0, columns all other modes, with lines between tiles of so
/// many rows and columns (0: none).
///
/// ```
/// use tilewright::algebra;
/// let layout = tilewright::layout::Layout::parse("(2,3):(3,1)")?;
/// assert_eq!(algebra::text(&tilewright::layout::Composed::Plain(layout), (0, 0))?, "0 1 2\n3 4 5\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ExpressionRefusal::TooLong`] above 65,536 elements.
pub fn text(layout: &Composed, (rows, columns): (i64, i64)) -> Result<String, ExpressionRefusal> {
    limited("show", layout.size(), MAX_CELLS)?;
    Ok(TextGrid::of_composed(layout).tiles(rows, columns).to_string())
}

/// The layout as an SVG image, in these colours.
///
/// # Errors
/// As [`text`]; for threads also where layout and fragment have over 2²⁴ pairs of elements.
pub fn svg(layout: &Composed, colour: Colour) -> Result<String, ExpressionRefusal> {
    limited("show", layout.size(), MAX_CELLS)?;
    if let Colour::Thread { fragment } = &colour {
        limited("show --thread", fragment.size(), MAX_CELLS)?;
        // For each cell the whole fragment may be searched.
        limited("show --thread", layout.size() * fragment.size(), MAX_SEARCH)?;
    }
    Ok(LayoutSvg::new(layout, colour).to_string())
}
