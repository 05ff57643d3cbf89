//! Normalisation, rotation, activations and arithmetic.

use super::step::StepRun;
use crate::axis::Shape;
use crate::graph::{RopeId, Step, ValueId};
use crate::op::{ActivationKind, BinaryKind, NormKind, Op, RopePairs};

/// `cap * tanh(x / cap)`.
pub(super) fn soft_cap(x: f64, cap: f32) -> f64 {
    let cap = f64::from(cap);
    cap * (x / cap).tanh()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `f(gate) * x`; without a gate, `x` is the gate and the other factor is absent.
fn activate(kind: ActivationKind, x: f64, gate: Option<f64>) -> f64 {
    let g = gate.unwrap_or(x);
    let other = gate.map_or(1.0, |_| x);
    match kind {
        ActivationKind::Silu => g * sigmoid(g) * other,
        ActivationKind::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3));
            0.5 * g * (1.0 + inner.tanh()) * other
        }
        ActivationKind::Relu => g.max(0.0) * other,
        ActivationKind::Sigmoid => sigmoid(g) * other,
        ActivationKind::ClampedSwiglu { alpha, limit } => {
            let limit = f64::from(limit);
            let g = g.min(limit);
            g * sigmoid(f64::from(alpha) * g) * (other.clamp(-limit, limit) + 1.0)
        }
    }
}

impl StepRun<'_> {
    pub(super) fn slice(&self, x: ValueId, start: usize, size: usize) -> Vec<f64> {
        let x = self.value(x);
        let width = x.shape.last().copied().unwrap_or(1);
        x.data.chunks_exact(width).flat_map(|row| row[start..start + size].iter().copied()).collect()
    }

    pub(super) fn concat(&self, a: ValueId, b: ValueId) -> Vec<f64> {
        let [a, b] = [a, b].map(|id| self.value(id));
        let [first, second] = [a, b].map(|x| x.shape.last().copied().unwrap_or(1));
        let rows = a.data.len() / first;
        let mut data = Vec::with_capacity(rows * (first + second));
        for row in 0..rows {
            // The row of `b`: an axis of extent 1 has one for all of `a`.
            let (mut rest, mut place, mut step) = (row, 0, 1);
            for (&extent, &own) in a.shape.iter().zip(&b.shape).rev().skip(1) {
                place += step * if own == 1 { 0 } else { rest % extent };
                (rest, step) = (rest / extent, step * own);
            }
            data.extend_from_slice(&a.data[row * first..(row + 1) * first]);
            data.extend_from_slice(&b.data[place * second..(place + 1) * second]);
        }
        data
    }

    pub(super) fn norm(&self, step: &Step<'_>) -> Vec<f64> {
        let Op::Norm { x, weight, bias, kind, eps, over } = step.op else { return Vec::new() };
        let dims = &step.results[0].shape.0;
        let width = Shape::elements(&dims[dims.len() - over.len()..]).unwrap_or(1) as usize;
        let row = |x: &[f64]| -> Vec<f64> {
            let mean = |f: &dyn Fn(f64) -> f64| x.iter().map(|x| f(*x)).sum::<f64>() / x.len() as f64;
            let centre = if *kind == NormKind::Layer { mean(&|x| x) } else { 0.0 };
            let spread = mean(&|x| (x - centre).powi(2));
            let scale = 1.0 / (spread + f64::from(*eps)).sqrt();
            let offset = if *kind == (NormKind::Rms { unit_offset: true }) { 1.0 } else { 0.0 };
            let factor = |place: usize| weight.map_or(1.0, |weight| self.weight(weight).data[place] + offset);
            let summand = |place: usize| bias.map_or(0.0, |bias| self.weight(bias).data[place]);
            x.iter().enumerate().map(|(place, x)| (x - centre) * scale * factor(place) + summand(place)).collect()
        };
        self.value(*x).data.chunks_exact(width).flat_map(row).collect()
    }

    pub(super) fn rope(&self, x: ValueId, at: ValueId, table: RopeId, pairs: RopePairs) -> Vec<f64> {
        let x = self.value(x);
        let at = self.value(at);
        let table = &self.graph.parts().ropes[table.index()];
        let half = table.frequencies.len();
        let last = x.shape.last().copied().unwrap_or(1);
        let mut data = x.data.clone();
        let width = x.width();
        for (place, head) in data.chunks_exact_mut(last).enumerate() {
            let position = at.data[place * last / width];
            for (pair, frequency) in table.frequencies.iter().enumerate().filter(|(_, frequency)| **frequency != 0.0) {
                let (first, second) = match pairs {
                    RopePairs::Halves => (pair, pair + half),
                    RopePairs::Interleaved => (2 * pair, 2 * pair + 1),
                };
                let (sine, cosine) = (position * f64::from(*frequency)).sin_cos();
                let sine = sine * f64::from(table.scale);
                let cosine = cosine * f64::from(table.scale);
                let a = head[first];
                let b = head[second];
                head[first] = a * cosine - b * sine;
                head[second] = b * cosine + a * sine;
            }
        }
        data
    }

    pub(super) fn activation(&self, x: ValueId, gate: Option<ValueId>, kind: ActivationKind) -> Vec<f64> {
        let x = &self.value(x).data;
        match gate {
            None => x.iter().map(|x| activate(kind, *x, None)).collect(),
            Some(gate) => {
                let gate = &self.value(gate).data;
                x.iter().zip(gate).map(|(x, gate)| activate(kind, *x, Some(*gate))).collect()
            }
        }
    }

    pub(super) fn binary(&self, a: ValueId, b: ValueId, kind: BinaryKind) -> Vec<f64> {
        let a = self.value(a);
        let b = self.value(b);
        let repeats = a.data.len() / b.data.len().max(1);
        let apply = |(place, a): (usize, &f64)| {
            let b = b.data[place / repeats];
            match kind {
                BinaryKind::Add => a + b,
                BinaryKind::Sub => a - b,
                BinaryKind::Mul => a * b,
            }
        };
        a.data.iter().enumerate().map(apply).collect()
    }
}
