//! Ops that keep a state of each sequence: convolutions along rows, and the gated delta rule.

use super::step::StepRun;
use crate::graph::{CacheId, ValueId, WeightId};
use crate::op::Op;

impl StepRun<'_> {
    pub(super) fn convolve(&mut self, x: ValueId, weight: WeightId, cache: CacheId) -> Vec<f64> {
        let x = self.value(x);
        let width = x.width();
        let weight = self.weight(weight);
        let taps = weight.shape[2];
        // Rows before the first of a sequence are zeros.
        let kept = (taps - 1) * width;
        let before = self.sequence.caches.get(&cache).map(|[rows, _]| rows.clone());
        let rows = [before.unwrap_or_else(|| vec![0.0; kept]), x.data.clone()].concat();
        let weights: Vec<&[f64]> = weight.data.chunks_exact(taps).collect();
        let of_row = |row: usize| {
            let at = |element: usize| {
                let taps = weights[element].iter().enumerate();
                taps.map(|(tap, weight)| weight * rows[(row + tap) * width + element]).sum::<f64>()
            };
            (0..width).map(at).collect::<Vec<f64>>()
        };
        let data = (0..x.data.len() / width).flat_map(of_row).collect();
        let last = rows[rows.len() - kept..].to_vec();
        self.sequence.caches.insert(cache, [last, Vec::new()]);
        data
    }

    pub(super) fn delta_rule(&mut self, op: &Op) -> Vec<f64> {
        let &Op::DeltaRule { q, k, v, a, b, a_log, dt_bias, eps, cache } = op else { return Vec::new() };
        let [q, k, v, a, b] = [q, k, v, a, b].map(|id| self.value(id));
        let [a_log, dt_bias] = [a_log, dt_bias].map(|id| &self.weight(id).data);
        let (key_dim, each) = (k.shape[2], a.shape[2]);
        let value_dim = v.shape[2] / each;
        let heads = a_log.len();
        let size = key_dim * value_dim;
        let before = self.sequence.caches.get(&cache).map(|[states, _]| states.clone());
        let mut states = before.unwrap_or_else(|| vec![0.0; heads * size]);
        let mut data = Vec::with_capacity(v.data.len());
        for row in 0..v.shape[0] {
            for head in 0..heads {
                // A head of keys, and of values.
                let [keys, values] = [row * (heads / each) + head / each, row * heads + head];
                let [q, k] = [q, k].map(|x| unit(&x.data[keys * key_dim..(keys + 1) * key_dim], f64::from(eps)));
                let v = &v.data[values * value_dim..(values + 1) * value_dim];
                let decay = (-a_log[head].exp() * softplus(a.data[values] + dt_bias[head])).exp();
                let beta = 1.0 / (1.0 + (-b.data[values]).exp());
                let state = &mut states[head * size..(head + 1) * size];
                state.iter_mut().for_each(|x| *x *= decay);
                let read = |state: &[f64], by: &[f64], at: usize| -> f64 {
                    state.iter().skip(at).step_by(value_dim).zip(by).map(|(state, by)| state * by).sum()
                };
                let change: Vec<f64> = (0..value_dim).map(|at| beta * (v[at] - read(state, &k, at))).collect();
                for (row, k) in state.chunks_exact_mut(value_dim).zip(&k) {
                    row.iter_mut().zip(&change).for_each(|(state, change)| *state += k * change);
                }
                data.extend((0..value_dim).map(|at| read(state, &q, at) / (key_dim as f64).sqrt()));
            }
        }
        self.sequence.caches.insert(cache, [states, Vec::new()]);
        data
    }
}

/// A vector divided by its length.
fn unit(x: &[f64], eps: f64) -> Vec<f64> {
    let length = (x.iter().map(|x| x * x).sum::<f64>() + eps).sqrt();
    x.iter().map(|x| x / length).collect()
}

/// `ln(1 + exp(x))`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
