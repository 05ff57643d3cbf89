//! The weights of a stage as the lanes of a warp read them: a warp takes tiles in turn, a lane
//! eight elements of each.

use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

use super::codes::Codes;
use super::convert;
use super::factors::{Factors, WeightSide};
use super::packed::Strip;
use crate::quant::Code;
use crate::tile::{Index, LayoutTensor};

/// A tile of a stage that a warp multiplies.
#[derive(Clone, Copy)]
pub struct WarpTile<'k> {
    /// Its index in the stage.
    pub tile: Index<'k>,
    /// Whether there is such a tile, where not every warp has one.
    pub exists: Option<Val<'k, bool>>,
}

/// A lane's eight weights of a tile, as they are packed.
#[derive(Clone, Copy)]
pub struct LaneCodes<'k> {
    codes: [Val<'k, u32>; 4],
    /// The scales of this lane's blocks: a byte for each step.
    blocks: Option<Val<'k, u32>>,
    /// Whether there is such a tile, where not every warp has one.
    pub(crate) exists: Option<Val<'k, bool>>,
}

impl<'k> WarpTile<'k> {
    /// The tiles of this warp in a stage that has as many for every warp.
    pub fn of_whole_rounds(k: &'k Builder, strip: Strip) -> impl Iterator<Item = WarpTile<'k>> {
        (0..strip.per_warp()).map(move |round| WarpTile { tile: WarpTile::number(k, strip, round), exists: None })
    }

    /// The tile of this warp in a round.
    pub fn number(k: &'k Builder, strip: Strip, round: u32) -> Index<'k> {
        Index::below(k.warp(), strip.warps()) + round * strip.warps()
    }

    /// Loads this lane's weights of the tile with their factors.
    #[track_caller]
    pub fn load_codes(self, strip: Strip, codes: Codes, side: WeightSide, stage: Ptr<'k, Shared, u8>) -> CodeTile<'k> {
        let factors = strip.factors(codes, side, stage.at(strip.scales_at()), self.tile);
        CodeTile::new(self.load(strip, stage.cast()), factors)
    }

    /// Loads this lane's weights of the tile.
    #[track_caller]
    pub fn load(self, strip: Strip, stage: Ptr<'k, Shared, bf16>) -> LaneCodes<'k> {
        let at = [Index::lane(stage.builder()), self.tile];
        let codes = LayoutTensor::new(stage, strip.stage_lanes()).at(at).cast().load_vec();
        let words = || stage.cast::<u32>().at(strip.tile_bytes() / 4);
        let blocks = strip.has_blocks().then(|| LayoutTensor::new(words(), strip.block_words()).at(at).load());
        LaneCodes { codes, blocks, exists: self.exists }
    }
}

impl<'k> LaneCodes<'k> {
    /// The weights of a tile that there is, as [`LaneCodes::codes`] gives them.
    pub fn of(codes: [Val<'k, u32>; 4]) -> LaneCodes<'k> {
        LaneCodes { codes, blocks: None, exists: None }
    }

    /// Adds the scales of blocks, as [`LaneCodes::blocks`] gives them.
    #[must_use]
    pub fn with_blocks(self, blocks: Option<Val<'k, u32>>) -> LaneCodes<'k> {
        LaneCodes { blocks, ..self }
    }

    /// The weights as they are packed: 16 bytes.
    pub fn codes(self) -> [Val<'k, u32>; 4] {
        self.codes
    }

    /// The scales of its blocks, where there are any: 4 bytes.
    pub fn blocks(self) -> Option<Val<'k, u32>> {
        self.blocks
    }
}

/// A lane's codes of a tile with their factors; of [`WeightSide::Pair`] those of two strips' tiles
/// at the same k.
#[derive(Clone)]
pub struct CodeTile<'k> {
    packed: Vec<LaneCodes<'k>>,
    /// The factors of each part; those of the accumulator's registers 0 and 1 first.
    pub(crate) factors: Vec<Factors<'k>>,
}

impl<'k> CodeTile<'k> {
    /// A tile of a strip, and its factors run by run.
    pub fn new(packed: LaneCodes<'k>, factors: Vec<Factors<'k>>) -> CodeTile<'k> {
        CodeTile { packed: vec![packed], factors }
    }

    /// Appends the tile of the next strip.
    #[must_use]
    pub fn beside(&self, next: &CodeTile<'k>) -> CodeTile<'k> {
        let factors = self.factors.iter().zip(&next.factors).flat_map(|(&one, &other)| [one, other]).collect();
        CodeTile { packed: self.packed.iter().chain(&next.packed).copied().collect(), factors }
    }

    /// Replaces each word by what `word` gives, always in one order.
    #[must_use]
    pub fn map(&self, word: &mut dyn FnMut(Val<'k, u32>) -> Val<'k, u32>) -> CodeTile<'k> {
        let mut of = |packed: &LaneCodes<'k>| {
            let codes = packed.codes.map(&mut *word);
            let blocks = packed.blocks.map(&mut *word);
            LaneCodes { codes, blocks, ..*packed }
        };
        let packed = self.packed.iter().map(&mut of).collect();
        CodeTile { packed, factors: self.factors.iter().map(|factors| factors.map(word)).collect() }
    }

    /// The numbers that an instruction takes together.
    pub(crate) fn numbers(&self, code: Code, side: WeightSide, meet: u32) -> Vec<[Val<'k, u32>; 4]> {
        let words = convert::words(code);
        let step = |packed: &LaneCodes<'k>, step: u32| {
            let numbers = convert::numbers(code, &packed.codes[step as usize * words..][..words]);
            packed.blocks.map_or(numbers, |blocks| convert::of_block(numbers, blocks, step))
        };
        let steps = meet * side.steps()..(meet + 1) * side.steps();
        steps.flat_map(|at| self.packed.iter().map(move |packed| step(packed, at))).collect()
    }
}
