//! Heads rotated, row by row.

use tilewright_kernels::{host, naive};

use super::operands::{HeadOutput, Rope};
use crate::oracle::{Context, Done};

pub(super) fn rope(op: &Rope, on: &Context) -> Done {
    let [_, heads, dim] = on.shape(op.x)?;
    let inv_freq = on.read(op.rope.inv_freq, 0, dim / 2)?;
    let norm = match &op.norm {
        Some(norm) => Some((on.read(norm.weight, 0, dim)?, norm.eps)),
        None => None,
    };
    for row in op.rows.iter() {
        let position = on.position(op.at.position, row)?;
        for head in op.heads.iter() {
            let start = (row * heads + head) * dim;
            let rotated = match position {
                None => vec![0.0; dim],
                Some(position) => {
                    let mut x = on.read(op.x, start, dim)?;
                    if let Some((weight, eps)) = &norm {
                        let raw = x.clone();
                        host::rms_norm(&raw, weight, *eps, &mut x);
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
