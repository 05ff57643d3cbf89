//! What the values of a row of the batch, and of one of its blocks, are loaded from.

use std::mem::offset_of;
use std::ops::Range;

use tilewright_codegen::build::{Global, Ptr, Val};
use tilewright_codegen::ir::attr::Fp8;
use tilewright_graph::graph::ValueId;
use tilewright_graph::rows::Source;
use tilewright_kernels::kv::{PagedPool, PoolArray, PoolType};
use tilewright_kernels::tile::{Array, Float};
use tilewright_megakernel::vm::device::KvPools;

use super::buffers::{BufferAccess, FlowTaskFields};
use super::kept::{Lies, OfBlock, OfRow};
use super::lanes::{LaneRow, PackedBf16, widen};
use super::learned;
use super::spread::VECTOR;
use super::values::{BlockRow, Sources};

impl<'k> OfRow<'k, '_, '_> {
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

impl<'k> OfBlock<'k, '_, '_> {
    /// A row of `d1` elements of a pool, from the beginning of the pool's row for a token or block
    /// on.
    fn pool(&self, field: usize, pools: KvPools, [begin, token]: [Val<'k, u32>; 2], d1: usize, at: u32) -> LaneRow<'k> {
        let pool = self.of.call.pages([field, offset_of!(FlowTaskFields, one)], pools);
        self.of.row(d1, at, &|element, eight| {
            let index = pool.dimension(begin, token, element);
            if eight { load_eight(pool, index).to_vec() } else { vec![load_one(pool, index)] }
        })
    }

    /// What the step before saved, or the reset value.
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

/// Eight numbers of bf16 of a pool, from a multiple of eight on: 16 bytes at once.
fn words_of_eight<'k>(pool: PagedPool<'k>, index: Val<'k, u32>) -> PackedBf16<'k> {
    let words: Ptr<'k, Global, u32> = pool.bytes_from(index).cast();
    words.load_vec()
}

/// One element of a pool.
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
