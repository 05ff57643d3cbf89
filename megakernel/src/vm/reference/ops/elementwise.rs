//! Boxes of equal extents, run by run along the last dimension; the RMS norm of rows.

use tilewright_kernels::{host, naive};

use super::{Context, Done, TaskFault};
use crate::program::{Add, BufferId, Copy, Region, RmsNorm, SiluMul};

pub(super) fn copy(op: &Copy, on: &Context) -> Done {
    for (src, dst) in runs(on, &op.src)?.into_iter().zip(runs(on, &op.dst)?) {
        on.write(op.dst.buffer, dst.0, &on.read(op.src.buffer, src.0, src.1)?)?;
    }
    Ok(())
}

pub(super) fn add(op: &Add, on: &Context) -> Done {
    binary(on, &op.a, &op.b, &op.out, naive::add)
}

pub(super) fn silu_mul(op: &SiluMul, on: &Context) -> Done {
    binary(on, &op.gate, &op.up, &op.out, naive::silu_mul)
}

fn binary(on: &Context, a: &Region, b: &Region, out: &Region, f: fn(&[f32], &[f32]) -> Vec<f32>) -> Done {
    for ((at_a, at_b), at) in runs(on, a)?.into_iter().zip(runs(on, b)?).zip(runs(on, out)?) {
        let (a, b) = (on.read(a.buffer, at_a.0, at_a.1)?, on.read(b.buffer, at_b.0, at_b.1)?);
        on.write(out.buffer, at.0, &f(&a, &b))?;
    }
    Ok(())
}

/// The contiguous runs of a box, in order: first element and length.
fn runs(on: &Context, region: &Region) -> Done<Vec<(usize, usize)>> {
    let missing = TaskFault::Elements { buffer: region.buffer, start: 0, end: 0 };
    let shape = &on.program.buffers.get(region.buffer.index()).ok_or(missing.clone())?.shape;
    let (spans, Some((last, outer))) = (region.spans(), region.spans().split_last()) else { return Err(missing) };
    if spans.len() != shape.len() {
        return Err(missing);
    }
    let mut starts = vec![0];
    for (span, &extent) in outer.iter().zip(shape) {
        starts = starts.iter().flat_map(|start| span.iter().map(move |i| start * extent + i)).collect();
    }
    let width = shape[outer.len()];
    Ok(starts.into_iter().map(|start| (start * width + last.lo, last.len())).collect())
}

pub(super) fn rms_norm(op: &RmsNorm, on: &Context) -> Done {
    let [_, hidden] = on.shape(op.x)?;
    let rows = normed_rows(on, op.x, op.weight, op.eps, op.rows.lo, op.rows.len())?;
    on.write(op.out, op.rows.lo * hidden, &rows)
}

/// The RMS norms of the rows `first..first + count` of `x: [rows, hidden]`.
pub(super) fn normed_rows(
    on: &Context,
    x: BufferId,
    weight: BufferId,
    eps: f32,
    first: usize,
    count: usize,
) -> Done<Vec<f32>> {
    let [_, hidden] = on.shape(x)?;
    let (x, weight) = (on.read(x, first * hidden, count * hidden)?, on.read(weight, 0, hidden)?);
    let mut out = vec![0.0; x.len()];
    for (x, out) in x.chunks_exact(hidden).zip(out.chunks_exact_mut(hidden)) {
        host::rms_norm(x, &weight, eps, out);
    }
    Ok(out)
}
