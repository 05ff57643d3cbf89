//! What a lane holds: numbers of a row, and words of bf16 as they are loaded.

use tilewright_codegen::build::Val;

/// A lane's part of a row.
pub(super) type LaneRow<'k> = Vec<Val<'k, f32>>;

/// Eight numbers of bf16, as they are loaded.
pub(super) type PackedBf16<'k> = [Val<'k, u32>; 4];

/// The numbers of words of bf16: a bf16 is the upper half of an f32.
pub(super) fn widen<'k>(words: PackedBf16<'k>) -> [Val<'k, f32>; 8] {
    std::array::from_fn(|e| {
        let word = words[e / 2];
        if e % 2 == 0 { (word << 16).bits() } else { (word & 0xffff_0000).bits() }
    })
}
