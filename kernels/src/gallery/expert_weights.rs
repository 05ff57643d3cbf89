//! The weights of eight experts a row: a fragment from memory, its rows combined across lanes, and
//! back.

use core::f32::consts::LOG2_E;

use crate::tile::prelude::*;
use tilewright_layout::fragment::{FragmentC, atoms};
use tilewright_layout::typed::RowMajor;

/// Experts.
pub const EXPERTS: usize = 8;
/// Rows of a warp.
const ROWS: usize = 16;
/// The scores of a warp's rows: four per lane, of two rows that are each spread over a quad.
type ExpertScores<'k> = RegisterTensor<'k, f32, FragmentC<atoms::SM80_16x8x16_F32BF16BF16F32_TN>>;

/// `y[i, :] = softmax(x[i, :])`, rows of 8: 64 rows a block of 128 threads, 16 a warp. Parameters:
/// `x`, `y` (f32, aligned to 8 bytes).
pub fn expert_weights(k: &Builder) {
    let first = (k.block_id() * 4 + k.warp()) * (ROWS * EXPERTS) as u32;
    let tile = |name| LayoutTensor::new(k.global::<f32>(name).at(first), RowMajor::<ROWS, EXPERTS>::default());
    let scores = ExpertScores::load_fragment(Index::lane(k), tile("x"));
    let most = scores.reduce_across(|a, b| a.max(b));
    let powers = scores.zip_rows(&most, |score, most| ((score - most) * LOG2_E).ex2());
    let sums = powers.reduce_across(|a, b| a + b);
    powers.zip_rows(&sums, |power, sum| power.div_rn(sum)).store_fragment(Index::lane(k), tile("y"));
}
