//! A row of the batch in a task, and a block of it: where what a flow keeps lies, and stores to it.

use std::mem::offset_of;

use tilewright_codegen::build::{Ptr, Shared, Val};
use tilewright_graph::rows::{FieldId, Source, StateId};
use tilewright_kernels::kv::PoolArray;
use tilewright_kernels::tile::{Array, Float};
use tilewright_megakernel::vm::device::Call;

use super::buffers::{BufferAccess, FlowTaskFields, TaskBuffers};
use super::lanes::LaneRow;
use super::recipe::PassRecipe;
use super::spread::{Spread, VECTOR};
use super::stage::BlockStage;
use crate::program::subject::elements;

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
    pub of: OfRow<'k, 'p, 'r>,
    /// Its place in the sequence.
    pub block: Val<'k, u32>,
    /// Blocks of the row that come before it and are scored.
    pub before: Val<'k, u32>,
    pub lies: Lies<'k, 'r>,
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
    pub fn spread(&self) -> Spread {
        self.recipe.spread
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

    /// A state of the row's request.
    pub fn state(&self, source: Source) -> Option<RequestState<'k>> {
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
pub(super) struct RequestState<'k> {
    pub array: Array<'k>,
    /// Its first row.
    pub begin: Val<'k, u32>,
    pub request: Val<'k, f32>,
    pub reset: f32,
    /// Words of a row.
    pub width: u32,
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
    pub fn back(&self, back: u32) -> Val<'k, u32> {
        if back == 0 { self.block } else { self.block - self.before.min(back) }
    }

    /// Where the block at that distance back lies in the pools.
    pub fn place(&self, back: u32) -> Val<'k, u32> {
        match self.lies {
            Lies::Pools(place) if back == 0 => place,
            Lies::Pools(_) | Lies::Stage(..) => self.of.place(self.back(back)),
        }
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
}
