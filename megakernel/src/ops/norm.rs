//! The norms that ops apply.

use serde::{Deserialize, Serialize};
use tilewright_kernels::host;

use crate::oracle::{Context, Done};
use crate::program::{BufferId, Span};

/// An RMS norm that an op applies to heads, in f32:
/// `y[i] = x[i] · rsqrt(mean_i(x[i]²) + eps) · weight[i]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormWeight {
    /// Scale of every dimension of a head, `[head_dim]`, or of all heads of a row.
    pub weight: BufferId,
    /// Added to the mean square.
    pub eps: f32,
}

/// A norm of a sum of parts, in f32: `y[i] = (x[i] − m) · rsqrt(mean_i((x[i] − m)²) + eps) · weight[i]`, where `m`
/// is the mean in a layer norm, and 0 in an RMS norm. A layer norm may add a bias.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SumNorm {
    /// Scale of every column, `[n]`.
    pub weight: BufferId,
    /// Added to the mean square.
    pub eps: f32,
    /// What makes it a layer norm; `None`: it is an RMS norm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<LayerNorm>,
}

/// What a layer norm has besides an RMS norm: its mean is subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// Added to the norm of every column, `[n]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<BufferId>,
}

impl SumNorm {
    /// The weights of the norm.
    pub(super) fn weights(&self) -> impl Iterator<Item = (&'static str, BufferId)> + use<> {
        let bias = self.layer.and_then(|layer| layer.bias);
        [("norm weight", self.weight)].into_iter().chain(bias.map(|bias| ("norm bias", bias)))
    }
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
