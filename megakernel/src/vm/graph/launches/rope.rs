//! Heads that are normalised and rotated by a launch of their own.

use crate::ops::{HeadOutput, Rope};
use crate::vm::Unsupported;
use crate::vm::graph::{GraphPlanner, HeadsOut, HeadsPart, LaunchOp};

impl LaunchOp for Rope {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        let (Some(rope), None) = (&self.rope, self.columns) else {
            return Err(Unsupported::Launch { what: "heads that attend to latent vectors" });
        };
        let [_, heads, dim] = plan.extents(self.x)?;
        let to = match self.output {
            HeadOutput::Store { out } => HeadsOut::Queries(out),
            HeadOutput::Append { pool } => HeadsOut::Pool(pool),
        };
        let norm = self.norm.as_ref().map(|norm| (norm.weight, norm.eps));
        let from = plan.heads_of(self.x)?;
        plan.finish_heads(&self.at, dim, &[HeadsPart { from, heads, norm, rotation: Some(rope), to }])
    }
}
