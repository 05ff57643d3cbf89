//! A layout as a grid of numbers.

use core::fmt;

use super::{cell, extent};
use crate::{Composed, Layout};

/// The offsets of a layout as lines of text, optionally with rules between tiles.
///
/// ```
/// use tilewright_layout::{Layout, picture::TextGrid};
/// let tiles = Layout::parse("((2,2),(2,2)):((2,8),(1,4))").unwrap();
/// let picture = TextGrid::of(&tiles).tiles(2, 2).to_string();
/// assert_eq!(
///     picture,
///     " 0  1 |  4  5\n 2  3 |  6  7\n------+------\n 8  9 | 12 13\n10 11 | 14 15\n",
/// );
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TextGrid {
    layout: Composed,
    tile: Option<(i64, i64)>,
}

impl TextGrid {
    /// The picture of a layout.
    pub const fn of(layout: &Layout) -> TextGrid {
        TextGrid { layout: Composed::Plain(*layout), tile: None }
    }

    /// The picture of a layout that may be swizzled.
    pub const fn of_composed(layout: &Composed) -> TextGrid {
        TextGrid { layout: *layout, tile: None }
    }

    /// Adds rules after every `rows` rows and `columns` columns; a number below 1 draws none.
    pub const fn tiles(self, rows: i64, columns: i64) -> TextGrid {
        TextGrid { tile: Some((rows, columns)), ..self }
    }
}

fn width_of(value: i64) -> usize {
    let mut width = 1 + usize::from(value < 0);
    let mut rest = value.unsigned_abs();
    while rest >= 10 {
        rest /= 10;
        width += 1;
    }
    width
}

impl fmt::Display for TextGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rows, columns) = extent(&self.layout);
        let (tile_rows, tile_columns) = self.tile.unwrap_or((0, 0));
        let ends = |index: i64, tile: i64, count: i64| tile > 0 && (index + 1) % tile == 0 && index + 1 < count;
        let width = (0..rows * columns).map(|i| width_of(self.layout.at(i))).max().unwrap_or(1);
        for row in 0..rows {
            for column in 0..columns {
                if column > 0 {
                    f.write_str(if ends(column - 1, tile_columns, columns) { " | " } else { " " })?;
                }
                write!(f, "{:>width$}", cell(&self.layout, rows, row, column))?;
            }
            f.write_str("\n")?;
            if ends(row, tile_rows, rows) {
                for column in 0..columns {
                    if column > 0 {
                        f.write_str(if ends(column - 1, tile_columns, columns) { "-+-" } else { "-" })?;
                    }
                    for _ in 0..width {
                        f.write_str("-")?;
                    }
                }
                f.write_str("\n")?;
            }
        }
        Ok(())
    }
}
