//! Rows of an embedding table, with the launch of the norm that follows.

use tilewright_kernels::tile::Float;

use crate::ops::Embed;
use crate::vm::Unsupported;
use crate::vm::graph::{Begun, Embedding, GraphPlanner, LaunchMemory, LaunchOp};
use crate::vm::multiple;

impl LaunchOp for Embed {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        let [rows, width] = plan.extents(self.out)?;
        let rows = plan.rows(rows)?;
        multiple("the columns of an embedding", width, 4, "a multiple of 4")?;
        let (table, order) = plan.table(self.table, width)?;
        let [count, _] = plan.extents(self.table)?;
        let shard = self.shard.map(|shard| [shard.first as u32, count]);
        let out = match self.sent.is_empty() {
            true => plan.residual(self.out, [rows, width]),
            false => plan.part(self.out, [rows, width], Float::F32),
        };
        let args = [LaunchMemory::Cell(self.ids), LaunchMemory::Cell(self.position), table, out];
        let scale = self.scale.unwrap_or(1.0);
        let embedding = Embedding { order, args, scale, shard, rows, width };
        plan.begin(self.out, Begun::Embedding(embedding));
        Ok(())
    }
}
