//! A split of a kv head's tokens on a device.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_kernels::attention::ScoreModifier;
use tilewright_kernels::attention::split::{self, HeadCounts, LatentForm, Merged, SplitSignal, TokenSelection};
use tilewright_kernels::gemv::activations::ActivationOutput;
use tilewright_kernels::kv::{PageTable, PagedPool, PoolType, SplitPages, StepScalars, TokenStage};
use tilewright_kernels::tile::Float;
use tilewright_layout::DType;

use super::stream::fill;
use crate::ops::{Attention, Selection};
use crate::program::Span;
use crate::vm::device::{
    Call, DeviceFunction, DeviceOp, Generation, KvPools, Planned, Planner, RingFeed, ScaledCode, SharedBytes, Storage,
    TokenFields, TokenStream, WeightStages,
};
use crate::vm::{Unsupported, multiple, rows_of};

impl DeviceOp for Attention {
    fn rows(&self) -> Span {
        self.rows
    }

    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        if self.shares_pool() {
            return self.plan_latent(plan);
        }
        let heads = plan.extent(self.q, 1)?;
        let kv_heads = plan.extent(self.k_pool, 3)?;
        let heads = HeadCounts { heads, kv_heads, dim: plan.extent(self.q, 0)?, splits: plan.extent(self.acc, 1)? };
        multiple("the dimensions of a head", heads.dim, 8, "a multiple of 8")?;
        let pools = plan.pools(self.k_pool, &self.at)?;
        multiple("the tokens of a page", pools.page_tokens, 16, "a multiple of 16")?;
        match pools.of {
            PoolType::Float(Float::Bf16) | PoolType::E4m3 => {}
            PoolType::Float(Float::F32 | Float::F16) => {
                let what = "the key pool";
                let buffer = self.k_pool;
                let found = plan.buffer(self.k_pool)?.dtype;
                return Err(Unsupported::DType { what, buffer, found, expected: "bf16 or f8e4m3" });
            }
        }
        let current = plan.current_token();
        let period = current.map_or(0, |(_, period)| period);
        let q = Storage { float: plan.plain_float("q", self.q)?, period };
        let rows = rows_of(self.rows)?;
        let scale = self.scale;
        let out = plan.merge(self.acc)?;
        let selected = self.selection.as_ref().map(|selection| SelectedBlocks::new(plan, selection)).transpose()?;
        let [merged, arrivals] = plan.merged(self.acc)?;
        let scaled = plan.scaled_output()?;
        let (terms, merged) = scaled.map_or((None, merged), |(code, [at, ..])| (Some(code), at));
        let order = scaled.filter(|(code, _)| code.form.is_ordered()).map(|(_, [.., order])| [order, 0]);
        let merges = plan.merges_packets();
        let modifier = self.modifier();
        let has_sinks = self.sinks.is_some();
        let sinks = plan.operand_of(self.sinks)?;
        let streamed = None;
        let function =
            SplitOfTokens { rows, heads, scale, modifier, has_sinks, q, pools, out, terms, merges, selected, streamed };
        let fields = AttentionFields {
            first_row: self.rows.lo as u32,
            kv_head: self.kv_head as u32,
            split: self.split as u32,
            q: current.map_or(plan.operand(self.q), |([q, ..], _)| Ok(q))?,
            keys: plan.operand(self.k_pool)?,
            values: plan.operand(self.v_pool)?,
            acc: plan.operand(self.acc)?,
            stats: plan.operand(self.stats)?,
            merged,
            arrivals,
            current_token: current.map(|([_, keys, values], _)| [keys, values]).or(order).unwrap_or_default(),
        };
        match (pools.of, &self.selection) {
            (PoolType::Float(_), None) if has_sinks => Ok(Planned::new(function, SinkFields { fields, sinks })),
            (PoolType::Float(_), None) => {
                let all = current.is_some() || order.is_some();
                let bytes = if all { size_of_val(&fields) } else { offset_of!(AttentionFields, current_token) };
                Ok(Planned::new(function, fields).keeping(bytes))
            }
            (PoolType::Float(_), Some(_)) if has_sinks => {
                let problem = "sinks of heads that attend to selected blocks".to_owned();
                Err(Unsupported::Refused { problem })
            }
            (PoolType::Float(_), Some(selection)) => {
                let [blocks, last] = [plan.operand(selection.blocks)?, plan.operand(selection.last)?];
                Ok(Planned::new(function, SelectedFields { fields, blocks, last }))
            }
            (PoolType::E4m3, Some(_)) => {
                let what = "the key pool of selected blocks";
                let buffer = self.k_pool;
                let found = DType::F8E4M3;
                Err(Unsupported::DType { what, buffer, found, expected: "bf16" })
            }
            (PoolType::E4m3, None) => {
                let scales = [plan.pool_scale(self.k_pool)?, plan.pool_scale(self.v_pool)?];
                let fields = AttentionCodeFields { fields, scales, sinks };
                let bytes = if has_sinks { size_of_val(&fields) } else { offset_of!(AttentionCodeFields, sinks) };
                Ok(Planned::new(function, fields).keeping(bytes))
            }
        }
    }
}

impl Attention {
    /// The plan of heads that attend to one key, whose beginning is its value.
    fn plan_latent(&self, plan: &mut Planner) -> Result<Planned, Unsupported> {
        let [value, splits] = [plan.extent(self.acc, 0)?, plan.extent(self.acc, 1)?];
        let key = plan.extent(self.q, 0)?;
        let heads =
            HeadCounts { heads: plan.extent(self.q, 1)?, kv_heads: plan.extent(self.k_pool, 3)?, dim: value, splits };
        for (what, extent) in [("the dimensions of a key", key), ("the dimensions of a value", value)] {
            multiple(what, extent, 16, "a multiple of 16")?;
        }
        if heads.kv_heads != 1 || self.modifier() != ScoreModifier::NONE {
            let problem = "several latent vectors of a token, or scores with a cap or a window".to_owned();
            return Err(Unsupported::Refused { problem });
        }
        let pools = plan.pools(self.k_pool, &self.at)?;
        if pools.of != PoolType::Float(Float::Bf16) {
            let found = plan.buffer(self.k_pool)?.dtype;
            let what = "the pool of latent vectors";
            return Err(Unsupported::DType { what, buffer: self.k_pool, found, expected: "bf16" });
        }
        let rows = rows_of(self.rows)?;
        let exact = Float::enough_for(rows) == Float::F32;
        let tiles = if exact { 1 } else { heads.heads.div_ceil(16).min(2) };
        let form = LatentForm { key, tiles, exact };
        let q = Storage { float: plan.plain_float("q", self.q)?, period: 0 };
        let out = plan.merge(self.acc)?;
        let [merged, arrivals] = plan.merged(self.acc)?;
        let has_sinks = self.sinks.is_some();
        let merges = plan.merges_packets();
        let function = LatentSplit { rows, heads, form, scale: self.scale, has_sinks, q, pools, out, merges };
        let keys = plan.operand(self.k_pool)?;
        let fields = AttentionFields {
            first_row: self.rows.lo as u32,
            kv_head: 0,
            split: self.split as u32,
            q: plan.operand(self.q)?,
            keys,
            values: keys,
            acc: plan.operand(self.acc)?,
            stats: plan.operand(self.stats)?,
            merged,
            arrivals,
            current_token: [0; 2],
        };
        Ok(Planned::new(function, SinkFields { fields, sinks: plan.operand_of(self.sinks)? }))
    }
}

/// The device function of heads that attend to one key.
#[derive(Clone, Debug, PartialEq)]
struct LatentSplit {
    /// Rows of the task.
    rows: u32,
    /// Heads, dimensions of values, splits.
    heads: HeadCounts,
    /// Dimensions of keys, and how they are multiplied.
    form: LatentForm,
    /// Factor on the scores.
    scale: f32,
    /// Whether heads have sinks.
    has_sinks: bool,
    /// Storage of q.
    q: Storage,
    /// The pools.
    pools: KvPools,
    /// Storage of the merge.
    out: Storage,
    /// Whether the parts of splits are packets, for which the first split waits.
    merges: bool,
}

impl DeviceFunction for LatentSplit {
    fn shared(&self, warps: u32) -> SharedBytes {
        SharedBytes { operand: self.form.scratch_bytes(warps), sums: 0 }
    }

    fn pools(&self) -> Option<KvPools> {
        Some(self.pools)
    }

    fn signals_early(&self) -> bool {
        self.out.period > 0
    }

    fn polls_peers(&self) -> bool {
        self.merges
    }

    fn run<'k>(&self, call: Call<'k, '_>, _: &dyn WeightStages<'k>) {
        let LatentSplit { rows, heads, form, scale, has_sinks, q, pools, out, merges } = *self;
        let keys = call.pages([offset_of!(AttentionFields, keys); 2], pools);
        let arrivals = offset_of!(AttentionFields, arrivals);
        let work = split::SplitAttention {
            heads,
            rows,
            first_row: call.value(offset_of!(AttentionFields, first_row)),
            kv_head: call.builder().lit(0),
            split: call.value(offset_of!(AttentionFields, split)),
            scale,
            modifier: ScoreModifier::NONE,
            custom: None,
            sinks: has_sinks.then(|| call.plain_at(offset_of!(SinkFields, sinks)).cast()),
            q: call.stored(offset_of!(AttentionFields, q), q, Generation::Input),
            keys,
            values: keys,
            acc: call.state(offset_of!(AttentionFields, acc)).cast(),
            stats: call.state(offset_of!(AttentionFields, stats)).cast(),
            merged: Merged {
                out: ActivationOutput::Rows(call.stored(offset_of!(AttentionFields, merged), out, Generation::Output)),
                parts: match merges {
                    false => SplitSignal::Counted(call.state(arrivals).cast()),
                    true => {
                        let packets = Storage { float: Float::F32, ..out };
                        let parts = call.stored(arrivals, packets, Generation::Output);
                        SplitSignal::Packets(parts.unless(call.left()))
                    }
                },
            },
            streamed: None,
            newest: None,
            selected: None,
        };
        split::latent_attention(call.consumers(), call.scratch(), work, form, || call.signal(out));
    }
}

/// The record fields of a task whose pools hold codes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AttentionCodeFields {
    fields: AttentionFields,
    /// The factors of key codes and of value codes, as bits of f32.
    scales: [u32; 2],
    /// The sinks of heads, if they have any.
    sinks: u32,
}

/// The record fields of a task whose heads have sinks.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SinkFields {
    fields: AttentionFields,
    sinks: u32,
}

/// The record fields of a task: numbers, and operands in units of 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct AttentionFields {
    first_row: u32,
    kv_head: u32,
    split: u32,
    q: u32,
    keys: u32,
    values: u32,
    acc: u32,
    stats: u32,
    /// The merge, which is the machine's own: rows, or terms.
    merged: u32,
    /// Counts of the parts that have arrived, or their packets.
    arrivals: u32,
    /// The current token's keys and values as packets, if there are any; `q` are packets then. Or
    /// the table of the order in which terms of the merge lie: with packets there are none.
    current_token: [u32; 2],
}

// Terms have the table of their order after two words.
const _: () = assert!(offset_of!(AttentionFields, current_token) == offset_of!(AttentionFields, merged) + 8);

/// The record fields that locate keys and values.
const FIELDS: TokenFields = TokenFields {
    first_row: offset_of!(AttentionFields, first_row),
    kv_head: offset_of!(AttentionFields, kv_head),
    split: offset_of!(AttentionFields, split),
    pools: [offset_of!(AttentionFields, keys), offset_of!(AttentionFields, values)],
};

/// The record fields of a task that reads selected blocks.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SelectedFields {
    fields: AttentionFields,
    /// The blocks of each row and kv head.
    blocks: u32,
    /// The place of its last token among these.
    last: u32,
}

/// Selected blocks in place of a row's pages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SelectedBlocks {
    /// Rows of the batch.
    rows: u32,
    /// Most blocks of a row.
    most: u32,
    /// Tokens of a block.
    block_tokens: u32,
    /// The number of blocks in a split.
    split_blocks: SplitPages,
    /// Whether tokens of earlier steps are streamed where rows see all of them.
    streams: bool,
}

impl SelectedBlocks {
    fn new(plan: &Planner, selection: &Selection) -> Result<SelectedBlocks, Unsupported> {
        let block_tokens = selection.block_tokens as u32;
        multiple("the tokens of a selected block", block_tokens, 16, "a multiple of 16")?;
        let rows = plan.extent(selection.blocks, 2)?;
        let most = plan.extent(selection.blocks, 0)?;
        Ok(SelectedBlocks { rows, most, block_tokens, split_blocks: plan.split_pages(block_tokens), streams: false })
    }

    /// The pool by blocks, those of a row in the place of its page table.
    fn of<'k>(self, call: Call<'k, '_>, pool: PagedPool<'k>, heads: HeadCounts) -> PagedPool<'k> {
        let k = call.builder();
        let kv_head = call.value(offset_of!(AttentionFields, kv_head));
        let [blocks, last] = [offset_of!(SelectedFields, blocks), offset_of!(SelectedFields, last)]
            .map(|field| call.state(field).cast());
        PagedPool {
            pages: pool.pages * (pool.page_tokens / self.block_tokens),
            page_tokens: self.block_tokens,
            position: StepScalars::Global(last.at(kv_head * self.rows)),
            table: PageTable {
                cells: StepScalars::Global(blocks.at(kv_head * self.most)),
                width: k.lit(heads.kv_heads * self.most),
                near: None,
            },
            split_pages: self.split_blocks,
            ..pool
        }
    }

    /// The selection of blocks, for a pool addressed by pages.
    fn chosen<'k>(self, pool: PagedPool<'k>) -> TokenSelection<'k> {
        TokenSelection {
            position: pool.position,
            page_blocks: pool.page_tokens / self.block_tokens,
            split_pages: pool.split_pages,
            streams: self.streams.then_some(self.rows),
        }
    }
}

/// The device function.
#[derive(Clone, Debug, PartialEq)]
pub struct SplitOfTokens {
    /// Rows of the task.
    rows: u32,
    /// Heads, dimensions, splits.
    heads: HeadCounts,
    /// Factor on the scores.
    scale: f32,
    /// The modifier that is applied to scaled scores.
    modifier: ScoreModifier,
    /// Whether heads have sinks.
    has_sinks: bool,
    /// Storage of q; of packets keys and values have as many generations.
    q: Storage,
    /// The pools.
    pools: KvPools,
    /// The selected blocks, where not all tokens are seen.
    selected: Option<SelectedBlocks>,
    /// The ring stage by which tokens of earlier steps are streamed, if they are.
    streamed: Option<TokenStage>,
    /// Storage of the merge.
    out: Storage,
    /// The form in which split activations replace the merge, if they do.
    terms: Option<ScaledCode>,
    /// Whether the parts of splits are packets, for which the first split waits.
    merges: bool,
}

impl SplitOfTokens {
    /// The tokens that it reads.
    fn stream(&self) -> TokenStream {
        let SplitOfTokens { rows, heads, modifier, pools, .. } = *self;
        TokenStream { rows, splits: heads.splits, window: modifier.window, pools, fields: FIELDS }
    }
}

impl DeviceFunction for SplitOfTokens {
    fn shared(&self, warps: u32) -> SharedBytes {
        SharedBytes { operand: self.heads.scratch_bytes(warps), sums: self.heads.query_bytes() }
    }

    fn pools(&self) -> Option<KvPools> {
        Some(self.pools)
    }

    fn stream(&mut self, stage_bytes: u32) {
        let KvPools { of, dim, page_tokens, .. } = self.pools;
        let stage = TokenStage::new(of, dim, page_tokens, stage_bytes).filter(|_| self.heads.is_one_pass());
        match &mut self.selected {
            None => self.streamed = stage,
            // A selection within the step is not known before the step.
            Some(selected) => selected.streams = stage.is_some(),
        }
    }

    fn tokens(&self) -> Option<TokenStream> {
        let is_read = self.streamed.is_none() && self.selected.is_none();
        is_read.then(|| self.stream())
    }

    fn fills(&self) -> bool {
        self.streamed.is_some()
    }

    fn fill<'k>(&self, feed: RingFeed<'k, '_>) {
        if let Some(streamed) = self.streamed.and_then(|stage| feed.streamed(stage)) {
            fill(feed, self.stream(), streamed);
        }
    }

    fn signals_early(&self) -> bool {
        self.out.period > 0
    }

    fn polls_peers(&self) -> bool {
        self.merges
    }

    fn polled_columns(&self) -> Option<u32> {
        (self.q.period > 0).then_some(self.heads.heads / self.heads.kv_heads * self.heads.dim)
    }

    fn run<'k>(&self, call: Call<'k, '_>, weights: &dyn WeightStages<'k>) {
        let SplitOfTokens { rows, heads, scale, modifier, q, pools, selected, streamed, out, terms, merges, .. } =
            *self;
        let sinks = match pools.of {
            PoolType::Float(_) => offset_of!(SinkFields, sinks),
            PoolType::E4m3 => offset_of!(AttentionCodeFields, sinks),
        };
        let first_row = call.value(offset_of!(AttentionFields, first_row));
        let scales = offset_of!(AttentionCodeFields, scales);
        let pages = |fields| {
            let pool = call.pages(fields, pools);
            selected.map_or(pool, |selected| selected.of(call, pool, heads))
        };
        let split = split::SplitAttention {
            heads,
            rows,
            first_row,
            kv_head: call.value(offset_of!(AttentionFields, kv_head)),
            split: call.value(offset_of!(AttentionFields, split)),
            scale,
            modifier,
            custom: None,
            sinks: self.has_sinks.then(|| call.plain_at(sinks).cast()),
            q: call.stored(offset_of!(AttentionFields, q), q, Generation::Input),
            keys: pages([offset_of!(AttentionFields, keys), scales]),
            values: pages([offset_of!(AttentionFields, values), scales + size_of::<u32>()]),
            acc: call.state(offset_of!(AttentionFields, acc)).cast(),
            stats: call.state(offset_of!(AttentionFields, stats)).cast(),
            merged: Merged {
                out: match terms {
                    None => ActivationOutput::Rows(call.stored(
                        offset_of!(AttentionFields, merged),
                        out,
                        Generation::Output,
                    )),
                    Some(code) => {
                        ActivationOutput::Terms(call.scaled_output(offset_of!(AttentionFields, merged), code))
                    }
                },
                parts: match merges {
                    false => SplitSignal::Counted(call.state(offset_of!(AttentionFields, arrivals)).cast()),
                    true => {
                        let packets = Storage { float: Float::F32, ..out };
                        let parts = call.stored(offset_of!(AttentionFields, arrivals), packets, Generation::Output);
                        SplitSignal::Packets(parts.unless(call.left()))
                    }
                },
            },
            streamed: streamed.and_then(|stage| call.streamed(stage)),
            newest: call.current_token(offset_of!(AttentionFields, current_token), q.period, Generation::Input),
            selected: selected
                .map(|selected| selected.chosen(call.pages([offset_of!(AttentionFields, keys), scales], pools))),
        };
        split::attention(call.consumers(), call.scratch(), weights, split, || call.signal(out));
    }
}
