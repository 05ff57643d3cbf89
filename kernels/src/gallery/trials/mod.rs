//! The gallery on trial: random extents, strides and layouts against plain loops; what lies between
//! is left alone.

mod channels_first;
mod column_sums;
mod copies;
mod expert_weights;
mod gemm_tf32;
mod residual_norm;
mod split_sums;
mod transpose;
mod two_products;
mod unit_rows;

use tilewright_codegen::ir::Needs;
use tilewright_codegen::trial::Shipped;

use crate::shipped_entry::ShippedEntry;

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let entry =
        |name, needs, record, draw| -> Box<dyn Shipped> { Box::new(ShippedEntry { name, needs, record, draw }) };
    vec![
        entry("transpose_edged", Needs::Sm80, transpose::record_transpose, transpose::draw_transpose),
        entry("column_sums", Needs::Sm80, column_sums::record_sums, column_sums::draw_sums),
        entry("residual_norm", Needs::Sm80, residual_norm::record_norm, residual_norm::draw_norm),
        entry("unit_rows", Needs::Sm80, unit_rows::record_rows, unit_rows::draw_rows),
        entry("expert_weights", Needs::Sm80, expert_weights::record_weights, expert_weights::draw_weights),
        entry("gemm_tf32", Needs::Sm80, gemm_tf32::record_gemm, gemm_tf32::draw_gemm),
        entry("two_products", Needs::Sm80, two_products::record_products, two_products::draw_products),
        entry("copies", Needs::Sm80, copies::record_copies, copies::draw_copies),
        entry("channels_first", Needs::Sm90, channels_first::record_voxels, channels_first::draw_voxels),
        entry("split_sums", Needs::Sm90, split_sums::record_columns, split_sums::draw_columns),
        entry("batch_sums", Needs::Sm90, split_sums::record_batch, split_sums::draw_batch),
    ]
}
