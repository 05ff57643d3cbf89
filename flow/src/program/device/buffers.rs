//! The buffers of a task of a flow: what its record names, and how each is read.

use std::mem::offset_of;

use bytemuck::{Pod, Zeroable};
use tilewright_graph::rows::{FieldId, ParameterId, Source, StateId};
use tilewright_kernels::kv::{PagedPool, PoolType};
use tilewright_kernels::tile::Float;
use tilewright_megakernel::ops::RowCells;
use tilewright_megakernel::program::BufferId;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{Call, KvPools, Planner};

use super::recipe::PassRecipe;
use crate::program::subject::LayerFlow;

/// Most buffers of a flow that a record has room for.
const MOST: usize = 7;

/// What the code reads of a task: numbers, and operands in units of 16 bytes. How many blocks a row
/// may have is no part of the code.
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
    /// What codes of fields are multiplied by, bits of f32.
    pub one: u32,
    /// What the flow keeps.
    pub kept: [u32; MOST],
}

/// How a buffer is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BufferAccess {
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
    pub fn per_page(&self) -> u32 {
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

    /// Where records have a source, how it is read, and its extents.
    pub fn find(&self, source: Source) -> Option<(usize, BufferAccess, [usize; 2])> {
        let at = self.buffers.iter().position(|(of, ..)| *of == source)?;
        let (_, form, extents) = self.buffers[at];
        Some((offset_of!(FlowTaskFields, kept) + 4 * at, form, extents))
    }
}
