//! The second product of the chosen experts, summed.

use serde::{Deserialize, Serialize};
use tilewright_kernels::naive;

use super::route::all_rows;
use super::routes::{expected, shape, slots, used};
use crate::oracle::{Context, Done};
use crate::program::{
    Access, AccessRole, BufferId, Check, Footprint, OperandError, Operands, Region, Span, TaskOp, interval, multiple,
};

/// `y[r, c] = Σ_s Σ_i x[r, s · n + i] · weight_e[c, i]` over the slots of the routes that are in
/// use, where `e` is the expert of slot `s`; then what [`ExpertOutput`] says. The weights of routes
/// are in `x` already ([`ExpertGateUp`](super::ExpertGateUp)). With a bias `Σ_s w · bias_e[c]` is
/// added, where `w` is the weight of slot `s` for row `r`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpertDown {
    /// Activations, `[rows, slots · n]`.
    pub x: BufferId,
    /// The table of routes, which [`Route`](super::Route) makes.
    pub routes: BufferId,
    /// Experts.
    pub experts: usize,
    /// Experts that are chosen for each row.
    pub chosen: usize,
    /// Weights, `[experts · m, n]`.
    pub weight: BufferId,
    /// Biases, `[experts · m]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<BufferId>,
    /// Rows of the batch: all.
    pub rows: Span,
    /// Output features that this task computes.
    pub cols: Span,
    /// The destination of the sums.
    pub output: ExpertOutput,
}

/// The destination of the sums of experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ExpertOutput {
    /// `out[r, c] = y[r, c]`.
    Store {
        /// Output, `[rows, m]`.
        out: BufferId,
        /// Buffers that get the same, on whatever device they lie.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sent: Vec<BufferId>,
    },
    /// `out[r, c] = residual[r, c] + y[r, c]`.
    Add {
        /// The residual stream before, `[rows, m]`.
        residual: BufferId,
        /// The residual stream after, `[rows, m]`.
        out: BufferId,
    },
}

impl ExpertDown {
    /// Features of an expert's result, of checked operands.
    fn features(&self, ops: &Operands) -> Check<usize> {
        let [all, _] = ops.floats("weight", self.weight)?;
        multiple("rows of weight", all, self.experts)?;
        self.bias.map(|bias| ops.floats_of("bias", bias, [all])).transpose()?;
        Ok(all / self.experts)
    }
}

impl TaskOp for ExpertDown {
    fn name() -> &'static str {
        "expert_down"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let m = self.features(ops)?;
        let [all, n] = ops.shape("weight", self.weight)?;
        let [rows, width] = ops.floats("x", self.x)?;
        all_rows(self.rows, rows)?;
        let slots = slots(ops, self.routes, shape(rows, self.experts, self.chosen)?)?;
        ops.floats_of("x", self.x, [rows, slots.saturating_mul(n)])?;
        interval("cols", self.cols, m)?;
        let whole = |buffer, extents: [usize; 2]| Region::new(buffer, &extents.map(Span::all));
        let [height, table_width] = ops.shape("routes", self.routes)?;
        let mut reads =
            vec![whole(self.x, [rows, width]), whole(self.weight, [all, n]), whole(self.routes, [height, table_width])];
        reads.extend(self.bias.map(|bias| Region::new(bias, &[Span::all(all)])));
        let tile = |buffer| Region::new(buffer, &[self.rows, self.cols]);
        let (out, others) = match self.output {
            ExpertOutput::Store { out, ref sent } => (out, sent.as_slice()),
            ExpertOutput::Add { residual, out } => {
                ops.floats_of("residual", residual, [rows, m])?;
                reads.push(tile(residual));
                (out, [].as_slice())
            }
        };
        for &buffer in others.iter().chain([&out]) {
            ops.floats_of("out", buffer, [rows, m])?;
            if [self.x, self.routes].contains(&buffer) {
                let expected = "another buffer than its inputs: all of these are read for every feature";
                return Err(OperandError::Aliased { operand: "out", buffer, expected });
            }
        }
        let updated = match self.output {
            ExpertOutput::Add { residual, .. } => Some(tile(residual)),
            ExpertOutput::Store { .. } => None,
        };
        let writes = others.iter().chain([&out]).map(|&buffer| tile(buffer)).collect();
        Ok(Footprint::new(reads, writes).updating(updated).sending(others.iter().copied()))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [all, n] = on.shape(self.weight)?;
        let m = all / self.experts;
        let [rows, width] = on.shape(self.x)?;
        let x = on.read(self.x, 0, rows * width)?;
        let mut y = vec![vec![0.0; self.cols.len()]; rows];
        for (number, slot) in used(on, self.routes, rows)?.iter().enumerate() {
            let of_slot = |row: usize| &x[row * width + number * n..][..n];
            let chosen: Vec<f32> = slot.rows().iter().flat_map(|&row| of_slot(row)).copied().collect();
            let mut product = vec![0.0; slot.rows().len() * self.cols.len()];
            on.linear(&chosen, n, self.weight, (slot.expert * m + self.cols.lo) * n, &mut product)?;
            let bias = self.bias.map(|bias| on.read(bias, slot.expert * m + self.cols.lo, self.cols.len()));
            let bias = bias.transpose()?;
            for (row, product) in slot.rows().into_iter().zip(product.chunks_exact(self.cols.len())) {
                y[row] = naive::add(&y[row], product);
                if let Some(bias) = &bias {
                    let weighted: Vec<f32> = bias.iter().map(|bias| slot.weights[row] * bias).collect();
                    y[row] = naive::add(&y[row], &weighted);
                }
            }
        }
        for (row, y) in y.iter().enumerate() {
            let at = row * m + self.cols.lo;
            match self.output {
                ExpertOutput::Store { out, ref sent } => {
                    sent.iter().chain([&out]).try_for_each(|&out| on.write(out, at, y))?;
                }
                ExpertOutput::Add { residual, out } => {
                    on.write(out, at, &naive::add(&on.read(residual, at, y.len())?, y))?;
                }
            }
        }
        Ok(())
    }

    fn chosen_by(&self) -> Option<BufferId> {
        Some(self.routes)
    }

    fn accesses(&self) -> Vec<Access> {
        let even = self.cols.is_in_steps_of(2);
        let whole_strips = self.cols.is_in_steps_of(8);
        let mut all = vec![Access::input(self.x).flagged(), Access::new(self.routes, AccessRole::Part).flagged()];
        all.extend(Access::weights(self.bias));
        match &self.output {
            ExpertOutput::Store { out, sent } => {
                all.extend(sent.iter().chain([out]).map(|&out| Access::output(out).flagged_if(even)));
            }
            ExpertOutput::Add { residual, out } => {
                all.push(Access::new(*residual, AccessRole::Residual).flagged());
                all.push(Access::output(*out).flagged_if(even).splitting_if(whole_strips));
            }
        }
        all
    }

    /// The rows of this task's features of the experts that rows choose uniformly.
    fn drawn(&self, region: &Region, ops: &Operands, _: usize) -> usize {
        if region.buffer != self.weight {
            return region.elements();
        }
        let found = || -> Check<f64> {
            let [_, n] = ops.shape("weight", self.weight)?;
            let shape = shape(self.rows.len(), self.experts, self.chosen)?;
            Ok((self.cols.len() * n) as f64 * expected(shape))
        };
        found().map_or(0, |elements| elements as usize)
    }
}
