//! Random extents and ragged batches for property tests of kernels, with shrinking; requires the
//! feature `testing`.
//!
//! The oracles to hold kernels against are in [`naive`](crate::naive), the trials that run them on
//! a simulator or a GPU in [`tilewright_codegen::trial`].
//!
//! ```
//! use proptest::prelude::*;
//! use tilewright_kernels::{naive, testing};
//! proptest!(|(n in testing::extent(8, 40), lengths in testing::ragged(4, 16, 64))| {
//!     prop_assert!((1..=40).contains(&n));
//!     prop_assert!(lengths.len() <= 4 && lengths.iter().all(|&tokens| tokens <= 64));
//!     prop_assert_eq!(naive::add(&vec![1.0f32; n as usize], &vec![2.0; n as usize]), vec![3.0; n as usize]);
//! });
//! ```

use proptest::prelude::*;

/// Extents from 1 to `most`; half of them are a multiple of `tile` or differ by one from a
/// multiple, if there is one.
pub fn extent(tile: u32, most: u32) -> impl Strategy<Value = u32> {
    let tile = tile.max(1);
    let most = most.max(1);
    let beside =
        (1..=most.div_ceil(tile), 0u32..3).prop_map(move |(tiles, plus)| (tiles * tile + plus).saturating_sub(1));
    prop_oneof![1..=most, beside.prop_map(move |extent| extent.clamp(1, most))]
}

/// Lengths of 1 to `sequences` sequences, each from 0 to `most` tokens, at multiples of `tile` and
/// next to them.
pub fn ragged(sequences: usize, tile: u32, most: u32) -> impl Strategy<Value = Vec<u32>> {
    let length = prop_oneof![1 => Just(0u32), 8 => extent(tile, most)];
    proptest::collection::vec(length, 1..=sequences.max(1))
}
