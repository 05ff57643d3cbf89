//! A layout as an SVG image.

use core::fmt::{self, Write};

use super::{cell, extent};
use crate::analysis::{BANK_BYTES, BANKS};
use crate::{Composed, Layout};

/// Side of a cell, in pixels.
const CELL: i64 = 32;

/// The meaning of a cell's colour.
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
    /// The thread that holds the cell, by a layout from (thread, value) to the flat coordinate of
    /// the cell. The cell also names thread and value.
    Thread {
        /// The map from (thread, value) to the flat coordinate.
        fragment: Layout,
    },
}

/// The offsets of a layout as an SVG image: numbered rows and columns, the notation as the title,
/// and a legend.
///
/// The page follows `prefers-color-scheme`: light or dark, as what it is shown on.
///
/// ```
/// use tilewright_layout::{Composed, Layout, picture::{Colour, LayoutSvg}};
/// let rows = Composed::Plain(Layout::parse("(4,8):(8,1)").unwrap());
/// let image = LayoutSvg::new(&rows, Colour::Tile { rows: 2, columns: 4 }).to_string();
/// assert!(image.starts_with("<svg ") && image.ends_with("</svg>\n"));
/// assert_eq!(image.matches(r#"<rect class="cell" "#).count(), 32);
/// assert!(image.contains("<title>Layout (4,8):(8,1)</title>") && image.contains("tiles of 2 × 4"));
/// assert!(image.contains("prefers-color-scheme:dark") && image.contains(">mode 0</text>"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LayoutSvg {
    layout: Composed,
    colour: Colour,
}

impl LayoutSvg {
    /// The image of a layout, coloured.
    pub const fn new(layout: &Composed, colour: Colour) -> LayoutSvg {
        LayoutSvg { layout: *layout, colour }
    }

    /// The number that a cell's colour stands for.
    fn shade(&self, rows: i64, row: i64, column: i64) -> i64 {
        match self.colour {
            Colour::Tile { rows: tile_rows, columns } => {
                let down = row / tile_rows.max(1);
                let across = column / columns.max(1);
                down + across * (rows / tile_rows.max(1)).max(1)
            }
            Colour::Bank { element_bytes } => {
                // Offsets a whole round of the banks apart have one colour, so that no product
                // wraps.
                let round = BANKS as i64 * BANK_BYTES;
                cell(&self.layout, rows, row, column).rem_euclid(round) * element_bytes / BANK_BYTES % BANKS as i64
            }
            Colour::Thread { fragment } => holder(&fragment, row + rows * column).map_or(-1, |(thread, _)| thread),
        }
    }
}

/// Red, green and blue of a number, 0 to 255; white below 0. Every viewer reads these; `hsl()` is
/// not read by every one.
fn colour(shade: i64) -> [i64; 3] {
    if shade < 0 {
        return [255; 3];
    }
    // Steps of the golden angle keep neighbouring numbers apart in hue.
    let hue = shade % 360 * 137 % 360;
    let lightness = 72 + shade % 18 * 7 % 18;
    // The chroma of a saturation of 7 tenths, in thousandths of full light; the hue runs from one
    // channel to the next.
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

/// The margins around the cells: the notation and the columns above, the rows to the left, the
/// legend below.
const LEFT: i64 = 64;
const TOP: i64 = 76;
const BELOW: i64 = 52;

/// Most characters of the layout's notation above the cells; the `title` element has all of it.
const LONGEST_TITLE: usize = 72;

/// Most colours that the legend names.
const NAMED: usize = 6;

/// Colours of the page and of what is written on it, for light and dark surroundings. Cells are
/// light in both, and their text dark.
const STYLE: &str = "\
text{font-family:ui-monospace,monospace;font-size:11px;text-anchor:middle;dominant-baseline:central}
.page{fill:#ffffff}.ink{fill:#1f2328}.faint{fill:#59636e}.on{fill:#1f2328}.cell{stroke:#ffffff}
.axis{stroke:#59636e;fill:none}.head{fill:#59636e}.title{font-size:14px;font-weight:600;text-anchor:start}.left{text-anchor:start}
@media (prefers-color-scheme:dark){
.page{fill:#0d1117}.ink{fill:#e6edf3}.faint{fill:#9198a1}.cell{stroke:#0d1117}.axis{stroke:#9198a1}.head{fill:#9198a1}}
";

/// Text of an XML element, cut to a number of characters: a swizzle has `<` and `>` in its
/// notation.
struct Xml<'f, 'w> {
    to: &'f mut fmt::Formatter<'w>,
    left: usize,
}

impl fmt::Write for Xml<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match (self.left, character) {
                (0, _) => return Ok(()),
                (1, _) => self.to.write_str("\u{2026}")?,
                (_, '<') => self.to.write_str("&lt;")?,
                (_, '>') => self.to.write_str("&gt;")?,
                (_, '&') => self.to.write_str("&amp;")?,
                _ => self.to.write_char(character)?,
            }
            self.left -= 1;
        }
        Ok(())
    }
}

/// The number of characters that are written.
struct Count(usize);

impl fmt::Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.chars().count();
        Ok(())
    }
}

impl LayoutSvg {
    /// Writes a line that explains the colours.
    fn meaning(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.colour {
            Colour::Tile { rows, columns } => write!(f, "cells: offsets; colours: tiles of {rows} × {columns}"),
            Colour::Bank { element_bytes } => {
                write!(f, "cells: offsets; colours: banks of shared memory, elements of {element_bytes} bytes")
            }
            Colour::Thread { .. } => f.write_str("cells: T thread, V value; colours: threads"),
        }
    }

    /// The noun for the objects that colours number.
    const fn noun(&self) -> &'static str {
        match self.colour {
            Colour::Tile { .. } => "tile",
            Colour::Bank { .. } => "bank",
            Colour::Thread { .. } => "thread",
        }
    }

    /// The notation, the arrows along rows and columns with their names, and the number of each row
    /// and column.
    fn axes(&self, f: &mut fmt::Formatter<'_>, rows: i64, columns: i64) -> fmt::Result {
        write!(f, r#"<text class="ink title" x="{LEFT}" y="18">"#)?;
        write!(Xml { to: f, left: LONGEST_TITLE }, "{}", self.layout)?;
        f.write_str("</text>\n")?;
        let rank = self.layout.layout().rank();
        let end = LEFT + columns * CELL;
        let bottom = TOP + rows * CELL;
        let across = match rank {
            0 | 1 => "index",
            2 => "mode 1",
            _ => "modes 1, 2, …",
        };
        writeln!(f, r#"<path class="axis" marker-end="url(#head)" d="M{LEFT} 54H{}"/>"#, end - 6)?;
        writeln!(f, r#"<text class="faint left" x="{LEFT}" y="42">{across}</text>"#)?;
        for column in 0..columns {
            let x = LEFT + column * CELL + CELL / 2;
            writeln!(f, r#"<text class="faint" x="{x}" y="66">{column}</text>"#)?;
        }
        if rank < 2 {
            return Ok(());
        }
        writeln!(f, r#"<path class="axis" marker-end="url(#head)" d="M36 {TOP}V{}"/>"#, bottom - 6)?;
        let middle = TOP + rows * CELL / 2;
        writeln!(f, r#"<text class="faint" transform="translate(18 {middle}) rotate(-90)">mode 0</text>"#)?;
        for row in 0..rows {
            let y = TOP + row * CELL + CELL / 2;
            writeln!(f, r#"<text class="faint" x="50" y="{y}">{row}</text>"#)?;
        }
        Ok(())
    }

    /// Writes the legend: the meaning of cells and colours, with the first colours by their number.
    fn legend(&self, f: &mut fmt::Formatter<'_>, rows: i64, columns: i64) -> fmt::Result {
        let y = TOP + rows * CELL + 20;
        write!(f, r#"<text class="faint left" x="{LEFT}" y="{y}">"#)?;
        self.meaning(f)?;
        f.write_str("</text>\n")?;
        let (named, most) = self.first_shades(rows, columns);
        for (shown, &shade) in (0..).zip(named.iter().take_while(|shade| **shade <= most)) {
            let ([red, green, blue], x) = (colour(shade), LEFT + shown * 84);
            write!(f, r##"<rect class="key" x="{x}" y="{}" width="12" height="12" "##, y + 14)?;
            writeln!(f, r##"fill="#{red:02x}{green:02x}{blue:02x}"/>"##)?;
            writeln!(f, r#"<text class="faint left" x="{}" y="{}">{} {shade}</text>"#, x + 17, y + 20, self.noun())?;
        }
        if named[NAMED - 1] < most {
            let x = LEFT + NAMED as i64 * 84;
            writeln!(f, r#"<text class="faint left" x="{x}" y="{}">… {} {most}</text>"#, y + 20, self.noun())?;
        }
        Ok(())
    }

    /// The smallest numbers of colours that cells have, ascending and then `i64::MAX`, and the
    /// largest. Numbers that no cell has are left out: a bank that nothing lies in.
    fn first_shades(&self, rows: i64, columns: i64) -> ([i64; NAMED], i64) {
        let mut named = [i64::MAX; NAMED];
        let mut most = -1;
        for index in 0..rows * columns {
            let mut shade = self.shade(rows, index % rows, index / rows);
            most = most.max(shade);
            if shade < 0 || named.contains(&shade) {
                continue;
            }
            for place in &mut named {
                if shade < *place {
                    core::mem::swap(&mut shade, place);
                }
            }
        }
        (named, most)
    }

    fn cell(&self, f: &mut fmt::Formatter<'_>, rows: i64, row: i64, column: i64) -> fmt::Result {
        let x = LEFT + column * CELL;
        let y = TOP + row * CELL;
        let [red, green, blue] = colour(self.shade(rows, row, column));
        write!(f, r#"<rect class="cell" x="{x}" y="{y}" width="{CELL}" height="{CELL}" "#)?;
        writeln!(f, r##"fill="#{red:02x}{green:02x}{blue:02x}"/>"##)?;
        write!(f, r#"<text class="on" x="{}" y="{}">"#, x + CELL / 2, y + CELL / 2)?;
        match self.colour {
            Colour::Thread { fragment } => match holder(&fragment, row + rows * column) {
                Some((thread, value)) => write!(f, "T{thread}V{value}")?,
                None => f.write_str("-")?,
            },
            _ => write!(f, "{}", cell(&self.layout, rows, row, column))?,
        }
        f.write_str("</text>\n")
    }
}

impl fmt::Display for LayoutSvg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns) = extent(&self.layout);
        let mut title = Count(0);
        write!(title, "{}", self.layout)?;
        // Wide enough for the notation and the legend.
        let wide = 9 * title.0.min(LONGEST_TITLE) as i64;
        let wide = if wide > 600 { wide } else { 600 };
        let width = LEFT + 16 + if wide > columns * CELL { wide } else { columns * CELL };
        let height = TOP + rows * CELL + BELOW;
        write!(f, r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" "#)?;
        writeln!(f, r#"width="{width}" height="{height}" role="img">"#)?;
        f.write_str("<title>Layout ")?;
        write!(Xml { to: f, left: usize::MAX }, "{}", self.layout)?;
        f.write_str("</title>\n")?;
        writeln!(f, "<style>{STYLE}</style>")?;
        f.write_str(
            r#"<defs><marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" "#,
        )?;
        f.write_str(r#"orient="auto"><path class="head" d="M0 0L6 3L0 6z"/></marker></defs>"#)?;
        writeln!(f, "\n<rect class=\"page\" width=\"{width}\" height=\"{height}\"/>")?;
        self.axes(f, rows, columns)?;
        for row in 0..rows {
            for column in 0..columns {
                self.cell(f, rows, row, column)?;
            }
        }
        self.legend(f, rows, columns)?;
        f.write_str("</svg>\n")
    }
}

#[cfg(test)]
mod tests {
    use super::colour;

    /// The colour by the definition of hue, saturation and lightness, in floating point.
    fn by_definition(shade: i64) -> [f64; 3] {
        let hue = (shade * 137 % 360) as f64;
        let lightness = (72 + shade * 7 % 18) as f64 / 100.0;
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
