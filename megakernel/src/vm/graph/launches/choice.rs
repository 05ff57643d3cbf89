//! The choice of the next tokens as a launch.

use crate::ops::{Argmax, Sample};
use crate::vm::Unsupported;
use crate::vm::graph::{GraphPlanner, LaunchOp};

impl LaunchOp for Argmax {
    /// Of rows that are named; their logits are computed with it.
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        plan.choose(false)
    }
}

impl LaunchOp for Sample {
    /// Of rows that are named; their logits are computed with it.
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        plan.choose(true)
    }
}
