//! All puzzles, in the order to solve them.

use super::case::Puzzle;
use super::{asynchronous, blocks, clusters, maps, products, rows, shared, warps};

/// The puzzles of every file.
pub fn all() -> Vec<Puzzle> {
    let files: [&[Puzzle]; 8] = [
        &maps::PUZZLES,
        &blocks::PUZZLES,
        &shared::PUZZLES,
        &warps::PUZZLES,
        &rows::PUZZLES,
        &products::PUZZLES,
        &asynchronous::PUZZLES,
        &clusters::PUZZLES,
    ];
    files.concat()
}
