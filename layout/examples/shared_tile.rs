//! A tile of 16-bit numbers in shared memory: its pictures, and what its columns cost with and
//! without a swizzle.
//!
//! `cargo run -p tilewright-layout --example shared_tile`

use tilewright_layout::analysis::wavefronts;
use tilewright_layout::picture::TextGrid;
use tilewright_layout::{Composed, Coord, Layout, LayoutError, Swizzle, Swizzled, Tiler};

/// Bytes of a number, and of what each of 8 threads reads at a time.
const ELEMENT: i64 = 2;
const VECTOR: i64 = 16;

fn main() -> Result<(), LayoutError> {
    // 8 rows of 64 numbers. Rows are 128 bytes apart: the whole width of the banks.
    let rows = Layout::parse("(8,64):(64,1)")?;
    let swizzled = Swizzled::new(Swizzle::new(3, 3, 3)?, 0, rows);

    // Each number below is the place of a vector of 8 numbers.
    let vectors = rows.upcast(VECTOR / ELEMENT)?;
    println!("vectors of the tile {rows}:\n{}", TextGrid::of(&vectors));
    let moved = Composed::new(Swizzle::new(3, 0, 3)?, 0, vectors);
    println!("the tile after {}:\n{}", swizzled.swizzle(), TextGrid::of_composed(&moved));

    // 8 threads read the first vector of each row.
    let column = rows.slice(&Coord::parse("(_,0)")?)?;
    let plain = wavefronts(&Composed::Plain(column), ELEMENT, VECTOR)?;
    let spread = wavefronts(&Composed::new(swizzled.swizzle(), 0, column), ELEMENT, VECTOR)?;
    println!("a column costs {} reads, and {} with the swizzle", plain.count, spread.count);
    assert_eq!((plain.count, spread.count), (8, 1));

    // Tiles of 8 x 8 for a matrix instruction: mode 0 is inside a tile, mode 1 is which tile.
    let tiles = rows.zipped_divide(&Tiler::by_mode(&[Tiler::extent(8), Tiler::extent(8)])?)?;
    println!("tiles of 8 x 8: {tiles}");
    Ok(())
}
