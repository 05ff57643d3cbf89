//! Mixtures of experts: choices sorted by expert, grouped products of them, weighted sums.
//!
//! | launch | reads | writes |
//! |---|---|---|
//! | the router's product | [`Scratch::Normed`] | [`Scratch::RouterLogits`] |
//! | [`route_rows`] | these | [`Scratch::ExpertIds`], [`Scratch::ExpertWeights`] |
//! | [`sort_choices`] | ids | [`Scratch::ExpertOffsets`], [`Scratch::ExpertOrder`] |
//! | gate and up, gathered | [`Scratch::Normed`] | [`Scratch::ExpertGated`] |
//! | down, scattered | these | [`Scratch::ExpertResults`] |
//! | [`weighted_sum_rows`] | results and weights | the residual stream, or a part of a sum |
//!
//! Only the device knows how many rows an expert has.

use half::bf16;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::{Epilogue, ResultFunctions};
use tilewright_kernels::gemm::GemmDevice;
use tilewright_kernels::gemm::grouped::{self, GroupedBuffer, GroupedProblem};
use tilewright_kernels::route::{
    RouterKind, RouterShape, SortShape, SumShape, route_rows, sort_choices, weighted_sum_rows,
};
use tilewright_kernels::tile::Float;

use super::activations::{Multiply, NormActivations, NormOf};
use super::launch::{LaunchArg, LaunchGrid, LaunchMemory, Scratch};
use super::planner::{GraphPlanner, RowHeads, WARPS, number_of};
use super::products::{ALIGNED, launch};
use crate::program::BufferId;
use crate::vm::Unsupported;

/// Warps of a block of the router, each of which has a row.
const ROUTER_WARPS: u32 = 4;

/// The sizes that products of experts share.
#[derive(Clone, Copy)]
pub(crate) struct ExpertProduct {
    /// Experts.
    pub experts: u32,
    /// Experts of a row.
    pub chosen: u32,
}

/// The destination of the weighted sums of experts.
#[derive(Clone, Copy)]
pub(crate) enum ExpertSums {
    /// They are a part of a sum.
    Part { out: BufferId },
    /// They are added to the residual stream, which makes `out`.
    Residual { residual: BufferId, out: BufferId },
}

/// The operands of a grouped product.
struct Grouped {
    problem: GroupedProblem,
    a: Scratch,
    /// Weights of all experts with their biases: of a gated product those of gates first.
    layers: Vec<(BufferId, Option<BufferId>)>,
    to: LaunchMemory,
}

impl GraphPlanner<'_> {
    /// Whether experts are chosen by the numbers of a buffer.
    pub(crate) fn is_router(&self, out: BufferId) -> bool {
        self.router_logits.contains(&out)
    }

    /// Whether a level adds up what a buffer has.
    pub(crate) fn is_summed(&self, out: BufferId) -> bool {
        self.summed.contains(&out)
    }

    /// The router's logits, f32, of a norm that the experts read too.
    pub(crate) fn router(
        &mut self,
        norm: NormOf,
        layer: (BufferId, Option<BufferId>),
        out: BufferId,
    ) -> Result<(), Unsupported> {
        let a = LaunchMemory::Scratch(self.norm(norm)?);
        let rows = self.plan.rows;
        let [experts, _] = self.extents(layer.0)?;
        let to = self.scratch(Scratch::RouterLogits, u64::from(rows) * u64::from(experts) * 4);
        let layers = &[layer][..];
        let results = experts.into();
        let functions = ResultFunctions::default();
        let product = Multiply { rows, a, layers, results, functions, to, wide: true, added: false };
        let launches = self.multiply(&product)?;
        self.plan.launches.extend(launches);
        self.stands_for(out, RowHeads { scratch: Scratch::RouterLogits, first: 0, of_row: 1 });
        Ok(())
    }

    /// The choice of experts for all rows, sorted by expert.
    pub(crate) fn choose_experts(
        &mut self,
        logits: BufferId,
        chosen: u32,
        kind: RouterKind,
    ) -> Result<(), Unsupported> {
        self.whole(logits, Scratch::RouterLogits)?;
        let [rows, experts] = self.extents(logits)?;
        let choices = self.choices(chosen)?;
        let arch = self.arch;
        let router = RouterShape { experts, chosen, kind, warps: ROUTER_WARPS };
        let kernel = self.kernel(format!("{router:?}"), || route_rows(arch, router));
        let logits = LaunchMemory::Scratch(Scratch::RouterLogits);
        let [ids, weights, order] = [Scratch::ExpertIds, Scratch::ExpertWeights, Scratch::ExpertOrder]
            .map(|scratch| self.scratch(scratch, u64::from(choices) * 4));
        let offsets = self.scratch(Scratch::ExpertOffsets, (u64::from(experts) + 1) * 4);
        let pointers = |memory: [LaunchMemory; 3]| memory.map(LaunchArg::Pointer);
        let args = [LaunchArg::Number(rows)].into_iter().chain(pointers([logits, ids, weights])).collect();
        self.launch(kernel, LaunchGrid::Blocks(rows.div_ceil(ROUTER_WARPS)), args);
        let sort = SortShape { experts, first: 0, inverse: false };
        let kernel = self.kernel(format!("{sort:?}"), || sort_choices(arch, sort));
        let args = [LaunchArg::Number(choices)].into_iter().chain(pointers([ids, offsets, order])).collect();
        self.launch(kernel, LaunchGrid::Blocks(1), args);
        Ok(())
    }

    /// Gate and up of the chosen experts.
    pub(crate) fn expert_gate_up(
        &mut self,
        size: ExpertProduct,
        a: NormActivations,
        layers: [(BufferId, Option<BufferId>); 2],
        activation: Activation,
    ) -> Result<(), Unsupported> {
        let NormActivations::Norm(norm) = a else {
            return Err(Unsupported::Launch { what: "experts of anything but a norm" });
        };
        let a = self.norm(norm)?;
        if layers[0].1.is_some() != layers[1].1.is_some() {
            return Err(Unsupported::Launch { what: "gated experts of which one product alone has biases" });
        }
        let [all, k] = self.extents(layers[0].0)?;
        let inner = all / size.experts.max(1);
        let choices = self.choices(size.chosen)?;
        let to = self.scratch(Scratch::ExpertGated, u64::from(choices) * u64::from(inner) * 2);
        let problem = GroupedProblem::new(size.experts, choices, inner, k).gather(size.chosen);
        let problem = problem.epilogue(Epilogue::gate(activation));
        self.grouped(Grouped { problem, a, layers: layers.to_vec(), to })
    }

    /// The second product of the chosen experts, and their weighted sums.
    pub(crate) fn expert_down(
        &mut self,
        size: ExpertProduct,
        layer: (BufferId, Option<BufferId>),
        sums: ExpertSums,
    ) -> Result<(), Unsupported> {
        let ExpertProduct { experts, chosen } = size;
        let [all, k] = self.extents(layer.0)?;
        let width = all / experts.max(1);
        let rows = self.plan.rows;
        let choices = self.choices(chosen)?;
        let y = self.scratch(Scratch::ExpertResults, u64::from(choices) * u64::from(width) * 2);
        let problem = GroupedProblem::new(experts, choices, width, k).scatter();
        self.grouped(Grouped { problem, a: Scratch::ExpertGated, layers: vec![layer], to: y })?;
        let (out, residual, to) = match sums {
            ExpertSums::Part { out } => {
                let part = self.next_part([rows, width]);
                (Float::Bf16, None, self.part_in(part, out, [rows, width], Float::Bf16))
            }
            ExpertSums::Residual { residual, out } => {
                self.whole(residual, Scratch::Residual)?;
                self.heads.remove(&residual);
                let stream = self.residual(out, [rows, width]);
                (Float::F32, Some(stream), stream)
            }
        };
        let is_added = residual.is_some();
        let shape = SumShape { width, chosen, y: Float::Bf16, out, residual: is_added, inverse: false, warps: WARPS };
        let arch = self.arch;
        let kernel = self.kernel(format!("{shape:?}"), || weighted_sum_rows(arch, shape));
        let weights = LaunchMemory::Scratch(Scratch::ExpertWeights);
        let memory = [y, weights].into_iter().chain(residual).chain([to]);
        self.launch(kernel, LaunchGrid::Blocks(rows), memory.map(LaunchArg::Pointer).collect());
        Ok(())
    }

    /// The choices of all rows, whose places kernels count in 32 bits.
    fn choices(&self, chosen: u32) -> Result<u32, Unsupported> {
        let choices = self.plan.rows.checked_mul(chosen);
        choices.ok_or(Unsupported::Launch { what: "a step with more than 2^32 choices of experts" })
    }

    fn grouped(&mut self, product: Grouped) -> Result<(), Unsupported> {
        self.settle();
        let Grouped { problem, a, layers, to } = product;
        let weights = self.matrix(layers.iter().map(|layer| layer.0).collect())?;
        let bias = self.bias(&layers);
        let problem = problem.epilogue(Epilogue { bias: bias.is_some(), ..problem.epilogue });
        if !self.grouped_steps.contains_key(&problem) {
            let target =
                GemmDevice { arch: self.arch, multiprocessors: self.multiprocessors, aligned: ALIGNED, partials: true };
            let step = grouped::plan::<bf16, bf16>(problem, target)?;
            let kernel = number_of(&mut self.plan.kernels, step.kernel.clone());
            self.grouped_steps.insert(problem, (kernel, step));
        }
        let (kernel, step) = self.grouped_steps[&problem].clone();
        let memory = |of| match of {
            GroupedBuffer::A => LaunchMemory::Scratch(a),
            GroupedBuffer::B => weights,
            GroupedBuffer::Offsets => LaunchMemory::Scratch(Scratch::ExpertOffsets),
            GroupedBuffer::Order => LaunchMemory::Scratch(Scratch::ExpertOrder),
            GroupedBuffer::Bias => bias.unwrap_or(to),
            GroupedBuffer::C | GroupedBuffer::AScale | GroupedBuffer::BScale | GroupedBuffer::Residual => to,
        };
        self.plan.launches.push(launch(kernel, step, memory));
        Ok(())
    }
}
