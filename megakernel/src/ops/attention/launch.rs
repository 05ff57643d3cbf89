//! Attention of all rows as one launch: consecutive tokens of a sequence together, on its pages.

use std::f32::consts::LOG2_E;

use tilewright_codegen::ir::Arch;
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout, hopper, warps};
use tilewright_kernels::kv::{CpAsync, PoolType, Tma, WidenPages, is_swizzled};

use super::Attention;
use crate::ops::Op;
use crate::program::Span;
use crate::vm::device::{Unsupported, multiple};
use crate::vm::graph::{GraphPlanner, Heads, LaunchArg, LaunchGrid, LaunchMemory, LaunchOp, Scratch};

/// Dimensions of a head that the kernels are made for.
const DEPTHS: [u32; 5] = [32, 64, 96, 128, 256];
/// Kv heads whose keys and values level two holds together.
const BUNCH: u32 = 4;

impl LaunchOp for Attention {
    fn level(&self) -> Op {
        Op::from(Attention { kv_head: 0, rows: Span::all(0), split: 0, ..self.clone() })
    }

    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        let ([rows, heads, depth], [kv_heads, pages, page_tokens, _]) =
            (plan.extents(self.q)?, plan.pool(self.k_pool)?);
        plan.pool(self.v_pool)?;
        let [_, width] = plan.extents(self.at.page_table)?;
        if !DEPTHS.contains(&depth) {
            let (what, found) = ("dimensions of a head", depth as usize);
            return Err(Unsupported::Number { what, found, expected: "32, 64, 96, 128 or 256" });
        }
        multiple("tokens of a page", page_tokens, 8, "a multiple of 8")?;
        let queries = plan.heads_of(self.q)?;
        if queries != (Heads { scratch: Scratch::Queries, first: 0, of_row: heads }) {
            return Err(Unsupported::Launch { what: "attention of queries that are not rotated" });
        }
        let group = heads / kv_heads;
        let kv = Kv::Paged { page_tokens, swizzled: true };
        let prefill = Prefill { depth, group, causal: true, queries: QueryLayout::Ragged, kv };
        let by_maps = plan.arch == Arch::Sm90a;
        let arch = plan.arch;
        let kernel = plan.kernel(format!("{prefill:?}"), || match by_maps {
            true => prefill.record_hopper(),
            false => prefill.record::<CpAsync<2>>(arch),
        });
        let block_rows = if by_maps { prefill.hopper_rows() } else { warps::BLOCK_ROWS };
        let tiles = rows.div_ceil(block_rows);
        let plane = pages * page_tokens * depth;
        let mut pools = [self.k_pool, self.v_pool].map(LaunchMemory::Pool);
        if plan.pool_type(self.k_pool)? == PoolType::E4m3 {
            let widen = WidenPages { heads: kv_heads, page_tokens, dim: depth };
            let kernel = plan.kernel(format!("{widen:?}"), || widen.record(arch));
            for (at, scratch) in [Scratch::Keys, Scratch::Values].into_iter().enumerate() {
                let out = plan.scratch(scratch, u64::from(plane) * u64::from(kv_heads) * 2);
                let memory = [LaunchMemory::TokenStarts, LaunchMemory::SequenceTables, pools[at], out];
                let mut args = memory.map(LaunchArg::Pointer).to_vec();
                args.extend([width, pages].map(LaunchArg::Number));
                args.push(LaunchArg::Factor(plan.buffer([self.k_pool, self.v_pool][at]).factor()));
                plan.launch(kernel, LaunchGrid::PerSequence(widen.blocks(width)), args);
                pools[at] = out;
            }
        }
        let mut args = match by_maps {
            true => {
                let of_queries = Tma::map(depth, [rows, heads], [heads * depth, depth], hopper::ROWS, false);
                let box_rows = Tma::box_rows(prefill.tuning().keys, Some(page_tokens));
                let swizzled = is_swizzled(depth);
                let of_pool = Tma::map(depth, [pages * page_tokens, kv_heads], [depth, plane], box_rows, swizzled);
                let maps = pools.map(|pool| LaunchArg::Map(pool, of_pool.clone()));
                [vec![LaunchArg::Map(LaunchMemory::Scratch(Scratch::Queries), of_queries)], maps.into()].concat()
            }
            false => {
                let pointers = [LaunchMemory::Scratch(Scratch::Queries), pools[0], pools[1]];
                pointers.map(LaunchArg::Pointer).to_vec()
            }
        };
        let out = plan.scratch(Scratch::Attended, u64::from(rows) * u64::from(heads * depth) * 2);
        plan.stands_for(self.acc, Heads { scratch: Scratch::Attended, first: 0, of_row: heads });
        let starts = [LaunchMemory::QueryStarts, LaunchMemory::TokenStarts, LaunchMemory::SequenceTables];
        args.extend(starts.map(LaunchArg::Pointer));
        let bunch = (BUNCH * group).min(heads);
        args.extend([width, plane, tiles, heads, bunch].map(LaunchArg::Number));
        args.extend([LaunchArg::Factor(self.scale * LOG2_E), LaunchArg::Pointer(out)]);
        plan.launch(kernel, LaunchGrid::PerSequence(tiles * heads), args);
        Ok(())
    }
}
