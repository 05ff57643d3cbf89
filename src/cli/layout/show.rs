//! Drawing a layout as text or as an SVG file.

use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use tilewright_layout::picture::{Colour, LayoutSvg, TextGrid};
use tilewright_layout::{Composed, Layout};

use super::{ExpressionRefusal, evaluate};
use crate::cli::Failure;
use crate::cli::output::CommandOutput;

/// Most cells that a picture has.
const MAX_CELLS: i64 = 1 << 16;

/// Most cells times values that a picture of threads goes through.
const MAX_SEARCH: i64 = 1 << 24;

/// The meaning of the colours of a picture.
#[derive(Args)]
pub struct Colours {
    /// Tiles of ROWS,COLUMNS.
    #[arg(long, value_name = "ROWS,COLUMNS", value_parser = tile, group = "colour")]
    tile: Option<(i64, i64)>,
    /// Banks of shared memory, for elements of this many bytes.
    #[arg(long, value_name = "ELEMENT_BYTES", value_parser = clap::value_parser!(i64).range(1..=16), group = "colour")]
    bank: Option<i64>,
    /// Threads, by a layout from (thread, value) to the flat coordinate of a cell.
    #[arg(long, value_name = "LAYOUT", group = "colour")]
    thread: Option<String>,
}

fn tile(text: &str) -> Result<(i64, i64), String> {
    let sides = text.split_once(',').and_then(|(rows, columns)| Some((rows.parse().ok()?, columns.parse().ok()?)));
    sides
        .filter(|(rows, columns)| *rows > 0 && *columns > 0)
        .ok_or_else(|| "expected two positive numbers: 8,16".into())
}

/// The layout from (thread, value) to cells, no larger than a picture.
fn threads(text: &str) -> Result<Layout, Failure> {
    let fragment = evaluate(text)?.layout()?;
    match fragment.size() {
        size if size > MAX_CELLS => {
            Err(ExpressionRefusal::TooLong { operation: "show --thread", size, limit: MAX_CELLS }.into())
        }
        _ => Ok(fragment),
    }
}

/// Draws the layout.
///
/// # Errors
/// For a layout too large to draw, an invalid thread layout, or a file that cannot be written.
pub(super) fn run(layout: &Composed, svg: Option<&Path>, colours: &Colours) -> Result<(), Failure> {
    if layout.size() > MAX_CELLS {
        return Err(ExpressionRefusal::TooLong { operation: "show", size: layout.size(), limit: MAX_CELLS }.into());
    }
    let (rows, columns) = colours.tile.unwrap_or((0, 0));
    let Some(path) = svg else {
        return Ok(write!(io::stdout(), "{}", TextGrid::of_composed(layout).tiles(rows, columns))?);
    };
    let colour = match (&colours.thread, colours.bank) {
        (Some(fragment), _) => {
            let fragment = threads(fragment)?;
            // For each cell the whole fragment may be searched.
            let size = layout.size() * fragment.size();
            if size > MAX_SEARCH {
                return Err(ExpressionRefusal::TooLong { operation: "show --thread", size, limit: MAX_SEARCH }.into());
            }
            Colour::Thread { fragment }
        }
        (None, Some(element_bytes)) => Colour::Bank { element_bytes },
        (None, None) => Colour::Tile { rows: rows.max(1), columns: columns.max(1) },
    };
    CommandOutput::create(path)?.write(|file| write!(file, "{}", LayoutSvg::new(layout, colour)))
}
