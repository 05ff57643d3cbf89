//! Drawing a layout as text or as an SVG file.

use std::io::{self, Write};
use std::path::Path;

use clap::Args;
use tilewright_layout::Composed;
use tilewright_layout::picture::Colour;

use crate::algebra::{self, evaluate};
use crate::cli::Failure;
use crate::cli::output::CommandOutput;

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

/// Draws the layout.
///
/// # Errors
/// For a layout too large to draw, an invalid thread layout, or a file that cannot be written.
pub(super) fn run(layout: &Composed, svg: Option<&Path>, colours: &Colours) -> Result<(), Failure> {
    let tile = colours.tile.unwrap_or((0, 0));
    let Some(path) = svg else {
        return Ok(write!(io::stdout(), "{}", algebra::text(layout, tile)?)?);
    };
    let colour = match (&colours.thread, colours.bank) {
        (Some(fragment), _) => Colour::Thread { fragment: evaluate(fragment)?.layout()? },
        (None, Some(element_bytes)) => Colour::Bank { element_bytes },
        (None, None) => Colour::Tile { rows: tile.0.max(1), columns: tile.1.max(1) },
    };
    let picture = algebra::svg(layout, colour)?;
    CommandOutput::create(path)?.write(|file| file.write_all(picture.as_bytes()))
}
