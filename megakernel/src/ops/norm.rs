//! The RMS norm that ops apply.

use serde::{Deserialize, Serialize};
use tilewright_kernels::host;

use crate::oracle::{Context, Done};
use crate::program::{BufferId, Span};

/// An RMS norm that an op applies, of a sum of parts or of a head, in f32:
/// `y[i] = x[i] · rsqrt(mean_i(x[i]²) + eps) · weight[i]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormWeight {
    /// Scale of every column, `[n]`, or of every dimension of a head, `[head_dim]`.
    pub weight: BufferId,
    /// Added to the mean square.
    pub eps: f32,
}

/// The RMS norms of some rows of `x: [rows, hidden]`.
pub(crate) fn normed_rows(on: &Context, x: BufferId, weight: BufferId, eps: f32, rows: Span) -> Done<Vec<f32>> {
    let [_, hidden] = on.shape(x)?;
    let x = on.read(x, rows.lo * hidden, rows.len() * hidden)?;
    let weight = on.read(weight, 0, hidden)?;
    let mut out = vec![0.0; x.len()];
    for (x, out) in x.chunks_exact(hidden).zip(out.chunks_exact_mut(hidden)) {
        host::rms_norm(x, &weight, eps, out);
    }
    Ok(out)
}
