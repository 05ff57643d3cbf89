//! Embedding and linear products.

use super::error::RunError;
use super::step::StepRun;
use super::tensor::Tensor;
use crate::graph::{ValueId, WeightId};
use crate::op::Op;

/// `out[i] = weight[i] · x + bias[i]`, summed in order.
fn product(weight: &[f64], x: &[f64], bias: Option<&[f64]>) -> impl Iterator<Item = f64> {
    weight.chunks_exact(x.len()).enumerate().map(move |(row, weight)| {
        let sum: f64 = weight.iter().zip(x).map(|(weight, x)| weight * x).sum();
        sum + bias.map_or(0.0, |bias| bias[row])
    })
}

impl StepRun<'_> {
    pub(super) fn embed(&self, ids: ValueId, table: WeightId, scale: f32) -> Result<Vec<f64>, RunError> {
        let rows = self.weight(table);
        let mut data = Vec::new();
        for &id in &self.value(ids).data {
            self.in_range("embed", id, table, rows)?;
            data.extend(rows.row(id as usize).iter().map(|x| x * f64::from(scale)));
        }
        Ok(data)
    }

    fn in_range(&self, op: &'static str, id: f64, weight: WeightId, rows: &Tensor) -> Result<(), RunError> {
        let count = rows.shape[0];
        if id < count as f64 {
            return Ok(());
        }
        let weight = self.graph.parts().weights[weight.index()].tensor.clone();
        Err(RunError::Id { op, id: id as u64, weight, count })
    }

    pub(super) fn linear(&self, x: ValueId, weight: WeightId, bias: Option<WeightId>) -> Vec<f64> {
        let weight = self.weight(weight);
        let bias = bias.map(|bias| self.weight(bias).data.as_slice());
        let rows = self.value(x).data.chunks_exact(weight.width());
        rows.flat_map(|x| product(&weight.data, x, bias)).collect()
    }

    pub(super) fn head_linear(&self, op: &Op) -> Vec<f64> {
        let &Op::HeadLinear { x, weight, each, start, size, transposed } = op else { return Vec::new() };
        let [each, start, size] = [each, start, size].map(|number| number as usize);
        let x = self.value(x);
        let weight = self.weight(weight);
        let columns = weight.shape[1];
        let heads = x.shape[1];
        let rows = x.data.chunks_exact(x.shape[2]).enumerate();
        let of_head = |(place, x): (usize, &[f64])| -> Vec<f64> {
            let first = (place % heads * each + start) * columns;
            let own = &weight.data[first..first + size * columns];
            if !transposed {
                return product(own, x, None).collect();
            }
            let sum = |column: usize| x.iter().zip(own.iter().skip(column).step_by(columns)).map(|(x, w)| x * w).sum();
            (0..columns).map(sum).collect()
        };
        rows.flat_map(of_head).collect()
    }

    pub(super) fn expert_linear(&self, op: &Op) -> Result<Vec<f64>, RunError> {
        let Op::ExpertLinear { x, experts, ids, bias, .. } = op else { return Ok(Vec::new()) };
        let x = self.value(*x);
        let ids = self.value(*ids);
        let weights = self.weight(*experts);
        let contracted = weights.shape[2];
        // Without an axis `chosen`, all chosen experts of a row see one activation.
        let has_chosen = x.data.len() / contracted == ids.data.len() && ids.shape[1] * contracted == x.width();
        let mut data = Vec::new();
        for (place, &id) in ids.data.iter().enumerate() {
            self.in_range("expert_linear", id, *experts, weights)?;
            let index = if has_chosen { place } else { place / ids.shape[1] };
            let x = &x.data[index * contracted..(index + 1) * contracted];
            let bias = bias.map(|bias| self.weight(bias).row(id as usize));
            data.extend(product(weights.row(id as usize), x, bias));
        }
        Ok(data)
    }
}
