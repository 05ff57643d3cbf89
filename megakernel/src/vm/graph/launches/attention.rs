//! Attention of all rows as two launches on pages: rows that are sequences of their own, and
//! consecutive tokens of a sequence together.

use std::f32::consts::LOG2_E;

use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_kernels::attention::ScoreVariant;
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout, hopper, warps};
use tilewright_kernels::kv::{CpAsync, KvFamily, PoolType, Tma, WidenPages, is_swizzled};

use crate::ops::Attention;
use crate::vm::Unsupported;
use crate::vm::graph::{GraphPlanner, GraphTuning, LaunchArg, LaunchGrid, LaunchMemory, LaunchOp, RowHeads, Scratch};
use crate::vm::multiple;

/// Tokens of its tiles where `mma.sync` copies them.
const DECODE_TILE: u32 = 16;
/// Kv heads whose keys and values share L2.
const SHARE_L2: u32 = 4;

impl LaunchOp for Attention {
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported> {
        // Launches attend to all tokens of a sequence.
        if self.selection.is_some() {
            return Err(Unsupported::Launch { what: "attention to selected blocks" });
        }
        if self.shares_pool() {
            return Err(Unsupported::Launch { what: "heads that attend to latent vectors" });
        }
        let [rows, heads, depth] = plan.extents(self.q)?;
        let [kv_heads, pages, page_tokens, _] = plan.pool(self.k_pool)?;
        plan.pool(self.v_pool)?;
        let [_, width] = plan.extents(self.at.page_table)?;
        if !Prefill::DEPTHS.contains(&depth) {
            let what = "dimensions of a head";
            let found = depth as usize;
            return Err(Unsupported::Number { what, found, expected: "32, 64, 80, 96, 112, 128, 192 or 256" });
        }
        multiple("tokens of a page", page_tokens, 8, "a multiple of 8")?;
        let queries = plan.heads_of(self.q)?;
        if queries != (RowHeads { scratch: Scratch::Queries, first: 0, of_row: heads }) {
            return Err(Unsupported::Launch { what: "attention of queries that are not rotated" });
        }
        let group = heads / kv_heads;
        // Codes are made bf16 for the tokens of sequences, and rows of their own are sequences
        // then.
        let codes = plan.pool_type(self.k_pool)? == PoolType::E4m3;
        if !codes && Decode::DEPTHS.contains(&depth) && group <= Decode::MOST_GROUP {
            self.decode(plan, [rows, heads, depth], [kv_heads, pages, page_tokens])?;
        }
        let kv = Kv::Paged { page_tokens, swizzled: true };
        let scores = self.variant();
        let prefill = Prefill {
            depth,
            value_depth: None,
            group,
            causal: true,
            queries: QueryLayout::Ragged,
            kv,
            scores,
            lse: false,
        };
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
        if codes {
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
        plan.stands_for(self.acc, RowHeads { scratch: Scratch::Attended, first: 0, of_row: heads });
        let starts = [LaunchMemory::QueryStarts, LaunchMemory::TokenStarts, LaunchMemory::SequenceTables];
        args.extend(starts.map(LaunchArg::Pointer));
        let sharing = (SHARE_L2 * group).min(heads);
        args.extend([width, plane, tiles, heads, sharing].map(LaunchArg::Number));
        args.extend(self.score_args(plan)?);
        args.push(LaunchArg::Pointer(out));
        plan.launch(kernel, LaunchGrid::PerSequence(tiles * heads), args);
        Ok(())
    }
}

impl Attention {
    /// The parameters of a launch from the scale to the last modifier.
    fn score_args(&self, plan: &mut GraphPlanner) -> Result<Vec<LaunchArg>, Unsupported> {
        let scale = LaunchArg::Factor(self.scale * LOG2_E);
        let cap = self.soft_cap.map(LaunchArg::Factor);
        let sinks = self.sinks.map(|sinks| plan.plain(sinks)).transpose()?;
        let sinks = sinks.map(|(memory, _)| LaunchArg::Pointer(memory));
        Ok([scale].into_iter().chain(cap).chain(self.window.map(LaunchArg::Number)).chain(sinks).collect())
    }

    fn variant(&self) -> ScoreVariant {
        ScoreVariant { sinks: self.sinks.is_some(), ..self.modifier().variant() }
    }

    /// Rows at the beginning of the step that are sequences of their own: blocks share the tokens
    /// of a row.
    ///
    /// The launch after this one overwrites what this one leaves for rows that are not: zeros.
    fn decode(
        &self,
        plan: &mut GraphPlanner,
        [rows, heads, depth]: [u32; 3],
        [kv_heads, pages, page_tokens]: [u32; 3],
    ) -> Result<(), Unsupported> {
        let arch = plan.arch;
        let group = heads / kv_heads;
        let by_maps = arch == Arch::Sm90a;
        let tuning = plan.tuning.unwrap_or_else(|| GraphTuning::of([depth, group], rows));
        let GraphTuning { tile, stages, staying, splits, .. } = tuning;
        let staying = if by_maps { staying } else { 0 };
        let tile = if by_maps { tile } else { DECODE_TILE };
        let layout = Layout::Paged { page_tokens, swizzled: true };
        let decode = Decode { depth, value_depth: None, group, layout, tile, scores: self.variant(), lse: false };
        let kernel = plan.kernel(format!("{decode:?}"), || match (by_maps, stages) {
            (false, _) => recorded::<CpAsync<2>>(decode, arch, staying > 0),
            (true, 3) => recorded::<Tma<3>>(decode, arch, staying > 0),
            (true, 4) => recorded::<Tma<4>>(decode, arch, staying > 0),
            (true, _) => recorded::<Tma<2>>(decode, arch, staying > 0),
        });
        let alone = plan.rows_alone(rows);
        let splits = if splits > 0 { splits } else { plan.splits(rows, kv_heads) };
        let parts = u64::from(alone) * u64::from(heads * splits);
        let plane = pages * page_tokens * depth;
        let pools = [self.k_pool, self.v_pool].map(LaunchMemory::Pool);
        let queries = LaunchArg::Pointer(LaunchMemory::Scratch(Scratch::Queries));
        let mut args = vec![queries];
        if by_maps {
            let box_rows = Tma::box_rows(decode.tokens(), Some(page_tokens));
            let swizzled = is_swizzled(depth);
            let shape = Tma::map(depth, [pages * page_tokens, kv_heads], [depth, plane], box_rows, swizzled);
            args.extend(pools.map(|pool| LaunchArg::Map(pool, shape.clone())));
        } else {
            args.extend(pools.map(LaunchArg::Pointer));
        }
        let [_, width] = plan.extents(self.at.page_table)?;
        args.extend([LaunchMemory::Lengths, LaunchMemory::Cell(self.at.page_table)].map(LaunchArg::Pointer));
        args.extend([width, plane].map(LaunchArg::Number));
        args.extend(self.score_args(plan)?);
        let room = [
            plan.scratch(Scratch::SplitSums, parts * u64::from(depth) * 4),
            plan.scratch(Scratch::SplitStats, parts * 8),
            plan.scratch(Scratch::SplitsDone, u64::from(alone * kv_heads) * 4),
            plan.scratch(Scratch::Attended, u64::from(rows) * u64::from(heads * depth) * 2),
        ];
        args.extend(room.map(LaunchArg::Pointer));
        let grid = match staying {
            0 => LaunchGrid::PerRow([splits, kv_heads]),
            _ => {
                args.extend([splits, kv_heads, alone].map(LaunchArg::Number));
                LaunchGrid::WithRows((staying * plan.multiprocessors).min(splits * kv_heads * alone))
            }
        };
        plan.launch(kernel, grid, args);
        Ok(())
    }
}

/// The kernel of decode attention, whose blocks stay or have a share each.
fn recorded<F: KvFamily>(decode: Decode, arch: Arch, stays: bool) -> Kernel {
    if stays { decode.record_staying::<F>(arch) } else { decode.record::<F>(arch) }
}
