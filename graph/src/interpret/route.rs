//! Routers and the sum over chosen experts.

use super::step::StepRun;
use super::tensor::Tensor;
use crate::graph::{Step, ValueId};
use crate::op::{Op, RouteKind};

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
    pub(super) fn route(&self, step: &Step<'_>) -> Vec<Tensor> {
        let &Op::Route { logits, k, kind, correction } = step.op else { return Vec::new() };
        let correction = correction.map(|weight| self.weight(weight).data.as_slice());
        let mut ids = Vec::new();
        let mut weights = Vec::new();
        for row in self.value(logits).rows() {
            let scores = scores(row, kind);
            // By these experts are chosen.
            let corrected = |(id, score): (usize, &f64)| score + correction.map_or(0.0, |correction| correction[id]);
            let choice = match kind {
                RouteKind::SoftmaxInGroups { .. } | RouteKind::SigmoidInGroups { .. } => {
                    within_groups(scores.iter().enumerate().map(corrected).collect(), kind)
                }
                RouteKind::TopKThenSoftmax | RouteKind::Sigmoid | RouteKind::SoftmaxThenTopK { .. } => row.to_vec(),
            };
            let chosen = largest(&choice, k as usize);
            let picked: Vec<f64> = chosen.iter().map(|id| scores[*id]).collect();
            let of_row = match kind {
                RouteKind::TopKThenSoftmax => softmax(&picked),
                RouteKind::SoftmaxThenTopK { renormalise: true }
                | RouteKind::SigmoidInGroups { renormalise: true, .. } => {
                    let sum: f64 = picked.iter().sum();
                    picked.into_iter().map(|weight| weight / sum).collect()
                }
                RouteKind::Sigmoid
                | RouteKind::SoftmaxThenTopK { .. }
                | RouteKind::SoftmaxInGroups { .. }
                | RouteKind::SigmoidInGroups { .. } => picked,
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

/// The scores of experts, by which they are chosen and weighted.
fn scores(row: &[f64], kind: RouteKind) -> Vec<f64> {
    match kind {
        RouteKind::TopKThenSoftmax => row.to_vec(),
        RouteKind::SoftmaxThenTopK { .. } | RouteKind::SoftmaxInGroups { .. } => softmax(row),
        RouteKind::Sigmoid | RouteKind::SigmoidInGroups { .. } => {
            row.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect()
        }
    }
}

/// The scores, of experts in groups that are not kept -∞.
fn within_groups(scores: Vec<f64>, kind: RouteKind) -> Vec<f64> {
    let (groups, kept, most) = match kind {
        RouteKind::SoftmaxInGroups { groups, kept } => (groups, kept, 1),
        RouteKind::SigmoidInGroups { groups, kept, .. } => (groups, kept, 2),
        RouteKind::TopKThenSoftmax | RouteKind::Sigmoid | RouteKind::SoftmaxThenTopK { .. } => return scores,
    };
    let each = scores.len() / groups as usize;
    let best = |group: &[f64]| largest(group, most.min(each)).into_iter().map(|id| group[id]).sum::<f64>();
    let groups: Vec<f64> = scores.chunks_exact(each).map(best).collect();
    let kept = largest(&groups, kept as usize);
    let of = |(id, score)| if kept.contains(&(id / each)) { score } else { f64::NEG_INFINITY };
    scores.into_iter().enumerate().map(of).collect()
}
