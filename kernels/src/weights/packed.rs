//! Packed weights: the order in which products read them, as layouts, and the packer that walks
//! these.
//!
//! | word | what it is |
//! |---|---|
//! | [`WeightTile`] | eight rows by 32 of k: what a warp reads by one load of 16 bytes a lane, two matrix instructions' worth |
//! | [`Strip`] | eight rows with all of their k: tile after tile |
//! | stage | consecutive tiles of a strip: what a ring brings at once |
//!
//! Weights are the n8 operand of `m16n8k16`. A lane holds eight consecutive elements of its row
//! ([`Octets`](super::Octets)), where the instruction would have them two by two: a permutation of
//! k that both operands share, which changes no sum. So the lanes' elements of a tile are 512
//! contiguous bytes in the order of the lanes, which a warp reads without bank conflicts.

use core::ops::Range;
use half::bf16;
use thiserror::Error;
use tilewright_codegen::build::Val;
use tilewright_layout::Layout;
use tilewright_layout::typed::StaticLayout;

use super::codes::{Codes, common_divisor};
use super::weight_tile::{self, BYTES, DEPTH, ELEMENTS, LANES, WeightTile, leaf, modes};
use crate::tile::{Index, place};

/// Bytes of the scales of a tile's blocks.
const OF_BLOCKS: u32 = 64;
/// Bytes of a line of L2.
const LINE: u32 = 128;
/// Largest k.
const MOST_K: u32 = 1 << 20;

/// Eight rows of weights: how they are cut into stages, and each stage dealt to the warps that
/// multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Strip {
    k: u32,
    warps: u32,
    stages: u32,
    stage_tiles: u32,
    codes: Option<Codes>,
}

/// Rows that cannot be streamed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StripError {
    /// No elements, or more than an MMA's exact sum of positions can count.
    #[error("weight rows of {k} elements cannot be streamed: from 1 to 2^20 are supported")]
    Length {
        /// Elements of a row.
        k: u32,
    },
    /// The ring's stage does not hold one tile for each warp.
    #[error("a stage of {stage_bytes} bytes is too small for {warps} warps: each needs {BYTES} bytes")]
    Stage {
        /// Bytes of a stage of the ring.
        stage_bytes: u32,
        /// Warps that multiply.
        warps: u32,
    },
    /// Groups that are not a whole number of half steps.
    #[error("groups of {group} weights cannot be streamed: multiples of 16 are supported")]
    Group {
        /// Weights of a group.
        group: u32,
    },
    /// Groups of half steps in rows that end within a step.
    #[error("rows of {k} weights in groups of {group} cannot be streamed: rows that are multiples of 32 are supported")]
    Halves {
        /// Elements of a row.
        k: u32,
        /// Weights of a group.
        group: u32,
    },
}

impl Strip {
    /// Rows of a strip: the n of the matrix instruction.
    pub const ROWS: u32 = weight_tile::ROWS;

    /// A strip of rows of `k` elements in the fewest stages of at most `stage_bytes` bytes, each of
    /// which has as many tiles for every one of `warps` warps.
    ///
    /// # Errors
    /// If a row is empty or longer than 2^20, or a stage does not hold 512 bytes per warp.
    ///
    /// ```
    /// use tilewright_kernels::weights::Strip;
    /// let strip = Strip::new(8192, 8, 16384)?;
    /// assert_eq!((strip.stages(), strip.stage_bytes(), strip.padded_k()), (8, 16384, 8192));
    /// # Ok::<(), tilewright_kernels::weights::StripError>(())
    /// ```
    pub fn new(k: u32, warps: u32, stage_bytes: u32) -> Result<Strip, StripError> {
        let most = stage_bytes / BYTES / warps.max(1);
        if most == 0 || warps == 0 {
            return Err(StripError::Stage { stage_bytes, warps });
        }
        Strip::cut(k, warps, warps, most)
    }

    /// The longest strip of one stage of at most `stage_bytes` bytes, which has as many tiles for
    /// every one of `warps` warps.
    pub(crate) fn of_one_stage(warps: u32, stage_bytes: u32) -> Strip {
        let stage_tiles = stage_bytes / BYTES / warps * warps;
        Strip { k: stage_tiles * DEPTH, warps, stages: 1, stage_tiles, codes: None }
    }

    /// A strip in the fewest stages of at most `most` times `together` tiles, 1 at least.
    pub(crate) fn cut(k: u32, warps: u32, together: u32, most: u32) -> Result<Strip, StripError> {
        if !(1..=MOST_K).contains(&k) {
            return Err(StripError::Length { k });
        }
        let all = k.div_ceil(DEPTH).div_ceil(together);
        let stages = all.div_ceil(most);
        Ok(Strip { k, warps, stages, stage_tiles: all.div_ceil(stages) * together, codes: None })
    }

    /// A strip of rows of `k` codes, in stages that have as many tiles for every one of `warps`
    /// warps. The codes of a stage have at most `stage_bytes` bytes, and at least half of that
    /// where the row has; its factors follow. Of these numbers of stages it is the one with the
    /// least padding, where a stage counts as half a round of tiles.
    ///
    /// # Errors
    /// As [`Strip::new`]; if a group is not a multiple of 16, or not of 32 and a row ends within a
    /// step.
    pub fn of_codes(k: u32, warps: u32, stage_bytes: u32, codes: Codes) -> Result<Strip, StripError> {
        let most = stage_bytes / BYTES / warps.max(1);
        if most == 0 || warps == 0 {
            return Err(StripError::Stage { stage_bytes, warps });
        }
        if !(1..=MOST_K).contains(&k) {
            return Err(StripError::Length { k });
        }
        match codes.group {
            Some(group) if group == 0 || !group.is_multiple_of(DEPTH / 2) => return Err(StripError::Group { group }),
            Some(group) if codes.is_halved() && !k.is_multiple_of(DEPTH) => {
                return Err(StripError::Halves { k, group });
            }
            Some(_) | None => {}
        }
        let rounds = k.div_ceil(codes.depth()).div_ceil(warps);
        let least = rounds.div_ceil(most);
        let cost = |stages: &u32| 2 * rounds.div_ceil(*stages) * stages + stages;
        let stages = (least..=rounds.div_ceil(most.div_ceil(2)).max(least)).min_by_key(cost).unwrap_or(least);
        let stage_tiles = rounds.div_ceil(stages) * warps;
        let codes = Some(codes);
        Ok(Strip { k, warps, stages, stage_tiles, codes })
    }

    /// The consecutive stages of the strip from `first` on, as strips of shorter rows.
    ///
    /// ```
    /// use tilewright_kernels::weights::Strip;
    /// let strip = Strip::new(1000, 8, 4096)?;
    /// assert_eq!((strip.stages(), strip.stage_k()), (4, 256));
    /// let [first, last] = [strip.part(0, 2), strip.part(2, 2)];
    /// assert_eq!((first.k(), last.k(), last.stages()), (512, 488, 2));
    /// # Ok::<(), tilewright_kernels::weights::StripError>(())
    /// ```
    #[must_use]
    pub fn part(self, first: u32, stages: u32) -> Strip {
        let [from, to] = [first, first + stages].map(|stage| (stage * self.stage_k()).min(self.k));
        Strip { k: to - from, stages, ..self }
    }

    /// Strips of as many rows of such weights one after the other, as one strip of longer rows: those
    /// of several experts that are multiplied together. Zeros follow on the elements of each.
    ///
    /// ```
    /// use tilewright_kernels::weights::Strip;
    /// let strip = Strip::new(768, 8, 16384)?;
    /// let both = strip.repeated(2);
    /// assert_eq!((both.k(), both.stages(), both.stage_bytes()), (1536, 2, strip.stage_bytes()));
    /// # Ok::<(), tilewright_kernels::weights::StripError>(())
    /// ```
    #[must_use]
    pub fn repeated(self, count: u32) -> Strip {
        Strip { k: self.padded_k() * count, stages: self.stages * count, ..self }
    }

    /// The format of its codes; `None` for bf16 weights.
    pub fn codes(self) -> Option<Codes> {
        self.codes
    }

    /// k of a tile.
    pub fn depth(self) -> u32 {
        self.codes.map_or(DEPTH, Codes::depth)
    }

    /// Steps of 32 of k in a tile: two matrix instructions each.
    pub fn steps(self) -> u32 {
        self.depth() / DEPTH
    }

    /// Weights of a row that share their factors in a stage: what divides the group and the stage,
    /// in whole tiles where it is more than one.
    pub fn span(self) -> u32 {
        let stage = self.stage_k();
        let depth = self.depth();
        let span = match self.codes.and_then(|codes| codes.group) {
            Some(group) => common_divisor(group, stage),
            None => stage,
        };
        if span.is_multiple_of(depth) { span } else { common_divisor(span, depth) }
    }

    /// The offset of a stage's scales, in bytes: `[spans, 8]` of their type.
    pub(crate) fn scales_at(self) -> u32 {
        self.tile_bytes() + self.block_bytes()
    }

    /// Bytes of the scales of a stage's blocks, which follow its tiles.
    fn block_bytes(self) -> u32 {
        if self.has_blocks() { self.stage_tiles * OF_BLOCKS } else { 0 }
    }

    /// Whether blocks of sixteen codes have a scale of `e4m3`.
    pub fn has_blocks(self) -> bool {
        self.codes.is_some_and(|codes| codes.blocks)
    }

    /// The scales of a stage's blocks, (row, block) to byte.
    pub(crate) fn blocks(self) -> Layout {
        modes(&[leaf(Self::ROWS, 8), modes(&[leaf(2, 4), leaf(4, 1), leaf(self.stage_tiles, OF_BLOCKS)])])
    }

    /// The scales of blocks as lanes read them: (lane, tile) to the word of its four blocks.
    pub(super) fn block_words(self) -> Layout {
        modes(&[modes(&[leaf(2, 0), leaf(16, 1)]), leaf(self.stage_tiles, OF_BLOCKS / 4)])
    }

    /// The offset of its zeros, in bytes: `[spans, 8]` of bf16.
    pub(crate) fn zeros_at(self) -> u32 {
        let scale = self.codes.map_or(0, |codes| codes.scale.bytes());
        self.scales_at() + self.stage_k() / self.span() * Strip::ROWS * scale
    }

    /// Elements of a row.
    pub fn k(self) -> u32 {
        self.k
    }

    /// Elements of a row with the zeros after it.
    pub fn padded_k(self) -> u32 {
        self.stages * self.stage_k()
    }

    /// Elements of a row in one stage.
    pub fn stage_k(self) -> u32 {
        self.stage_tiles * self.depth()
    }

    /// Tiles that hold a row, without those that the last stage adds.
    pub fn tiles(self) -> u32 {
        self.k.div_ceil(self.depth())
    }

    /// Stages of the strip.
    pub fn stages(self) -> u32 {
        self.stages
    }

    /// Tiles of a stage.
    pub fn stage_tiles(self) -> u32 {
        self.stage_tiles
    }

    /// Tiles of a stage that a warp multiplies, at most.
    pub fn per_warp(self) -> u32 {
        self.stage_tiles.div_ceil(self.warps)
    }

    /// Warps that share the tiles.
    pub fn warps(self) -> u32 {
        self.warps
    }

    /// Bytes of the tiles of a stage.
    pub fn tile_bytes(self) -> u32 {
        self.stage_tiles * BYTES
    }

    /// Bytes of one of its stages: tiles and, of quantised weights, factors, to a whole line of L2.
    pub fn stage_bytes(self) -> u32 {
        match self.codes {
            None => self.tile_bytes(),
            Some(codes) => {
                let factors = self.stage_k() / self.span() * codes.factor_bytes();
                (self.scales_at() + factors).next_multiple_of(LINE)
            }
        }
    }

    /// Bytes of the strip.
    pub fn bytes(self) -> u32 {
        self.stages * self.stage_bytes()
    }

    /// Tile number `round` of a warp's own. Tiles are distributed to the warps in turn, whatever
    /// the stages are, so that the order of sums does not depend on them.
    #[track_caller]
    pub fn tile<'k>(self, warp: Val<'k, u32>, round: Val<'k, u32>) -> Val<'k, u32> {
        warp + round * self.warps
    }

    /// Maps (row, k) of a number of strips to the place of the element, in elements: strip after
    /// strip, tile after tile. Of quantised weights that is where codes lie, were there no factors
    /// after each stage.
    ///
    /// ```
    /// use tilewright_kernels::weights::Strip;
    /// let layout = Strip::new(64, 1, 1024)?.layout(3);
    /// assert_eq!([layout.mode(0)?.to_string(), layout.mode(1)?.to_string()], ["(8,3):(32,512)", "(32,2):(1,256)"]);
    /// assert!(layout.is_bijective());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn layout(self, strips: u32) -> Layout {
        self.packed(strips, self.stages * self.stage_tiles)
    }

    /// A stage, (row, k) to element.
    pub fn stage_layout(self) -> Layout {
        self.packed(1, self.stage_tiles)
    }

    /// The layout of a number of strips of a number of tiles: (row, k) to element.
    pub(crate) fn packed(self, strips: u32, tiles: u32) -> Layout {
        let tile = self.codes.map_or(WeightTile::LAYOUT, Codes::tile);
        Layout::constant(tile.blocked_product(&modes(&[leaf(strips, tiles), leaf(tiles, 1)])))
    }

    /// A stage as the lanes read it: (lane, tile) to the first of its 16 bytes, counted in elements
    /// of bf16.
    pub(super) fn stage_lanes(self) -> Layout {
        modes(&[LANES, leaf(self.stage_tiles, ELEMENTS)])
    }

    /// The place of an element of a row in the strip, in elements.
    #[track_caller]
    pub fn element<'k>(self, row: Val<'k, u32>, column: Val<'k, u32>) -> Val<'k, u32> {
        let layout = self.layout(1);
        let [rows, columns] = [0, 1].map(|mode| Layout::constant(layout.mode(mode)));
        (place(&rows, Index::below(row, Self::ROWS)) + place(&columns, column.into())).get(row.builder())
    }

    /// The columns of one of its stages; of the last fewer than others, where rows are padded.
    pub fn columns(self, stage: u32) -> Range<usize> {
        let each = self.stage_k();
        (stage * each) as usize..((stage + 1) * each).min(self.k) as usize
    }

    /// A packer of its rows of bf16.
    pub fn packer(self) -> Packer {
        let layout = self.stage_layout();
        let [rows, columns] = [0, 1].map(|mode| Layout::constant(layout.mode(mode)));
        let run = columns.contiguous_run() as usize;
        let starts = |mode: Layout, step: usize| {
            (0..mode.size()).step_by(step).map(|at| mode.at(at) as usize).collect::<Vec<_>>()
        };
        Packer { strip: self, run, rows: starts(rows, 1), columns: starts(columns, run) }
    }
}

/// Packs rows into strips and stages, run by run as the layout of a stage has them: elements of a
/// row that lie one after the other. Where a run begins is the sum of what its row adds and what
/// its first k adds.
#[derive(Clone, Debug)]
pub struct Packer {
    strip: Strip,
    run: usize,
    rows: Vec<usize>,
    columns: Vec<usize>,
}

impl Packer {
    /// Packs eight rows of `k` elements; a missing row, and what is beyond a row, become zeros.
    ///
    /// # Panics
    /// If a row or the strip's memory has another length.
    pub fn pack(&self, rows: &[Option<&[bf16]>; 8], packed: &mut [bf16]) {
        let strip = self.strip;
        assert_eq!(packed.len() as u32 * 2, strip.bytes(), "a strip's memory");
        assert!(rows.iter().flatten().all(|row| row.len() as u32 == strip.k), "a strip's rows");
        for (stage, packed) in (0..).zip(packed.chunks_exact_mut(strip.stage_bytes() as usize / 2)) {
            self.pack_stage(&rows.map(|row| row.map(|row| &row[strip.columns(stage)])), packed);
        }
    }

    /// Packs a stage's columns of eight rows; a missing row, and what is beyond a row, become
    /// zeros.
    ///
    /// # Panics
    /// If there are more columns than the stage has, or its memory has another length.
    pub fn pack_stage(&self, rows: &[Option<&[bf16]>; 8], packed: &mut [bf16]) {
        assert_eq!(packed.len() as u32 * 2, self.strip.stage_bytes(), "a stage's memory");
        assert!(rows.iter().flatten().all(|row| row.len() as u32 <= self.strip.stage_k()), "a stage's columns");
        packed.fill(bf16::ZERO);
        for (start, row) in self.rows.iter().zip(rows) {
            for (at, from) in self.columns.iter().zip(row.unwrap_or_default().chunks(self.run)) {
                packed[start + at..][..from.len()].copy_from_slice(from);
            }
        }
    }
}

/// The matrix `w[n, k]`, row-major, packed as [`Strip::layout`] says. Rows and columns that are
/// added hold zeros.
///
/// ```
/// use tilewright_kernels::weights::{Strip, pack};
/// let w: Vec<half::bf16> = (0..16 * 64).map(|i| half::bf16::from_bits(i)).collect();
/// let strip = Strip::new(64, 1, 1024)?;
/// let packed = pack(&w, strip);
/// let number = strip.layout(2).right_inverse();
/// // The inverse of the layout: rows come fastest.
/// let unpacked = |place: usize| w[number.at(place as i64) as usize % 16 * 64 + number.at(place as i64) as usize / 16];
/// assert!((0..1024).all(|place| packed[place] == unpacked(place)));
/// # Ok::<(), tilewright_kernels::weights::StripError>(())
/// ```
pub fn pack(w: &[bf16], strip: Strip) -> Vec<bf16> {
    let (packer, rows): (_, Vec<&[bf16]>) = (strip.packer(), w.chunks(strip.k as usize).collect());
    let of_strip = |rows: &[&[bf16]]| {
        let mut packed = vec![bf16::ZERO; strip.bytes() as usize / 2];
        packer.pack(&core::array::from_fn(|row| rows.get(row).copied()), &mut packed);
        packed
    };
    rows.chunks(8).flat_map(of_strip).collect()
}
