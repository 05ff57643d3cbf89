//! Register prefetch of weights: stages that consumer warps take out of the ring while they wait
//! for activations, so that the ring has room for what follows.
//!
//! Stages are taken before it is known what will be done with them, so a stage of codes is taken by
//! numbers that its task brings ([`PrefetchForm`]): of each tile one word of scales and one of zeros.

use tilewright_codegen::build::{Ptr, Shared, Val, Var};

use super::codes::Codes;
use super::factors::{Factors, WeightSide};
use super::lanes::{CodeTile, LaneCodes, WarpTile};
use super::packed::Strip;
use crate::ring::Stages;
use crate::tile::Index;
use crate::warps::ConsumerWarps;

/// The data that is prefetched into registers in addition to the tiles of a stage of codes, as a
/// task's record holds it; 0 for bf16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchForm(pub u32);

impl PrefetchForm {
    const SCALES: u32 = 1;
    const ZEROS: u32 = 2;
    /// The first bit of the shift that maps a tile's number to its group's.
    const SHIFT: u32 = 3;
    /// Bits of a form.
    pub const BITS: u32 = 8;

    /// The form of a strip's stages; `None` if they cannot be prefetched: if a tile has several
    /// groups, scales are of f32, or tiles of a group are not a power of two.
    ///
    /// ```
    /// use tilewright_kernels::weights::{Codes, PrefetchForm, Strip};
    /// use tilewright_kernels::{quant::Code, tile::Float};
    /// let strip = |group| {
    ///     let codes = Codes { code: Code::U4, group, zeros: false, scale: Float::Bf16, blocks: false };
    ///     Strip::of_codes(4096, 8, 16384, codes)
    /// };
    /// assert!(PrefetchForm::of(strip(Some(128))?).is_some() && PrefetchForm::of(strip(None)?).is_some());
    /// assert_eq!(PrefetchForm::of(strip(Some(64))?), None);
    /// # Ok::<(), tilewright_kernels::weights::StripError>(())
    /// ```
    pub fn of(strip: Strip) -> Option<PrefetchForm> {
        let Some(codes) = strip.codes() else { return Some(PrefetchForm(0)) };
        let span = strip.span();
        let depth = strip.depth();
        let shift = match span / depth {
            _ if span == strip.stage_k() => 31,
            tiles if tiles.is_power_of_two() => tiles.trailing_zeros(),
            _ => return None,
        };
        let zeros = if codes.zeros { PrefetchForm::ZEROS } else { 0 };
        (codes.scale.bytes() == 2).then_some(PrefetchForm(PrefetchForm::SCALES | zeros | shift << PrefetchForm::SHIFT))
    }

    /// The form that has room for this one and another.
    #[must_use]
    pub fn or(self, other: PrefetchForm) -> PrefetchForm {
        PrefetchForm((self.0 | other.0) & (PrefetchForm::SCALES | PrefetchForm::ZEROS))
    }
}

/// A stage of the ring in the registers of the consumers: of each tile that a warp multiplies, a
/// lane's 16 bytes.
pub struct PrefetchedStage<'k> {
    consumers: ConsumerWarps<'k>,
    widest: Strip,
    tiles: Vec<[Var<'k, u32>; 4]>,
    /// For each tile, the word that has the scale of this lane's row, and that of the zero.
    factors: [Option<Vec<Var<'k, u32>>>; 2],
}

impl<'k> PrefetchedStage<'k> {
    /// Registers, set to zero, for a stage of at most `stage_bytes` bytes of tiles, of any of these
    /// forms.
    pub fn new(consumers: ConsumerWarps<'k>, stage_bytes: u32, forms: PrefetchForm) -> PrefetchedStage<'k> {
        let widest = Strip::of_one_stage(consumers.warps, stage_bytes);
        let tile = |_| std::array::from_fn(|_| consumers.k.var(0u32));
        let word =
            |bit: u32| (forms.0 & bit > 0).then(|| (0..widest.per_warp()).map(|_| consumers.k.var(0u32)).collect());
        let tiles = (0..widest.per_warp()).map(tile).collect();
        PrefetchedStage { consumers, widest, tiles, factors: [PrefetchForm::SCALES, PrefetchForm::ZEROS].map(word) }
    }

    /// Takes the ring's next stage, which has `bytes` bytes in the form `form`, and releases it; by
    /// whole warps. The form is ignored if no stages of codes are prefetched.
    pub fn take(&self, ring: &dyn Stages<'k>, bytes: Val<'k, u32>, form: Val<'k, u32>) {
        let k = self.consumers.k;
        let round = self.widest.stage_bytes() / self.widest.per_warp().max(1);
        let stage = ring.wait();
        // Factors are fewer bytes than a round of tiles.
        let tiles = if self.factors[0].is_some() { bytes / round * round } else { bytes };
        for ((number, tile), words) in (0u32..).zip(WarpTile::of_whole_rounds(k, self.widest)).zip(&self.tiles) {
            k.when(tiles.gt(number * round), || {
                let loaded = tile.load(self.widest, stage.base().cast()).codes();
                words.iter().zip(loaded).for_each(|(word, loaded)| word.set(loaded));
                self.take_factors(number, tile.tile, stage.base().cast(), tiles, form);
            });
        }
        stage.release();
    }

    fn take_factors(
        &self,
        number: u32,
        tile: Index<'k>,
        stage: Ptr<'k, Shared, u8>,
        tiles: Val<'k, u32>,
        form: Val<'k, u32>,
    ) {
        let k = self.consumers.k;
        let shift = form >> PrefetchForm::SHIFT;
        let row = Strip::ROWS * 2;
        let factors = stage.at(tiles);
        let group = || (tile.get(k) >> shift) * row;
        if let [Some(scales), _] = &self.factors {
            k.when((form & PrefetchForm::SCALES).ne(0), || {
                let mine = factors.at(group() + k.lane() / 8 * 4).cast::<u32>();
                scales[number as usize].set(mine.load());
            });
        }
        if let [_, Some(zeros)] = &self.factors {
            k.when((form & PrefetchForm::ZEROS).ne(0), || {
                let groups = ((tiles / TILE) >> shift).max(1);
                let mine = factors.at(groups * row + group() + k.lane() / 8 * 4).cast::<u32>();
                zeros[number as usize].set(mine.load());
            });
        }
    }

    /// The weights of a strip's stage in this lane, for its warp's tiles.
    pub(crate) fn tiles(&self, strip: Strip) -> impl Iterator<Item = LaneCodes<'k>> {
        self.tiles.iter().take(strip.per_warp() as usize).map(|tile| LaneCodes::of(tile.map(Var::get)))
    }

    /// The tiles of a strip of codes, with their factors.
    pub(crate) fn code_tiles(
        &self,
        strip: Strip,
        codes: Codes,
        side: WeightSide,
    ) -> impl Iterator<Item = CodeTile<'k>> {
        let word = move |which: usize, number: usize| self.factors[which].as_ref().map(|words| words[number].get());
        let factors = move |number: usize| {
            let zeros = word(1, number).filter(|_| codes.zeros);
            word(0, number).map(|scales| Factors::of_words(codes, side, scales, zeros)).into_iter().collect()
        };
        self.tiles(strip).enumerate().map(move |(number, tile)| CodeTile::new(tile, factors(number)))
    }
}

/// Bytes of a tile.
const TILE: u32 = 512;
