//! Gate, up and activation of the chosen experts.

use serde::{Deserialize, Serialize};
use tilewright_kernels::activation::Activation;
use tilewright_kernels::naive;

use super::route::all_rows;
use super::routes::{Slot, expected, shape, slots, used};
use crate::ops::linear::{LinearInput, activation_name, activations, is_silu};
use crate::oracle::{Context, Done};
use crate::program::{
    Access, AccessRole, BufferId, Check, Footprint, OperandError, Operands, Region, Span, TaskOp, multiple,
};

/// Output features of a strip.
const STRIP: usize = 8;

/// `out[r, s · n + i] = w · activation(x · gate_eᵀ)[i] · (x · up_eᵀ)[i]`, where `e` is the expert of
/// slot `s` of the routes and `w` its weight for row `r`; 0 where the row has not chosen it. A bias
/// is added to each product.
///
/// Strips of eight features are counted over all slots: strip `q` has the features
/// `8 q .. 8 q + 8` of `out`. Those of slots that are not in use are not computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertGateUp {
    /// Where the activations come from.
    pub input: LinearInput,
    /// The table of routes, which [`Route`](super::Route) makes.
    pub routes: BufferId,
    /// Experts.
    pub experts: usize,
    /// Experts that are chosen for each row.
    pub chosen: usize,
    /// Weights of the gates, `[experts · n, k]`.
    pub gate: BufferId,
    /// Weights of the other factors, `[experts · n, k]`.
    pub up: BufferId,
    /// Biases of the gates, `[experts · n]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_bias: Option<BufferId>,
    /// Biases of the other factors, `[experts · n]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_bias: Option<BufferId>,
    /// The function of the gate.
    #[serde(default, skip_serializing_if = "is_silu", with = "activation_name")]
    pub activation: Activation,
    /// Rows of the batch: all.
    pub rows: Span,
    /// The strips that this task computes.
    pub strips: SlotStrips,
    /// Output, `[rows, slots · n]`.
    pub out: BufferId,
}

/// Strips of eight features of all slots: every `step`-th from the first on. Whatever number of
/// slots is in use, tasks whose first strips are consecutive have as much work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotStrips {
    /// The first.
    pub first: usize,
    /// From one to the next.
    pub step: usize,
}

impl SlotStrips {
    /// Those of them that are below `end`.
    pub fn below(self, end: usize) -> impl Iterator<Item = usize> {
        (self.first..end).step_by(self.step.max(1))
    }
}

impl ExpertGateUp {
    /// Features of an expert, of checked operands.
    fn features(&self, ops: &Operands) -> Check<usize> {
        let [all, k] = ops.floats("gate", self.gate)?;
        ops.floats_of("up", self.up, [all, k])?;
        multiple("rows of gate", all, self.experts.saturating_mul(STRIP))?;
        for (name, bias) in [("gate bias", self.gate_bias), ("up bias", self.up_bias)] {
            bias.map(|bias| ops.floats_of(name, bias, [all])).transpose()?;
        }
        Ok(all / self.experts)
    }
}

impl TaskOp for ExpertGateUp {
    fn name() -> &'static str {
        "expert_gate_up"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let n = self.features(ops)?;
        let [all, k] = ops.shape("gate", self.gate)?;
        let (rows, mut reads) = self.input.footprint(ops, self.rows, k)?;
        all_rows(self.rows, rows)?;
        let slots = slots(ops, self.routes, shape(rows, self.experts, self.chosen)?)?;
        let strips = slots.saturating_mul(n) / STRIP;
        ops.floats_of("out", self.out, [rows, slots.saturating_mul(n)])?;
        if self.strips.first >= strips || self.strips.step == 0 {
            return Err(OperandError::Index { name: "strips", found: self.strips.first, limit: strips });
        }
        if [self.routes].into_iter().chain(self.input.activations()).any(|read| read == self.out) {
            let expected = "another buffer than its inputs: all of these are read for every strip";
            return Err(OperandError::Aliased { operand: "out", buffer: self.out, expected });
        }
        let whole = |buffer, extents: [usize; 2]| Region::new(buffer, &extents.map(Span::all));
        reads.extend([self.gate, self.up].map(|weight| whole(weight, [all, k])));
        let biases = [self.gate_bias, self.up_bias].into_iter().flatten();
        reads.extend(biases.map(|bias| Region::new(bias, &[Span::all(all)])));
        let [height, width] = ops.shape("routes", self.routes)?;
        reads.push(whole(self.routes, [height, width]));
        let tile = |strip| Region::new(self.out, &[self.rows, Span::new(strip * STRIP, (strip + 1) * STRIP)]);
        Ok(Footprint::new(reads, self.strips.below(strips).map(tile).collect()))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [all, k] = on.shape(self.gate)?;
        let n = all / self.experts;
        let x = activations(on, &self.input, self.rows)?;
        let slots = used(on, self.routes, self.rows.len())?;
        let [_, width] = on.shape(self.out)?;
        for strip in self.strips.below(slots.len() * n / STRIP) {
            let Slot { expert, weights } = &slots[strip * STRIP / n];
            let rows = slots[strip * STRIP / n].rows();
            let chosen: Vec<f32> = rows.iter().flat_map(|&row| &x[row * k..(row + 1) * k]).copied().collect();
            let first = expert * n + strip * STRIP % n;
            let product = |weight, bias: Option<BufferId>| -> Done<Vec<f32>> {
                let mut y = vec![0.0; rows.len() * STRIP];
                on.linear(&chosen, k, weight, first * k, &mut y)?;
                let Some(bias) = bias else { return Ok(y) };
                let bias = on.read(bias, first, STRIP)?;
                Ok(y.chunks_exact(STRIP).flat_map(|y| naive::add(y, &bias)).collect())
            };
            let [gate, up] = [product(self.gate, self.gate_bias)?, product(self.up, self.up_bias)?];
            let gated = naive::gated(self.activation, &gate, &up);
            let mut out = vec![vec![0.0; STRIP]; weights.len()];
            for (&row, gated) in rows.iter().zip(gated.chunks_exact(STRIP)) {
                out[row] = gated.iter().map(|y| weights[row] * y).collect();
            }
            out.iter().enumerate().try_for_each(|(row, out)| on.write(self.out, row * width + strip * STRIP, out))?;
        }
        Ok(())
    }

    fn chosen_by(&self) -> Option<BufferId> {
        Some(self.routes)
    }

    fn accesses(&self) -> Vec<Access> {
        let mut all = self.input.accesses(self.rows, [self.gate, self.up]);
        all.extend(Access::weights([self.input.norm_weight(), self.gate_bias, self.up_bias].into_iter().flatten()));
        all.push(Access::new(self.routes, AccessRole::Part).flagged());
        all.push(Access::output(self.out).flagged());
        all
    }

    /// The strips of the slots that are in use, if rows choose experts uniformly.
    fn drawn(&self, region: &Region, ops: &Operands, _: usize) -> usize {
        if ![self.gate, self.up].contains(&region.buffer) {
            return region.elements();
        }
        let found = || -> Check<f64> {
            let [_, k] = ops.shape("gate", self.gate)?;
            let shape = shape(self.rows.len(), self.experts, self.chosen)?;
            let strips = shape.slots() as usize * self.features(ops)? / STRIP;
            let all = self.strips.below(strips).count() * STRIP * k;
            Ok(all as f64 * expected(shape) / f64::from(shape.slots()))
        };
        found().map_or(0, |elements| elements as usize)
    }
}
