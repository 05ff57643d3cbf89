//! A unit: eight weight rows as they pass through the ring.
//!
//! The unit is the n8 operand of `m16n8k16`. A lane of the warp holds, of row `lane / 4`, the elements
//! `8·(lane mod 4) ..+8` of each run of 32: two MMAs' worth, 16 bytes. (The MMA would have them two by two; a permutation
//! of k that both operands share changes no sum.) So a run of 32 of all eight rows, a *chunk*, is 512 contiguous bytes in
//! the order of the lanes, which a warp reads without bank conflicts, and a unit is its chunks one after the other:
//! the layout `(8, (32, chunks)) : (32, (1, 256))` of elements.

use std::ops::Range;

use half::bf16;
use thiserror::Error;
use tilewright_codegen::build::Val;
use tilewright_layout::Layout;

/// Elements of a row that one chunk holds.
const RUN: u32 = 32;
/// Bytes of a chunk.
const CHUNK_BYTES: u32 = 512;

/// How a unit of rows of a given length is cut into stages of the ring, and each stage dealt to the team's warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    k: u32,
    warps: u32,
    stages: u32,
    per_warp: u32,
}

/// Rows that cannot be streamed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// No elements, or more than an MMA's exact sum of positions can count.
    #[error("weight rows of {k} elements cannot be streamed: from 1 to 2^20 are supported")]
    Length {
        /// Elements of a row.
        k: u32,
    },
    /// The ring's stage does not hold one chunk for each warp.
    #[error("a stage of {stage_bytes} bytes is too small for {warps} warps: each needs {CHUNK_BYTES} bytes")]
    Stage {
        /// Bytes of a stage of the ring.
        stage_bytes: u32,
        /// Warps of the team.
        warps: u32,
    },
}

impl Unit {
    /// Rows of a unit.
    pub const ROWS: u32 = 8;

    /// A unit of rows of `k` elements for `warps` warps, in the fewest stages of at most `stage_bytes` bytes.
    ///
    /// # Errors
    /// If a row is empty or longer than 2^20, or a stage does not hold 512 bytes per warp.
    ///
    /// ```
    /// use tilewright_kernels::decode::Unit;
    /// let unit = Unit::new(8192, 8, 16384)?;
    /// assert_eq!((unit.stages(), unit.stage_bytes(), unit.padded_k()), (8, 16384, 8192));
    /// # Ok::<(), tilewright_kernels::decode::UnitError>(())
    /// ```
    pub fn new(k: u32, warps: u32, stage_bytes: u32) -> Result<Unit, UnitError> {
        if k == 0 || k > 1 << 20 {
            return Err(UnitError::Length { k });
        }
        let most = stage_bytes / CHUNK_BYTES / warps.max(1);
        if most == 0 || warps == 0 {
            return Err(UnitError::Stage { stage_bytes, warps });
        }
        let rounds = k.div_ceil(RUN).div_ceil(warps);
        let stages = rounds.div_ceil(most);
        Ok(Unit { k, warps, stages, per_warp: rounds.div_ceil(stages) })
    }

    /// Elements of a row.
    pub fn k(self) -> u32 {
        self.k
    }

    /// Elements of a row with the zeros behind it.
    pub fn padded_k(self) -> u32 {
        self.chunks() * RUN
    }

    /// Stages of the ring that the unit takes.
    pub fn stages(self) -> u32 {
        self.stages
    }

    /// Chunks of a stage that each warp multiplies.
    pub fn per_warp(self) -> u32 {
        self.per_warp
    }

    /// Bytes of one of its stages.
    pub fn stage_bytes(self) -> u32 {
        self.warps * self.per_warp * CHUNK_BYTES
    }

    /// Bytes of the unit.
    pub fn bytes(self) -> u32 {
        self.stages * self.stage_bytes()
    }

    /// Chunk number `round` of a warp's own: chunks are dealt to the warps in turn, whatever the stages are, so that who adds up
    /// what does not depend on them.
    ///
    /// ```
    /// # use tilewright_codegen::{build::{block, record}, ir::Arch};
    /// use tilewright_kernels::decode::Unit;
    /// # record("sample", Arch::Sm80, block(32), |k| {
    /// let [small, large] = [4096, 16384].map(|stage| Unit::new(8192, 8, stage).unwrap());
    /// let of = |unit: Unit| unit.chunk(k.lit(3), k.lit(5)).operand().as_const().unwrap().bits;
    /// assert_eq!([of(small), of(large)], [43, 43]);
    /// # });
    /// ```
    #[track_caller]
    pub fn chunk<'k>(self, warp: Val<'k, u32>, round: Val<'k, u32>) -> Val<'k, u32> {
        warp + round * self.warps
    }

    fn chunks(self) -> u32 {
        self.stages * self.warps * self.per_warp
    }

    /// Where element (row, column) lies, in elements.
    ///
    /// ```
    /// use tilewright_kernels::decode::Unit;
    /// let layout = Unit::new(64, 1, 1024)?.layout();
    /// assert_eq!(layout.to_string(), "(8,(32,2)):(32,(1,256))");
    /// # Ok::<(), tilewright_kernels::decode::UnitError>(())
    /// ```
    pub fn layout(self) -> Layout {
        let (run, chunk) = (i64::from(RUN), i64::from(8 * RUN));
        let leaf = |extent, stride| Layout::constant(Layout::leaf(extent, stride));
        let columns = Layout::constant(Layout::tuple(&[leaf(run, 1), leaf(self.chunks().into(), chunk)]));
        Layout::constant(Layout::tuple(&[leaf(8, run), columns]))
    }

    /// Where the element of a row lies in the unit, in elements, by the layout.
    pub fn offset(self, row: u32, column: u32) -> u32 {
        row * RUN + column % RUN + column / RUN * 8 * RUN
    }

    /// Writes eight rows of `k` elements into a unit's place; a missing row, and what is behind a row, become zeros.
    ///
    /// # Panics
    /// If a row or the place has another length.
    pub fn pack(self, rows: &[Option<&[bf16]>; 8], place: &mut [bf16]) {
        assert_eq!(place.len() as u32 * 2, self.bytes(), "a unit's place");
        assert!(rows.iter().flatten().all(|row| row.len() as u32 == self.k), "a unit's row");
        for (stage, place) in (0..).zip(place.chunks_exact_mut(self.stage_bytes() as usize / 2)) {
            let columns = self.columns(stage);
            self.pack_stage(&rows.map(|row| row.map(|row| &row[columns.clone()])), place);
        }
    }

    /// The columns of one of its stages; of the last fewer than others, where rows are padded.
    pub fn columns(self, stage: u32) -> Range<usize> {
        let each = self.padded_k() / self.stages;
        (stage * each) as usize..((stage + 1) * each).min(self.k) as usize
    }

    /// Writes a stage's columns of eight rows into its place; a missing row, and what is behind a row, become zeros.
    ///
    /// # Panics
    /// If there are more columns than the stage has, or the place has another length.
    pub fn pack_stage(self, rows: &[Option<&[bf16]>; 8], place: &mut [bf16]) {
        assert_eq!(place.len() as u32 * 2, self.stage_bytes(), "a stage's place");
        place.fill(bf16::ZERO);
        for (at, row) in rows.iter().enumerate() {
            let Some(row) = row else { continue };
            for (run, elements) in row.chunks(RUN as usize).enumerate() {
                let start = self.offset(at as u32, run as u32 * RUN) as usize;
                place[start..start + elements.len()].copy_from_slice(elements);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn offsets_are_the_layout_and_packing_has_an_inverse(k in 1u32..300, warps in 1u32..9, kib in 4u32..17, seed: u32) {
            let unit = Unit::new(k, warps, kib * 1024).unwrap();
            let layout = unit.layout();
            let value = |row: u32, column: u32| bf16::from_bits((row * 7919 + column * 31 + seed) as u16);
            let rows: Vec<Vec<bf16>> = (0..8).map(|r| (0..k).map(|c| value(r, c)).collect()).collect();
            let given: [Option<&[bf16]>; 8] = std::array::from_fn(|r| (r != 5).then_some(rows[r].as_slice()));
            let mut place = vec![bf16::ONE; unit.bytes() as usize / 2];
            unit.pack(&given, &mut place);
            prop_assert!(unit.stage_bytes() <= kib * 1024 && unit.padded_k() >= k);
            for row in 0..8 {
                for column in 0..unit.padded_k() {
                    let at = layout.at(i64::from(row + 8 * column));
                    prop_assert_eq!(at as u32, unit.offset(row, column));
                    let expected = if row == 5 || column >= k { bf16::ZERO } else { value(row, column) };
                    prop_assert_eq!(place[at as usize].to_bits(), expected.to_bits());
                }
            }
        }
    }
}
