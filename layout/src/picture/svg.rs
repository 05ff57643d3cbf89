//! A layout as an SVG image.

use core::fmt;

use super::{cell, extent};
use crate::analysis::{BANK_BYTES, BANKS};
use crate::{Composed, Layout};

/// Side of a cell, in pixels.
const CELL: i64 = 32;

/// What the colour of a cell says.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a picture is made once, and `Copy` lets constants hold one")]
pub enum Colour {
    /// The tile, of this many rows and columns.
    Tile {
        /// Rows of a tile.
        rows: i64,
        /// Columns of a tile.
        columns: i64,
    },
    /// The bank of shared memory, for elements of this many bytes.
    Bank {
        /// Bytes of an element.
        element_bytes: i64,
    },
    /// The thread that holds the cell, by a layout from (thread, value) to the flat coordinate of the cell. The cell also
    /// names thread and value.
    Thread {
        /// From (thread, value) to the flat coordinate.
        fragment: Layout,
    },
}

/// The offsets of a layout as an SVG image.
///
/// ```
/// use tilewright_layout::{Composed, Layout, picture::{Colour, Svg}};
/// let rows = Composed::Plain(Layout::parse("(4,8):(8,1)").unwrap());
/// let image = Svg::new(&rows, Colour::Tile { rows: 2, columns: 4 }).to_string();
/// assert!(image.starts_with("<svg ") && image.ends_with("</svg>\n"));
/// assert_eq!(image.matches("<rect ").count(), 32);
/// assert!(image.contains(r##"fill="#"##) && !image.contains("hsl("));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Svg {
    layout: Composed,
    colour: Colour,
}

impl Svg {
    /// The image of a layout, coloured.
    pub const fn new(layout: &Composed, colour: Colour) -> Svg {
        Svg { layout: *layout, colour }
    }

    /// The number behind a cell's colour.
    fn shade(&self, rows: i64, row: i64, column: i64) -> i64 {
        match self.colour {
            Colour::Tile { rows: tile_rows, columns } => {
                let (down, across) = (row / tile_rows.max(1), column / columns.max(1));
                down + across * (rows / tile_rows.max(1)).max(1)
            }
            Colour::Bank { element_bytes } => {
                // What lies a whole round of the banks apart has one colour, so that no product wraps.
                let round = BANKS as i64 * BANK_BYTES;
                cell(&self.layout, rows, row, column).rem_euclid(round) * element_bytes / BANK_BYTES % BANKS as i64
            }
            Colour::Thread { fragment } => holder(&fragment, row + rows * column).map_or(-1, |(thread, _)| thread),
        }
    }
}

/// Red, green and blue of a number, 0 to 255; white below 0. Every viewer knows these, and not every one hues.
fn colour(shade: i64) -> [i64; 3] {
    if shade < 0 {
        return [255; 3];
    }
    // Steps of the golden angle keep neighbouring numbers apart in hue.
    let hue = shade % 360 * 137 % 360;
    let lightness = 72 + shade % 18 * 7 % 18;
    // The chroma of a saturation of 7 tenths, in thousandths of full light; the hue runs from one channel to the next.
    let chroma = 14 * (100 - lightness);
    let low = 10 * lightness - chroma / 2;
    [hue, hue + 240, hue + 120].map(|turned| {
        let distance = (turned % 360 - 180).abs();
        let share = (distance - 60).clamp(0, 60);
        (low * 60 + chroma * share) * 255 / 60_000
    })
}

/// The first (thread, value) that a fragment sends to a flat coordinate.
fn holder(fragment: &Layout, coordinate: i64) -> Option<(i64, i64)> {
    let threads = fragment.extent(0);
    (0..fragment.size()).find(|i| fragment.at(*i) == coordinate).map(|i| (i % threads, i / threads))
}

impl fmt::Display for Svg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns) = extent(&self.layout);
        let (width, height) = (columns * CELL, rows * CELL);
        writeln!(
            f,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace">"#
        )?;
        for row in 0..rows {
            for column in 0..columns {
                let (x, y) = (column * CELL, row * CELL);
                let shade = self.shade(rows, row, column);
                let offset = cell(&self.layout, rows, row, column);
                let [red, green, blue] = colour(shade);
                write!(f, r#"<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" "#)?;
                writeln!(f, r##"fill="#{red:02x}{green:02x}{blue:02x}" stroke="white"/>"##)?;
                let (cx, cy) = (x + CELL / 2, y + CELL / 2);
                write!(f, r#"<text x="{cx}" y="{cy}" font-size="11" text-anchor="middle" "#)?;
                write!(f, r#"dominant-baseline="central">"#)?;
                match self.colour {
                    Colour::Thread { fragment } => match holder(&fragment, row + rows * column) {
                        Some((thread, value)) => write!(f, "T{thread}V{value}")?,
                        None => f.write_str("-")?,
                    },
                    _ => write!(f, "{offset}")?,
                }
                f.write_str("</text>\n")?;
            }
        }
        f.write_str("</svg>\n")
    }
}

#[cfg(test)]
mod tests {
    use super::colour;

    /// The colour by the definition of hue, saturation and lightness, in floating point.
    fn by_definition(shade: i64) -> [f64; 3] {
        let (hue, lightness) = ((shade * 137 % 360) as f64, (72 + shade * 7 % 18) as f64 / 100.0);
        let chroma = (1.0 - (2.0 * lightness - 1.0).abs()) * 0.7;
        [0.0, 120.0, 240.0].map(|centre: f64| {
            let apart = (hue - centre).abs();
            let apart = apart.min(360.0 - apart);
            255.0 * (lightness - chroma / 2.0 + chroma * ((120.0 - apart) / 60.0).clamp(0.0, 1.0))
        })
    }

    #[test]
    fn colours_are_those_of_their_hues() {
        for shade in 0..720 {
            for (found, expected) in colour(shade).into_iter().zip(by_definition(shade)) {
                assert!((found as f64 - expected).abs() <= 1.5, "{shade}: {found} for {expected}");
            }
            assert_ne!(colour(shade), colour(shade + 1), "{shade}");
        }
        assert_eq!(colour(-1), [255; 3]);
        assert!(colour(i64::MAX).iter().all(|channel| (0..256).contains(channel)));
    }
}
