//! Single numbers of packed codes, for readers of rows that do not multiply: embeddings.

use tilewright_codegen::build::{Global, Ptr, Val};
use tilewright_layout::Layout;

use super::Strip;
use super::codes::{BLOCK, Codes};
use crate::quant::{Code, minifloat};
use crate::tile::{Array, Float, Index, place};

impl Strip {
    /// The number at a row and a column of a stage of codes: `(code − zero) · scale`, rounded once.
    #[track_caller]
    pub(crate) fn number<'k>(
        self,
        codes: Codes,
        stage: Ptr<'k, Global, u8>,
        [row, column]: [Val<'k, u32>; 2],
    ) -> Val<'k, f32> {
        let element = self.element(row, column);
        let bits = codes.code.bits() as u32;
        let of_word = 32 / bits;
        let word = stage.cast::<u32>().at(element / of_word).load();
        let code = (word >> (element % of_word * bits)) & ((1u32 << bits) - 1);
        let group = column / self.span() * Strip::ROWS + row;
        let factor = |at: u32, float: Float| Array::new(stage.at(at), float).load(group);
        // Integers are stored unsigned.
        let number = minifloat(codes.code, code);
        let zero = match (codes.zeros, codes.code.is_integer()) {
            (true, _) => Some(factor(self.zeros_at(), Float::Bf16)),
            (false, true) => Some(code.builder().lit(f32::from(codes.code.middle()))),
            (false, false) => None,
        };
        let of_block = || {
            let blocks = self.blocks();
            let block = column / BLOCK;
            let [rows, blocks] = [0, 1].map(|mode| Layout::constant(blocks.mode(mode)));
            let at = (place(&rows, Index::below(row, Strip::ROWS)) + place(&blocks, block.into())).get(code.builder());
            minifloat(Code::E4m3, stage.at(at + self.tile_bytes()).load().cast())
        };
        let scale = factor(self.scales_at(), codes.scale);
        let scale = if codes.blocks { of_block() * scale } else { scale };
        zero.map_or(number, |zero| number - zero) * scale
    }
}
