//! Sums of parts, with the launch of the norm that follows.

use crate::ops::{Reduce, SumNorm};
use crate::vm::Unsupported;
use crate::vm::graph::{GraphPlanner, LaunchOp, NormOf};

impl LaunchOp for Reduce {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        match self.norm {
            None => plan.exchange(&self.parts, self.residual, self.out),
            Some(SumNorm { weight, eps, layer }) => match (layer, self.residual, self.parts.as_slice()) {
                (None, _, _) => {
                    let norm = NormOf { x: self.out, weight, eps, layer };
                    plan.add_normed_parts(&self.parts, self.residual, norm)
                }
                (Some(_), None, &[x]) => {
                    plan.norm_for_readers(self.out, NormOf { x, weight, eps, layer });
                    Ok(())
                }
                (Some(_), _, _) => {
                    Err(Unsupported::Launch { what: "a layer norm of anything but the residual stream" })
                }
            },
        }
    }
}
