//! Sums of parts, with the launch of the norm that follows.

use crate::ops::{NormWeight, Reduce};
use crate::vm::Unsupported;
use crate::vm::graph::{GraphPlanner, LaunchOp, NormOf};

impl LaunchOp for Reduce {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        match self.norm {
            None => plan.exchange(&self.parts, self.residual, self.out),
            Some(NormWeight { weight, eps }) => {
                let norm = NormOf { x: self.out, weight, eps };
                plan.add_normed_parts(&self.parts, self.residual, norm)
            }
        }
    }
}
