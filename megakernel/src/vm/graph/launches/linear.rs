//! A linear layer as launches: its norm, and a product of all rows.

use tilewright_kernels::activation::SoftCap;
use tilewright_kernels::epilogue::ResultFunctions;
use tilewright_kernels::gemv::hopper::WeightRows;

use crate::ops::{Linear, LinearInput, LinearOutput};
use crate::vm::Unsupported;
use crate::vm::graph::{GraphPlanner, LaunchOp, NormActivations, NormOf, ProductInput, RowHeads, Scratch};

impl LaunchOp for Linear {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        let [rows, _] = plan.extents(self.output.out())?;
        plan.rows(rows)?;
        let a = activations(plan, &self.input)?;
        let [features, _] = plan.extents(self.weight)?;
        let layer = (self.weight, self.bias);
        match self.output {
            LinearOutput::Heads { .. } => Err(Unsupported::Launch { what: "heads that attend to latent vectors" }),
            // A part of a sum, of the sum of which a norm is taken where it is the only one.
            LinearOutput::Store { out, .. } if plan.is_summed(out) => plan.part_product(a, layer, out),
            LinearOutput::Store { out, .. } if !plan.is_router(out) => {
                Err(Unsupported::Launch { what: "heads that attend to latent vectors" })
            }
            LinearOutput::Store { out, .. } => match a {
                NormActivations::Norm(norm) => plan.router(norm, layer, out),
                NormActivations::Scratch(_) | NormActivations::Stream(_) => {
                    Err(Unsupported::Launch { what: "a router of anything but a norm" })
                }
            },
            LinearOutput::Add { residual, out } => plan.add_product(a, layer, [residual, out]),
            LinearOutput::Gated { activation, up, up_bias, out } => {
                let layers: Vec<_> = [layer].into_iter().chain(up.map(|up| (up, up_bias))).collect();
                let layers = &layers[..];
                let results = if up.is_some() { WeightRows::Gated(features) } else { features.into() };
                let to = Scratch::Gated;
                let functions = ResultFunctions { activation: Some(activation), ..ResultFunctions::default() };
                plan.product(&ProductInput { a, layers, results, functions, to })?;
                plan.stands_for(out, RowHeads { scratch: Scratch::Gated, first: 0, of_row: 1 });
                Ok(())
            }
            LinearOutput::Logits { soft_cap, .. } => match a {
                NormActivations::Norm(norm) => {
                    let soft_cap = soft_cap.map(SoftCap::new).transpose()?;
                    plan.norm(norm).and_then(|_| plan.logits(layer, soft_cap))
                }
                NormActivations::Scratch(_) | NormActivations::Stream(_) => {
                    Err(Unsupported::Launch { what: "an output projection of anything but a norm" })
                }
            },
        }
    }
}

/// The activations of a layer, bf16 `[rows, k]`.
pub(super) fn activations(plan: &GraphPlanner, input: &LinearInput) -> Result<NormActivations, Unsupported> {
    let whole = |x, scratch| plan.whole(x, scratch).map(|()| NormActivations::Scratch(scratch));
    match *input {
        LinearInput::RmsNorm { x, weight, eps } => Ok(NormActivations::Norm(NormOf { x, weight, eps, layer: None })),
        LinearInput::Plain { x } => match plan.norm_read_as(x) {
            Some(norm) => Ok(NormActivations::Norm(norm)),
            None if plan.is_stream(x) => Ok(NormActivations::Stream(x)),
            None => whole(x, Scratch::Gated),
        },
        LinearInput::Combine { acc, .. } => whole(acc, Scratch::Attended),
        LinearInput::Heads { .. } | LinearInput::CombineHeads { .. } => {
            Err(Unsupported::Launch { what: "heads that attend to latent vectors" })
        }
    }
}
