//! The memory of a flow on a device: pools of tokens and fields, parameters, states of requests.

use std::mem::offset_of;
use std::ops::Range;

use bytemuck::{Pod, Zeroable};
use tilewright_codegen::build::{Global, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Fp8;
use tilewright_graph::graph::ValueId;
use tilewright_graph::rows::{FieldId, ParameterId, Source, StateId};
use tilewright_kernels::kv::{PagedPool, PoolArray, PoolType};
use tilewright_kernels::tile::{Array, Float};
use tilewright_megakernel::ops::RowCells;
use tilewright_megakernel::program::BufferId;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{Call, KvPools, Planner};

use super::learned;
use super::recipe::PassRecipe;
use super::spread::{Spread, VECTOR};
use super::stage::BlockStage;
use super::values::{BlockRow, LaneRow, Sources};
use crate::program::subject::{LayerFlow, elements};

/// Most buffers of a flow that a record has room for.
const MOST: usize = 7;

/// The record fields of a task: numbers, and operands in units of 16 bytes. The code does not
/// depend on the most blocks of a row.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(super) struct FlowTaskFields {
    pub first_row: u32,
    pub kv_head: u32,
    pub split: u32,
    /// Splits of the scores.
    pub splits: u32,
    /// Scores that a split has room for.
    pub share: u32,
    pub q: u32,
    pub scores: u32,
    pub slot: u32,
    /// The factor of field codes, as bits of f32.
    pub one: u32,
    /// The operands of the flow's memory.
    pub kept: [u32; MOST],
}

/// The access to a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BufferAccess {
    /// Tokens, or rows of a field: a block's place is that of its page.
    Pool(KvPools),
    /// A row for each key head.
    Parameter,
    /// A row for each block of a request, after the number of the request that saved it.
    State { pools: KvPools, slots: u32, blocks: u32, reset: f32 },
}

/// The buffers of a task.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TaskBuffers {
    block_tokens: u32,
    /// Pools of tokens, with positions and page tables.
    cells: KvPools,
    buffers: Vec<(Source, BufferAccess, [usize; 2])>,
}

/// The buffers that a task names, in the order of their declarations.
pub(super) struct NamedBuffers<'a> {
    pub at: &'a RowCells,
    pub pools: [BufferId; 2],
    pub fields: &'a [BufferId],
    pub parameters: &'a [BufferId],
    pub states: &'a [BufferId],
}

impl TaskBuffers {
    /// The buffers that a pass reads or writes, and where they begin.
    pub fn new(
        plan: &mut Planner,
        cells: KvPools,
        subject: &LayerFlow,
        recipe: &PassRecipe,
        named: &NamedBuffers<'_>,
    ) -> Result<(TaskBuffers, [u32; MOST]), Unsupported> {
        let graph = recipe.graph();
        let block_tokens = subject.pools.block_tokens as u32;
        let mut buffers = Vec::new();
        let mut places = Vec::new();
        let mut keep = |plan: &Planner, source, form, extents, buffer| {
            buffers.push((source, form, extents));
            places.push(plan.operand(buffer)?);
            Ok::<(), Unsupported>(())
        };
        let token = [subject.pools.block_tokens, subject.pools.head_dim];
        for (source, buffer) in [Source::Keys, Source::Values].into_iter().zip(named.pools) {
            if graph.loads(source) {
                let of = PoolType::Float(plan.float("keys and values of a flow", buffer)?);
                keep(plan, source, BufferAccess::Pool(KvPools { of, ..cells }), token, buffer)?;
            }
        }
        for (at, &buffer) in named.fields.iter().enumerate() {
            let source = Source::Field(FieldId(at as u32));
            let extents = subject.extents.fields[at];
            if graph.loads(source) || recipe.stores(at) {
                let pools = plan.pools(buffer, named.at)?;
                keep(plan, source, BufferAccess::Pool(pools), extents, buffer)?;
            }
        }
        for (at, &buffer) in named.parameters.iter().enumerate() {
            let source = Source::Parameter(ParameterId(at as u32));
            if graph.loads(source) {
                keep(plan, source, BufferAccess::Parameter, subject.extents.parameters[at], buffer)?;
            }
        }
        for (at, &buffer) in named.states.iter().enumerate() {
            let source = Source::State(StateId(at as u32));
            let reset = subject.traced.declared.states[at].reset as f32;
            let pools = KvPools { of: PoolType::Float(Float::F32), ..cells };
            let form =
                BufferAccess::State { pools, slots: plan.extent(buffer, 2)?, blocks: plan.extent(buffer, 1)?, reset };
            keep(plan, source, form, subject.extents.states[at], buffer)?;
        }
        let mut words = [0; MOST];
        if places.len() > MOST {
            let what = "buffers that a flow reads in a pass";
            return Err(Unsupported::Number { what, found: places.len(), expected: "7 at most" });
        }
        words[..places.len()].copy_from_slice(&places);
        Ok((TaskBuffers { block_tokens, cells, buffers }, words))
    }

    /// Positions and page tables.
    pub fn cells<'k>(&self, call: Call<'k, '_>) -> PagedPool<'k> {
        call.pages([offset_of!(FlowTaskFields, kept); 2], self.cells)
    }

    /// Tokens of a block.
    pub fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// Blocks of a page.
    fn per_page(&self) -> u32 {
        self.cells.page_tokens / self.block_tokens
    }

    /// The pools, and with them the cells.
    pub fn pools(&self) -> KvPools {
        self.cells
    }

    /// The pool of a field: its place in records, and how it is read.
    pub fn pool_of(&self, source: Source) -> Option<(usize, KvPools)> {
        let (field, BufferAccess::Pool(pools), _) = self.find(source)? else { return None };
        Some((field, pools))
    }

    fn find(&self, source: Source) -> Option<(usize, BufferAccess, [usize; 2])> {
        let at = self.buffers.iter().position(|(of, ..)| *of == source)?;
        let (_, form, extents) = self.buffers[at];
        Some((offset_of!(FlowTaskFields, kept) + 4 * at, form, extents))
    }
}

/// A row of the batch in a task: what blocks have in common.
#[derive(Clone, Copy)]
pub(super) struct OfRow<'k, 'p, 'r> {
    pub call: Call<'k, 'p>,
    pub recipe: &'r PassRecipe,
    pub kept: &'r TaskBuffers,
    pub kv_head: Val<'k, u32>,
    /// The row.
    pub row: Val<'k, u32>,
    /// The lane's place in its group.
    pub lane: Val<'k, u32>,
    /// Queries, and which is the first element of the group's.
    pub queries: Option<(Array<'k>, Val<'k, u32>)>,
    /// The slot and the number of its request.
    pub slot: Option<(Val<'k, u32>, Val<'k, f32>)>,
}

/// A block of a row.
#[derive(Clone, Copy)]
pub(super) struct OfBlock<'k, 'p, 'r> {
    of: OfRow<'k, 'p, 'r>,
    /// Its place in the sequence.
    block: Val<'k, u32>,
    /// Blocks of the row that come before it and are scored.
    before: Val<'k, u32>,
    lies: Lies<'k, 'r>,
}

/// The location of a block's fields.
#[derive(Clone, Copy)]
pub(super) enum Lies<'k, 'r> {
    /// At a [place](OfRow::place) of the pools.
    Pools(Val<'k, u32>),
    /// In a stage of the ring, at a place among its blocks.
    Stage(&'r BlockStage, Ptr<'k, Shared, u32>, Val<'k, u32>),
}

impl<'k> OfRow<'k, '_, '_> {
    fn spread(&self) -> Spread {
        self.recipe.spread
    }

    /// A row `at` of `[_, d1]` elements from a place on, where `index` finds the first of eight
    /// elements.
    fn row(&self, d1: usize, at: u32, load: &dyn Fn(Val<'k, u32>, bool) -> Vec<Val<'k, f32>>) -> LaneRow<'k> {
        let k = self.call.builder();
        let spread = self.spread();
        let first = at * d1 as u32;
        match spread.deals(d1) {
            true => {
                let eights = 0..spread.held(d1) / VECTOR;
                eights.flat_map(|eight| load(spread.first(self.lane, eight) + first, true)).collect()
            }
            false => (0..d1 as u32).flat_map(|e| load(k.lit(first + e), false)).collect(),
        }
    }

    fn array(&self, array: Array<'k>, begin: Val<'k, u32>, d1: usize, at: u32) -> LaneRow<'k> {
        self.row(d1, at, &|element, eight| match eight {
            true => [0u32, 4].into_iter().flat_map(|half| array.load4(begin + element + half)).collect(),
            false => vec![array.load(begin + element)],
        })
    }

    /// A parameter of the key head: the array, and which is its first element.
    pub fn parameter(&self, source: Source) -> Option<(Array<'k>, Val<'k, u32>)> {
        let (field, BufferAccess::Parameter, extents) = self.kept.find(source)? else { return None };
        Some((self.call.plain(field, Float::F32), self.kv_head * elements(extents) as u32))
    }

    /// The index in rows `[_, d1]` of an element that the lane holds.
    pub fn element(&self, d1: u32, row: u32, e: u32) -> Val<'k, u32> {
        match self.spread().deals(d1 as usize) {
            true => self.spread().first(self.lane, e / VECTOR) + (row * d1 + e % VECTOR),
            false => self.call.builder().lit(row * d1 + e),
        }
    }

    /// The number of lanes, from the first on, that together hold a row of that length.
    pub fn holders(&self, d1: u32) -> u32 {
        if self.spread().deals(d1 as usize) { self.spread().lanes } else { 1 }
    }

    fn state(&self, source: Source) -> Option<RequestState<'k>> {
        let (field, BufferAccess::State { pools, slots, blocks, reset }, extents) = self.kept.find(source)? else {
            return None;
        };
        let PoolArray::Float(array) = self.call.pages([field; 2], pools).pool else { return None };
        let (slot, request) = self.slot?;
        let begin = (self.kv_head * slots + slot) * blocks;
        Some(RequestState { array, begin, request, reset, width: 1 + elements(extents) as u32 })
    }
}

/// A state of a request.
struct RequestState<'k> {
    array: Array<'k>,
    /// Its first row.
    begin: Val<'k, u32>,
    request: Val<'k, f32>,
    reset: f32,
    /// Words of a row.
    width: u32,
}

impl<'k> Sources<'k> for OfRow<'k, '_, '_> {
    fn load(&self, source: Source, at: BlockRow) -> LaneRow<'k> {
        match (source, self.kept.find(source)) {
            (Source::Query, _) => {
                let Some((queries, begin)) = self.queries else { return LaneRow::new() };
                self.array(queries, begin, self.spread().dim as usize, at.row)
            }
            (_, Some((_, BufferAccess::Parameter, extents))) => {
                let Some((array, begin)) = self.parameter(source) else { return LaneRow::new() };
                // Rows of parameters begin anywhere: element by element.
                self.row(extents[1], at.row, &|element, eight| {
                    (0..if eight { VECTOR } else { 1 }).map(|e| array.load(begin + element + e)).collect()
                })
            }
            // Of blocks.
            (_, Some((_, BufferAccess::Pool(_) | BufferAccess::State { .. }, _)) | None) => LaneRow::new(),
        }
    }

    fn fetch(&self, _: Source, _: BlockRow, _: Range<u32>) -> Option<Vec<PackedBf16<'k>>> {
        None
    }

    fn learned_query(&self, id: ValueId, queries: &[LaneRow<'k>]) -> LaneRow<'k> {
        learned::query(self, id, queries)
    }

    fn query(&self, row: Val<'k, u32>) -> Option<LaneRow<'k>> {
        let (queries, begin) = self.queries?;
        let dim = self.spread().dim;
        Some(self.array(queries, begin + row * dim, dim as usize, 0))
    }

    fn exists(&self, _: u32) -> Val<'k, bool> {
        self.call.builder().lit(true)
    }
}

impl<'k, 'p, 'r> OfRow<'k, 'p, 'r> {
    /// The block at a place of the sequence, relative to the first one that is scored.
    pub fn block(self, block: Val<'k, u32>, before: Val<'k, u32>, lies: Lies<'k, 'r>) -> OfBlock<'k, 'p, 'r> {
        OfBlock { of: self, block, before, lies }
    }

    /// The index of a block in the pools, among the blocks of all key heads.
    pub fn place(&self, block: Val<'k, u32>) -> Val<'k, u32> {
        let cells = self.kept.cells(self.call);
        let per_page = self.kept.per_page();
        let page = cells.table.page(self.row, block / per_page);
        (self.kv_head * cells.pages + page) * per_page + block % per_page
    }
}

impl<'k> OfBlock<'k, '_, '_> {
    /// The block at that distance back, or the first one that is scored.
    fn back(&self, back: u32) -> Val<'k, u32> {
        if back == 0 { self.block } else { self.block - self.before.min(back) }
    }

    fn place(&self, back: u32) -> Val<'k, u32> {
        match self.lies {
            Lies::Pools(place) if back == 0 => place,
            Lies::Pools(_) | Lies::Stage(..) => self.of.place(self.back(back)),
        }
    }

    /// A row of `d1` elements of a pool, from the beginning of the pool's row for a token or block
    /// on.
    fn pool(&self, field: usize, pools: KvPools, [begin, token]: [Val<'k, u32>; 2], d1: usize, at: u32) -> LaneRow<'k> {
        let pool = self.of.call.pages([field, offset_of!(FlowTaskFields, one)], pools);
        self.of.row(d1, at, &|element, eight| {
            let index = pool.dimension(begin, token, element);
            if eight { load_eight(pool, index).to_vec() } else { vec![load_one(pool, index)] }
        })
    }

    /// Stores a row of a field of the block; by the lanes of one group.
    pub fn store(&self, field: FieldId, at: u32, row: &LaneRow<'k>) {
        let Some((at_field, BufferAccess::Pool(pools), [_, d1])) = self.of.kept.find(Source::Field(field)) else {
            return;
        };
        let k = self.of.call.builder();
        let pool = self.of.call.pages([at_field, offset_of!(FlowTaskFields, one)], pools);
        let begin = self.place(0) * pools.dim;
        let spread = self.of.spread();
        let store = |element: Val<'k, u32>, x: Val<'k, f32>| {
            pool.pool.store(pool.dimension(begin, self.block, element), x);
        };
        let first = at * d1 as u32;
        if spread.deals(d1) {
            (0u32..).zip(row).for_each(|(e, &x)| store(self.of.element(d1 as u32, at, e), x));
        } else {
            k.when(self.of.lane.eq(0), || {
                row.iter().zip(first..).for_each(|(&x, element)| store(k.lit(element), x));
            });
        }
    }

    /// Saves the rows of a state of the block; by the lanes of one group.
    pub fn save(&self, state: StateId, rows: &[LaneRow<'k>]) {
        let source = Source::State(state);
        let (Some(of), Some((.., [_, d1]))) = (self.of.state(source), self.of.kept.find(source)) else { return };
        let k = self.of.call.builder();
        let spread = self.of.spread();
        let begin = (of.begin + self.block) * of.width;
        let is_first = self.of.lane.eq(0);
        k.when(is_first, || of.array.store(begin, of.request));
        for (at, row) in rows.iter().enumerate() {
            let first = 1 + (at * d1) as u32;
            if spread.deals(d1) {
                for (e, &x) in row.iter().enumerate() {
                    let e = e as u32;
                    of.array.store(begin + spread.first(self.of.lane, e / VECTOR) + (first + e % VECTOR), x);
                }
            } else {
                k.when(is_first, || row.iter().zip(first..).for_each(|(&x, e)| of.array.store(begin + e, x)));
            }
        }
    }

    /// The state that the previous step saved, or the reset value.
    fn saved(&self, source: Source, d1: usize, at: BlockRow) -> LaneRow<'k> {
        let Some(of) = self.of.state(source) else { return LaneRow::new() };
        let begin = (of.begin + self.back(at.back)) * of.width;
        let is_own = of.array.load(begin).eq(of.request);
        self.of.row(d1, at.row, &|element, eight| {
            let each = 0..if eight { VECTOR } else { 1 };
            each.map(|e| is_own.select(of.array.load(begin + element + (1 + e)), of.reset)).collect()
        })
    }
}

impl<'k> Sources<'k> for OfBlock<'k, '_, '_> {
    fn load(&self, source: Source, at: BlockRow) -> LaneRow<'k> {
        let block = self.back(at.back);
        match (source, self.of.kept.find(source)) {
            (Source::Positions, _) => vec![block.cast::<f32>()],
            (Source::Keys | Source::Values, Some((field, BufferAccess::Pool(pools), [tokens, d1]))) => {
                let token = |block: Val<'k, u32>| block * tokens as u32 + at.row;
                self.pool(field, pools, [token(self.place(at.back)) * pools.dim, token(block)], d1, 0)
            }
            (_, Some((field, BufferAccess::Pool(pools), [_, d1]))) => {
                self.pool(field, pools, [self.place(at.back) * pools.dim, block], d1, at.row)
            }
            (_, Some((_, BufferAccess::State { .. }, [_, d1]))) => self.saved(source, d1, at),
            (_, Some((_, BufferAccess::Parameter, _)) | None) => self.of.load(source, at),
        }
    }

    fn fetch(&self, source: Source, at: BlockRow, runs: Range<u32>) -> Option<Vec<PackedBf16<'k>>> {
        let Some((field, BufferAccess::Pool(pools), [_, d1])) = self.of.kept.find(source) else { return None };
        let pool = self.of.call.pages([field, offset_of!(FlowTaskFields, one)], pools);
        let spread = self.of.spread();
        if !matches!(source, Source::Field(_)) || pools.of != PoolType::Float(Float::Bf16) || !spread.deals(d1) {
            return None;
        }
        let element = |eight: u32| spread.first(self.of.lane, eight) + at.row * d1 as u32;
        let place = |begin, eight| pool.dimension(begin, self.back(at.back), element(eight));
        Some(match self.lies {
            Lies::Stage(stage, there, slot) if at.back == 0 => {
                let begin = stage.row(field, slot);
                runs.map(|eight| there.at(place(begin, eight) / 2).load_vec()).collect()
            }
            Lies::Stage(..) | Lies::Pools(_) => {
                let begin = self.place(at.back) * pools.dim;
                runs.map(|eight| words_of_eight(pool, place(begin, eight))).collect()
            }
        })
    }

    fn query(&self, row: Val<'k, u32>) -> Option<LaneRow<'k>> {
        self.of.query(row)
    }

    fn learned_query(&self, _: ValueId, _: &[LaneRow<'k>]) -> LaneRow<'k> {
        // Of rows, and known before blocks are.
        LaneRow::new()
    }

    fn exists(&self, back: u32) -> Val<'k, bool> {
        self.before.ge(back)
    }
}

/// Eight numbers of bf16, as they are loaded.
pub(super) type PackedBf16<'k> = [Val<'k, u32>; 4];

/// Eight numbers of bf16 of a pool, from a multiple of eight on: 16 bytes at once.
fn words_of_eight<'k>(pool: PagedPool<'k>, index: Val<'k, u32>) -> PackedBf16<'k> {
    let words: Ptr<'k, Global, u32> = pool.bytes_from(index).cast();
    words.load_vec()
}

/// The numbers of words of bf16: a bf16 is the upper half of an f32.
pub(super) fn widen<'k>(words: PackedBf16<'k>) -> [Val<'k, f32>; 8] {
    std::array::from_fn(|e| {
        let word = words[e / 2];
        if e % 2 == 0 { (word << 16).bits() } else { (word & 0xffff_0000).bits() }
    })
}

/// Loads an element of a pool.
fn load_one<'k>(pool: PagedPool<'k>, index: Val<'k, u32>) -> Val<'k, f32> {
    match pool.pool {
        PoolArray::Float(array) => array.load(index),
        PoolArray::E4m3 { codes, scale } => {
            let code = codes.at(index).load().cast::<u16>();
            code.halves_of_fp8(Fp8::E4M3).split().0.cast::<f32>() * scale
        }
    }
}

/// Eight elements of a pool from a multiple of eight on.
fn load_eight<'k>(pool: PagedPool<'k>, index: Val<'k, u32>) -> [Val<'k, f32>; 8] {
    match pool.pool.pool_type() {
        PoolType::Float(Float::Bf16) => widen(words_of_eight(pool, index)),
        PoolType::Float(Float::F32) => {
            let numbers: Ptr<'k, Global, f32> = pool.bytes_from(index).cast();
            let halves = [numbers.load_vec::<4>(), numbers.at(4u32).load_vec::<4>()];
            std::array::from_fn(|e| halves[e / 4][e % 4])
        }
        PoolType::Float(Float::F16) | PoolType::E4m3 => std::array::from_fn(|e| load_one(pool, index + e as u32)),
    }
}
