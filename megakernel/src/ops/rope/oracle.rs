//! Heads rotated, row by row.

use tilewright_graph::op::RopePairs;
use tilewright_kernels::{host, naive};

use super::operands::{HeadOutput, Rope};
use crate::oracle::{Context, Done};
use crate::program::BufferId;

pub(super) fn rope(op: &Rope, on: &Context) -> Done {
    let [heads, width, from, dim, to] = match op.columns {
        None => {
            let [_, heads, dim] = on.shape(op.x)?;
            [heads, dim, 0, dim, 0]
        }
        Some(columns) => {
            let [_, all] = on.shape(op.x)?;
            [columns.heads, all / columns.heads.max(1), columns.from, columns.dim, columns.to]
        }
    };
    let rope = match &op.rope {
        Some(rope) => Some((on.read(rope.inv_freq, 0, dim / 2)?, rope.scale)),
        None => None,
    };
    // Heads that have one mean square.
    let together = match &op.norm {
        Some(norm) => on.shape::<1>(norm.weight)?[0] / dim,
        None => 1,
    };
    for row in op.rows.iter() {
        let position = on.position(op.at.position, row)?;
        for head in op.heads.iter() {
            let start = (row * heads + head) * width + from;
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
                    if op.pairs == RopePairs::Interleaved && rope.is_some() {
                        x = (0..dim).map(|i| x[2 * (i % (dim / 2)) + i / (dim / 2)]).collect();
                    }
                    match &rope {
                        Some((inv_freq, scale)) => naive::rope(&x, inv_freq, position, *scale),
                        None => x,
                    }
                }
            };
            let last = |buffer: BufferId| on.buffers[buffer.index()].shape.last().copied().unwrap_or(dim);
            match (&op.output, position) {
                (HeadOutput::Store { out }, _) => on.write(*out, (row * heads + head) * last(*out) + to, &rotated)?,
                (HeadOutput::Append { .. }, None) => {}
                (HeadOutput::Append { pool }, Some(position)) => {
                    let slot = on.slot(op.at.page_table, row, position, head, on.pool_shape(*pool)?)?;
                    on.write(*pool, slot + to, &rotated)?;
                }
            }
        }
    }
    Ok(())
}
