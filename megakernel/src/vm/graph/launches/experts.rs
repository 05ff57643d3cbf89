//! A mixture of experts as launches: the choice for all rows, sorted by expert, and two grouped
//! products.

use super::linear::activations;
use crate::ops::{ExpertDown, ExpertGateUp, ExpertOutput, Route};
use crate::vm::Unsupported;
use crate::vm::graph::{ExpertProduct, ExpertSums, GraphPlanner, LaunchOp};

impl LaunchOp for Route {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        if self.correction.is_some() {
            return Err(Unsupported::Launch { what: "a choice of experts that is corrected" });
        }
        plan.choose_experts(self.logits, self.chosen as u32, self.router())
    }
}

impl LaunchOp for ExpertGateUp {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        let a = activations(plan, &self.input)?;
        let size = ExpertProduct { experts: self.experts as u32, chosen: self.chosen as u32 };
        plan.expert_gate_up(size, a, [(self.gate, self.gate_bias), (self.up, self.up_bias)], self.activation)
    }
}

impl LaunchOp for ExpertDown {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        let size = ExpertProduct { experts: self.experts as u32, chosen: self.chosen as u32 };
        let sums = match self.output {
            ExpertOutput::Store { out, .. } => ExpertSums::Part { out },
            ExpertOutput::Add { residual, out } => ExpertSums::Residual { residual, out },
        };
        plan.expert_down(size, (self.weight, self.bias), sums)
    }
}
