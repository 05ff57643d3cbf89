//! The placement of a weight stream's stages: in order, or interleaved over the pieces that are
//! read side by side.
//!
//! Blocks of a GPU read consecutive parts of a stream at the same time, one stage after the other.
//! In stream order, what is read at one moment is spread over the whole stream. Interleaved, it is
//! contiguous: round r of all pieces lies after round r − 1 of all pieces, the layout
//! `(rounds, pieces) : (pieces, 1)`. Pieces that are a strip longer than others come first, and
//! what they have more follows, `(more, longer) : (longer, 1)`.

use tilewright_codegen::build::Val;
use tilewright_layout::Layout;

/// The places of a stream's stages: a permutation of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StagePlacement {
    /// Consecutive stages that stay together.
    block: u32,
    /// Parts that are read side by side.
    pieces: u32,
    /// The number of longer pieces, which come first.
    longer: u32,
    /// Blocks that every piece has.
    rounds: u32,
    /// Blocks that the longer have more.
    more: u32,
}

impl StagePlacement {
    /// All stages in order.
    pub const IN_ORDER: StagePlacement = StagePlacement { block: 1, pieces: 1, longer: 0, rounds: u32::MAX, more: 0 };

    /// Places `strips` strips of `stages` stages to `pieces` pieces: consecutive strips each, their
    /// numbers differing by one at most, more first. `block` stages stay together; it divides
    /// `stages`.
    ///
    /// ```
    /// use tilewright_kernels::weights::StagePlacement;
    /// // Five strips of two stages for two SMs: stages 0 to 5 and 6 to 9.
    /// let placement = StagePlacement::new(5, 2, 2, 1);
    /// assert_eq!((0..10).map(|stage| placement.place(stage)).collect::<Vec<_>>(), [0, 2, 4, 6, 8, 9, 1, 3, 5, 7]);
    /// ```
    pub fn new(strips: u32, pieces: u32, stages: u32, block: u32) -> StagePlacement {
        let block = if stages.is_multiple_of(block.max(1)) { block.max(1) } else { 1 };
        let pieces = pieces.clamp(1, strips.max(1));
        let each = stages / block;
        StagePlacement { block, pieces, longer: strips % pieces, rounds: (strips / pieces * each).max(1), more: each }
    }

    /// Whether every stage is in its order.
    pub fn is_in_order(self) -> bool {
        self.pieces == 1
    }

    /// The layout of the blocks that every piece has, by round and piece.
    pub fn whole(self) -> Layout {
        side_by_side(self.rounds, self.pieces)
    }

    /// The layout of the additional blocks of longer pieces, by round and piece, after the others.
    pub fn rest(self) -> Layout {
        side_by_side(self.more, self.longer.max(1))
    }

    /// The place of a stage.
    pub fn place(self, stage: u32) -> u32 {
        if self.is_in_order() {
            return stage;
        }
        let at = stage / self.block;
        let within = stage % self.block;
        let long = self.rounds + self.more;
        let (piece, round) = match at.checked_sub(self.longer * long) {
            None => (at / long, at % long),
            Some(at) => (self.longer + at / self.rounds, at % self.rounds),
        };
        let offset = |layout: Layout, rounds: u32, round: u32| layout.at(i64::from(round + rounds * piece)) as u32;
        let place = match round.checked_sub(self.rounds) {
            None => offset(self.whole(), self.rounds, round),
            Some(round) => self.rounds * self.pieces + offset(self.rest(), self.more, round),
        };
        place * self.block + within
    }

    /// The stage at a place: the inverse of [`StagePlacement::place`].
    pub fn stage(self, place: u32) -> u32 {
        if self.is_in_order() {
            return place;
        }
        let at = place / self.block;
        let within = place % self.block;
        let index = |layout: Layout, at: u32| layout.right_inverse().at(i64::from(at)) as u32;
        let (piece, round) = match at.checked_sub(self.rounds * self.pieces) {
            None => split(index(self.whole(), at), self.rounds),
            Some(at) => {
                let (piece, round) = split(index(self.rest(), at), self.more);
                (piece, self.rounds + round)
            }
        };
        let first = piece * self.rounds + piece.min(self.longer) * self.more;
        (first + round) * self.block + within
    }

    /// The place of a stage, on the device.
    #[track_caller]
    pub fn at<'k>(self, stage: Val<'k, u32>) -> Val<'k, u32> {
        let StagePlacement { block, pieces, longer, rounds, more } = self;
        if self.is_in_order() {
            return stage;
        }
        if block > 1 {
            return StagePlacement { block: 1, ..self }.at(stage / block) * block + stage % block;
        }
        if longer == 0 {
            return stage % rounds * pieces + stage / rounds;
        }
        let long = rounds + more;
        let end = longer * (rounds + more);
        let is_long = stage.lt(end);
        let past_long = stage - end;
        let piece = is_long.select(stage / long, past_long / rounds + longer);
        let round = is_long.select(stage % long, past_long % rounds);
        round * pieces + piece - (round.max(rounds) - rounds) * (pieces - longer)
    }
}

/// `(rounds, pieces) : (pieces, 1)`.
fn side_by_side(rounds: u32, pieces: u32) -> Layout {
    let leaf = |extent: u32, stride: u32| Layout::constant(Layout::leaf(extent.into(), stride.into()));
    Layout::constant(Layout::tuple(&[leaf(rounds, pieces), leaf(pieces, 1)]))
}

/// Piece and round of an index that counts rounds first.
fn split(index: u32, rounds: u32) -> (u32, u32) {
    (index / rounds, index % rounds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tilewright_codegen::build::{block, record};
    use tilewright_codegen::ir::Arch;

    use crate::weights::*;

    proptest! {
        #[test]
        fn stages_have_a_place_each_and_the_device_finds_it(strips in 1u32..60, pieces in 1u32..20, stages in 1u32..5, whole: bool) {
            let all = strips * stages;
            let block_of = if whole { stages } else { 1 };
            let placement = StagePlacement::new(strips, pieces, stages, block_of);
            let places: Vec<u32> = (0..all).map(|stage| placement.place(stage)).collect();
            let mut sorted = places.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..all).collect::<Vec<_>>());
            for stage in 0..all {
                prop_assert_eq!(placement.stage(places[stage as usize]), stage);
            }
            // Constants are folded by the same arithmetic as the simulator's.
            record("places", Arch::Sm80, block(32), |k| {
                for stage in 0..all {
                    let found = placement.at(k.lit(stage)).operand().as_const().map(|found| found.bits);
                    assert_eq!(found, Some(u64::from(places[stage as usize])), "{placement:?}, stage {stage}");
                }
            });
        }

        #[test]
        fn what_pieces_read_in_a_round_is_contiguous(share in 1u32..6, longer in 0u32..9, pieces in 9u32..20, stages in 1u32..5) {
            let placement = StagePlacement::new(share * pieces + longer, pieces, stages, 1);
            let first = |piece: u32| (piece * share + piece.min(longer)) * stages;
            for round in 0..share * stages {
                for piece in 0..pieces {
                    prop_assert_eq!(placement.place(first(piece) + round), round * pieces + piece);
                }
            }
            for round in 0..stages {
                for piece in 0..longer {
                    let place = placement.place(first(piece) + share * stages + round);
                    prop_assert_eq!(place, share * stages * pieces + round * longer + piece);
                }
            }
        }
    }
}
