//! Shared memory of a consumer warps.

use tilewright_codegen::build::{Ptr, Shared};

use crate::gemv::activations::F16Overflow;
use crate::weights::Strip;

/// Shared memory of the consumer warps that functions use while they run.
#[derive(Clone, Copy)]
pub struct LinearScratch<'k> {
    /// Activations, followed by `sums`.
    pub operand: Ptr<'k, Shared, half::bf16>,
    /// Bytes of `operand`, a multiple of 8.
    pub operand_bytes: u32,
    /// Sums of squares, f32 `[16, warps]`.
    pub squares: Ptr<'k, Shared, f32>,
    /// Sums of products.
    pub sums: Ptr<'k, Shared, f32>,
    /// Bytes of `sums`.
    pub sums_bytes: u32,
    /// The largest logit of each row and its index, u64 `[16]`.
    pub best: Ptr<'k, Shared, u64>,
    /// Most registers of a lane to which copied activations come before bf16 weights are
    /// multiplied: then a tile of weights is all that a product reads of shared memory.
    pub copied_registers: u32,
    /// Most rows whose codes are multiplied two strips at a time, where they can be.
    pub paired_rows: u32,
    /// Most stages of a strip of 4-bit codes whose words are prefetched into registers during the
    /// products of the previous stage.
    pub prefetched_word_stages: u32,
    /// The report of activations that overflow f16, if it is needed.
    pub overflow: Option<F16Overflow<'k>>,
    /// Where the time is noted when activations are there, if it is wanted.
    pub loaded: Option<Ptr<'k, Shared, u64>>,
}

impl LinearScratch<'_> {
    /// Bytes of the sums of a strip.
    pub fn strip_bytes(rows: u32, warps: u32) -> u32 {
        warps * rows * Strip::ROWS * 4
    }
}
