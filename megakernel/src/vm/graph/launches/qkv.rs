//! Queries, keys and values as launches: one product of all three, then rotation and append.

use tilewright_kernels::epilogue::ResultFunctions;
use tilewright_kernels::gemv::hopper::WeightRows;

use super::linear::activations;
use crate::ops::{KeyOutput, Qkv};
use crate::vm::Unsupported;
use crate::vm::graph::{Appended, GraphPlanner, HeadsOut, HeadsPart, LaunchOp, ProductInput, RowHeads, Scratch};

impl LaunchOp for Qkv {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        let a = activations(plan, &self.input)?;
        let layers = [&self.wq, &self.wk, &self.wv].map(|layer| (layer.weight, layer.bias));
        let [_, heads, dim] = plan.extents(self.q)?;
        let [kv_heads, ..] = plan.pool(self.v_pool)?;
        let results = WeightRows::Groups { group: heads / kv_heads.max(1), kv_heads, dim };
        let functions = ResultFunctions::default();
        let product = ProductInput { a, layers: &layers, results, functions, to: Scratch::Projected };
        if let KeyOutput::RopeAppend { rope, pool } = &self.k {
            let appended = Appended { at: &self.at, rotation: rope, queries: self.q, pools: [*pool, self.v_pool] };
            if plan.appended_product(&product, &appended)? {
                return Ok(());
            }
        }
        plan.product(&product)?;
        let at = |first| RowHeads { scratch: Scratch::Projected, first, of_row: heads + 2 * kv_heads };
        let [query, key, value] = [0, heads, heads + kv_heads].map(at);
        let part = |from, heads, rotation, to| HeadsPart { from, heads, norm: None, rotation, to };
        let value = part(value, kv_heads, None, HeadsOut::Pool(self.v_pool));
        match &self.k {
            KeyOutput::RopeAppend { rope, pool } => {
                let query = part(query, heads, Some(rope), HeadsOut::Queries(self.q));
                let key = part(key, kv_heads, Some(rope), HeadsOut::Pool(*pool));
                plan.finish_heads(&self.at, dim, &[query, key, value])
            }
            KeyOutput::Raw { out } => {
                plan.stands_for(self.q, query);
                plan.stands_for(*out, key);
                plan.finish_heads(&self.at, dim, &[value])
            }
        }
    }
}
