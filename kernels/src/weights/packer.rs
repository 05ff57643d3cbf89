//! Quantised matrices into the stages of strips, run by run as the layout of a stage has them, and
//! back.

use tilewright_layout::Layout;

use super::Strip;
use super::codes::{BLOCK, Codes, offset};
use crate::quant::{Code, QuantMatrix};
use crate::tile::Float;

/// A row of a quantised matrix.
pub type QuantRow<'m> = (&'m QuantMatrix, usize);

/// Packs rows of codes into stages, with their factors. Codes of a lane's word are a run or two;
/// where they lie in it is the same for each, and where a word lies is the sum of what its row adds
/// and what its first k adds.
///
/// ```
/// use tilewright_kernels::weights::{CodePacker, Codes, Strip};
/// use tilewright_kernels::quant::{Code, Rounding, nearest};
/// let rounding = Rounding { code: Code::U4, zero: 8, group: 32, store: |scale| scale };
/// let matrix = nearest(&vec![1.0; 8 * 64], 8, 64, &rounding)?;
/// let strip = Strip::of_codes(64, 1, 512, Codes::of(&matrix).expect("a device has it"))?;
/// let packer = CodePacker::new(strip).expect("codes");
/// let mut memory = vec![0u8; strip.bytes() as usize];
/// packer.pack(&std::array::from_fn(|row| Some((&matrix, row))), &mut memory);
/// assert_eq!(packer.unpack(&memory)[3][..64], [matrix.bits(3, 0); 64]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct CodePacker {
    strip: Strip,
    codes: Codes,
    /// For each element of a run, the bit at which it begins.
    within: Vec<u32>,
    /// The word with which each row begins.
    rows: Vec<usize>,
    /// The word offset that every run adds, and the bit at which the run begins in its word.
    runs: Vec<(usize, u32)>,
}

impl CodePacker {
    /// A packer of the rows of a strip; `None` where the strip has no codes.
    pub fn new(strip: Strip) -> Option<CodePacker> {
        let codes = strip.codes()?;
        let layout = strip.stage_layout();
        let bits = codes.code.bits();
        let [rows, columns] = [0, 1].map(|mode| Layout::constant(layout.mode(mode)));
        let word = 32 / bits;
        // Where halves of a step are groups, a word has four of each.
        let run = if codes.is_halved() { word.min(4) } else { word };
        let within = (0..run as i64).map(|at| columns.at(at) as u32 * bits as u32).collect();
        let rows = (0..rows.size()).map(|row| rows.at(row) as usize / word).collect();
        let place = |at: i64| (columns.at(at) as usize / word, (columns.at(at) as usize % word * bits) as u32);
        let runs = (0..columns.size()).step_by(run).map(place).collect();
        Some(CodePacker { strip, codes, within, rows, runs })
    }

    /// Packs eight rows. A missing row, and what is beyond a row, has scales of 0.
    ///
    /// # Panics
    /// If the memory is not a strip's, or a row has another length or form than the strip.
    pub fn pack(&self, rows: &[Option<QuantRow>; 8], packed: &mut [u8]) {
        assert_eq!(packed.len() as u32, self.strip.bytes(), "a strip's memory");
        for (stage, memory) in (0..).zip(packed.chunks_exact_mut(self.strip.stage_bytes() as usize)) {
            self.pack_stage(stage, rows, memory);
        }
    }

    /// Packs the columns of a stage of eight rows. A missing row, and what is beyond a row, has
    /// scales of 0.
    ///
    /// # Panics
    /// If the memory is not a stage's, or a row has another length or form than the strip.
    pub fn pack_stage(&self, stage: u32, rows: &[Option<QuantRow>; 8], memory: &mut [u8]) {
        assert_eq!(memory.len() as u32, self.strip.stage_bytes(), "a stage's memory");
        memory.fill(0);
        for (row, from) in rows.iter().enumerate() {
            let Some((matrix, number)) = from else { continue };
            assert_eq!(matrix.k() as u32, self.strip.k(), "a strip's row");
            self.codes(stage, matrix, *number, self.rows[row], memory);
            self.factors(stage, matrix, *number, row, memory);
            if self.codes.blocks {
                self.blocks(stage, matrix, *number, row, memory);
            }
        }
    }

    fn codes(&self, stage: u32, matrix: &QuantMatrix, number: usize, first: usize, memory: &mut [u8]) {
        let columns = self.strip.columns(stage);
        let row = matrix.row(number);
        let bits = self.codes.code.bits();
        let per_byte = 8 / bits;
        let flip = offset(matrix.code()) as u8;
        for (&(run, from), start) in self.runs.iter().zip(columns.clone().step_by(self.within.len())) {
            let to = &mut memory[4 * (first + run)..][..4];
            let mut word = u32::from_le_bytes([to[0], to[1], to[2], to[3]]);
            for (at, shift) in (start..columns.end).zip(&self.within) {
                let code = row[at / per_byte] >> (bits * (at % per_byte)) & ((1u16 << bits) - 1) as u8;
                word |= u32::from(code ^ flip) << (from + shift);
            }
            to.copy_from_slice(&word.to_le_bytes());
        }
    }

    fn factors(&self, stage: u32, matrix: &QuantMatrix, number: usize, row: usize, memory: &mut [u8]) {
        let columns = self.strip.columns(stage);
        let span = self.strip.span() as usize;
        let scales = self.strip.scales_at() as usize;
        let each = self.codes.scale.bytes() as usize;
        for (at, first) in columns.step_by(span).enumerate() {
            let group = first / matrix.group();
            let place = at * Strip::ROWS as usize + row;
            let scale = if self.codes.blocks { matrix.blocks().unwrap_or(0.0) } else { matrix.scales(number)[group] };
            let to = &mut memory[scales + place * each..][..each];
            match self.codes.scale {
                Float::F32 => to.copy_from_slice(&scale.to_le_bytes()),
                Float::F16 => to.copy_from_slice(&half::f16::from_f32(scale).to_le_bytes()),
                Float::Bf16 => to.copy_from_slice(&half::bf16::from_f32(scale).to_le_bytes()),
            }
            if self.codes.zeros {
                let zero = self.codes.stored_zero(matrix.zero(number, group) + offset(matrix.code()));
                memory[self.strip.zeros_at() as usize + place * 2..][..2].copy_from_slice(&zero.to_le_bytes());
            }
        }
    }

    /// The scales of a row's blocks.
    fn blocks(&self, stage: u32, matrix: &QuantMatrix, number: usize, row: usize, memory: &mut [u8]) {
        let layout = self.strip.blocks();
        let columns = self.strip.columns(stage);
        let [rows, blocks] = [0, 1].map(|mode| Layout::constant(layout.mode(mode)));
        let first = self.strip.tile_bytes() as usize + rows.at(row as i64) as usize;
        for (at, column) in (0i64..).zip(columns.step_by(BLOCK as usize)) {
            memory[first + blocks.at(at) as usize] = matrix.block(number, column / BLOCK as usize);
        }
    }

    /// The codes of a stage as they are stored, row by row, by the inverse of the layout.
    ///
    /// # Panics
    /// If the memory is not a stage's.
    pub fn unpack(&self, memory: &[u8]) -> [Vec<u8>; 8] {
        assert_eq!(memory.len() as u32, self.strip.stage_bytes(), "a stage's memory");
        let inverse = self.strip.stage_layout().right_inverse();
        let bits = self.codes.code.bits();
        let mut rows = [const { Vec::new() }; 8];
        rows.iter_mut().for_each(|row| row.resize(self.strip.stage_k() as usize, 0));
        for place in 0..8 * self.strip.stage_k() as usize {
            let number = inverse.at(place as i64) as usize;
            let byte = memory[place * bits / 8];
            let code = if bits == 4 { byte >> (4 * (place % 2)) & 15 } else { byte };
            rows[number % 8][number / 8] = code;
        }
        rows
    }
}

impl Codes {
    /// Whether a matrix can be packed so.
    pub fn holds(self, matrix: &QuantMatrix) -> bool {
        Codes::of(matrix).is_ok_and(|own| own.join(self) == Some(self))
    }

    /// Bits of a weight: its code, and its share of the factors.
    pub fn bits(self, k: u32) -> f64 {
        let factors = f64::from(8 * self.factor_bytes()) / f64::from(Strip::ROWS);
        let blocks = if self.blocks { 8.0 / f64::from(BLOCK) } else { 0.0 };
        Code::bits(self.code) as f64 + blocks + factors / f64::from(self.group.unwrap_or(k).max(1))
    }
}
