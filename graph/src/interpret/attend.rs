//! Caches and attention.

use super::elementwise::soft_cap;
use super::step::StepRun;
use super::tensor::Tensor;
use crate::graph::{CacheId, Step, ValueId};
use crate::op::Op;

impl StepRun<'_> {
    pub(super) fn append(&mut self, step: &Step<'_>, rows: [Option<ValueId>; 2], cache: CacheId) -> Vec<Tensor> {
        let rows = rows.map(|id| id.map(|id| self.value(id).data.clone()).unwrap_or_default());
        let lists = self.sequence.caches.entry(cache).or_default();
        for (list, rows) in lists.iter_mut().zip(rows) {
            list.extend(rows);
        }
        let lists = lists.clone();
        let tensor = |(kind, data)| Tensor { shape: self.shape(kind), data };
        step.results.iter().zip(lists).map(tensor).collect()
    }

    pub(super) fn attention(&self, op: &Op) -> Vec<f64> {
        let Op::Attention { q, k, v, at, scale, soft_cap: cap, window, sinks, causal } = op else {
            return Vec::new();
        };
        let q = self.value(*q);
        let k = self.value(*k);
        let v = self.value(*v);
        let at = self.value(*at);
        let heads = q.shape[1];
        let dims = q.shape[2];
        let groups = k.shape[1];
        let value_dims = v.shape[2];
        let sinks = sinks.map(|sinks| &self.weight(sinks).data);
        let mut data = Vec::with_capacity(q.shape[0] * heads * value_dims);
        for (place, query) in q.data.chunks_exact(dims).enumerate() {
            let row = place / heads;
            let head = place % heads;
            let group = head / (heads / groups);
            let is_seen = |key: &usize| {
                let key = *key as f64;
                let own = at.data[row];
                (!causal || key <= own) && window.is_none_or(|window| key + f64::from(window) > own)
            };
            let seen: Vec<usize> = (0..k.shape[0]).filter(is_seen).collect();
            let score = |key: &usize| {
                let key = &k.row(*key)[group * dims..(group + 1) * dims];
                let score = query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * f64::from(*scale);
                cap.map_or(score, |cap| soft_cap(score, cap))
            };
            let mut scores: Vec<f64> = seen.iter().map(score).collect();
            scores.extend(sinks.map(|sinks| sinks[head]));
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let start = data.len();
            data.resize(start + value_dims, 0.0);
            for (key, weight) in seen.iter().zip(&weights) {
                let value = &v.row(*key)[group * value_dims..(group + 1) * value_dims];
                data[start..].iter_mut().zip(value).for_each(|(sum_of, value)| *sum_of += weight / sum * value);
            }
        }
        data
    }
}
