//! Heads rotated, row by row.

use tilewright_kernels::{host, naive};

use super::operands::{HeadOutput, Rope};
use crate::oracle::{Context, Done};

pub(super) fn rope(op: &Rope, on: &Context) -> Done {
    let [_, heads, dim] = on.shape(op.x)?;
    let inv_freq = on.read(op.rope.inv_freq, 0, dim / 2)?;
    // Heads that have one mean square.
    let together = match &op.norm {
        Some(norm) => on.shape::<1>(norm.weight)?[0] / dim,
        None => 1,
    };
    for row in op.rows.iter() {
        let position = on.position(op.at.position, row)?;
        for head in op.heads.iter() {
            let start = (row * heads + head) * dim;
            let rotated = match position {
                None => vec![0.0; dim],
                Some(position) => {
                    let mut x = on.read(op.x, start, dim)?;
                    if let Some(norm) = &op.norm {
                        let first = if together == 1 { 0 } else { head };
                        let all = on.read(op.x, start - first * dim, together * dim)?;
                        // Other heads count in the mean square alone.
                        let mut weight = vec![1.0; all.len()];
                        weight[first * dim..][..dim].copy_from_slice(&on.read(norm.weight, first * dim, dim)?);
                        let mut normed = vec![0.0; all.len()];
                        host::rms_norm(&all, &weight, norm.eps, &mut normed);
                        x.copy_from_slice(&normed[first * dim..][..dim]);
                    }
                    naive::rope(&x, &inv_freq, position, op.rope.scale)
                }
            };
            match (&op.output, position) {
                (HeadOutput::Store { out }, _) => on.write(*out, start, &rotated)?,
                (HeadOutput::Append { .. }, None) => {}
                (HeadOutput::Append { pool }, Some(position)) => {
                    let slot = on.slot(op.at.page_table, row, position, head, on.pool_shape(*pool)?)?;
                    on.write(*pool, slot, &rotated)?;
                }
            }
        }
    }
    Ok(())
}
