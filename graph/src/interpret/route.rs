//! Routers and the sum over chosen experts.

use super::step::StepRun;
use super::tensor::Tensor;
use crate::graph::{Step, ValueId};
use crate::op::RouteKind;

/// The indexes of the `k` largest elements, largest first; the least index first on a tie.
pub(super) fn largest(row: &[f64], k: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    places.sort_by(|a, b| row[*b].total_cmp(&row[*a]).then(a.cmp(b)));
    places.truncate(k);
    places
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = row.iter().map(|x| (x - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

impl StepRun<'_> {
    pub(super) fn route(&self, step: &Step<'_>, logits: ValueId, k: u32, kind: RouteKind) -> Vec<Tensor> {
        let mut ids = Vec::new();
        let mut weights = Vec::new();
        for row in self.value(logits).rows() {
            let chosen = largest(row, k as usize);
            let picked = |row: &[f64]| chosen.iter().map(|id| row[*id]).collect::<Vec<f64>>();
            let of_row = match kind {
                RouteKind::TopKThenSoftmax => softmax(&picked(row)),
                RouteKind::Sigmoid => picked(row).into_iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
                RouteKind::SoftmaxThenTopK { renormalise } => {
                    let picked = picked(&softmax(row));
                    let sum = if renormalise { picked.iter().sum::<f64>() } else { 1.0 };
                    picked.into_iter().map(|weight| weight / sum).collect()
                }
            };
            ids.extend(chosen.into_iter().map(|id| id as f64));
            weights.extend(of_row);
        }
        let tensor = |(kind, data)| Tensor { shape: self.shape(kind), data };
        step.results.iter().zip([ids, weights]).map(tensor).collect()
    }

    pub(super) fn weighted_sum(&self, x: ValueId, weights: ValueId) -> Vec<f64> {
        let x = self.value(x);
        let weights = self.value(weights);
        let chosen = weights.shape[1];
        let width = x.width() / chosen;
        let row = |(x, weights): (&[f64], &[f64])| {
            let mut sums = vec![0.0; width];
            for (x, weight) in x.chunks_exact(width).zip(weights) {
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += weight * x);
            }
            sums
        };
        x.rows().zip(weights.rows()).flat_map(row).collect()
    }
}
