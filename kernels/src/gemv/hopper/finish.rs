//! The epilogue of the Hopper kernel: the end of the previous norm, bias, gates, residual, and the
//! beginning of the next norm ([`halves`](crate::norm)).
//!
//! Heads are rotated and appended. If only the largest logit is requested, each tile stores its
//! argmax candidate.

use core::array::from_fn;
use std::rc::Rc;

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};

use super::WeightRows;
use super::best::Bests;
use super::{HopperPlan, PlanError};
use crate::epilogue::{
    CustomEpilogue, GateSums, LoadedOperands, ResultFunction, ResultFunctions, ResultOperands, ResultPlace, SumScale,
};
use crate::gemv::{GemvEpilogue, HeadPages};
use crate::kv::{PoolArray, PoolType, TokenRow};
use crate::norm::{NormEnd, NormStart, SLOT};
use crate::rope::{rotated, rotated_first};
use crate::tile::{Array, Float};
use crate::warps::ConsumerWarps;
use crate::weights::Strip;

/// Numbers of shared memory that a block adds squares in.
const ROOM: u32 = 256;
/// Results that a thread finishes together where it can.
const RUN: u32 = 4;

impl GemvEpilogue {
    /// Checks that a plan fits this epilogue.
    ///
    /// # Errors
    /// If results begin a norm and are not a whole number of slots in every block, or rows other
    /// than heads are appended as heads.
    pub fn check(&self, plan: &HopperPlan) -> Result<(), PlanError> {
        let setting = |what, found, wanted| Err(PlanError::Setting { what, found, wanted });
        let n = plan.results.results();
        let rows = plan.rows() / plan.tuning.splits;
        if self.epilogue.gated != matches!(plan.results, WeightRows::Gated(_)) {
            return setting(
                "the number of results",
                n,
                "that of WeightRows::Gated where there are gates, and no other",
            );
        }
        if matches!(self.epilogue.scale, Some(SumScale::Operands | SumScale::Rows)) {
            return setting("the number of scales of operands", 2, "0: codes have their own");
        }
        if plan.vector_tiles() > 1 && (self.ends_norm() || self.normed.is_some() || self.heads.is_some() || self.best) {
            let wanted = "1 where a norm begins or ends, heads are appended or the largest is kept";
            return setting("the number of tiles of the vectors", plan.vector_tiles(), wanted);
        }
        if self.ends_norm() && !plan.strip.k().is_multiple_of(SLOT) {
            return setting("k of sums that are scaled", plan.strip.k(), "a multiple of 32");
        }
        if self.normed.is_some() {
            if !matches!(plan.results, WeightRows::InOrder(_)) || !self.wide {
                return setting("the number of rows that begin a norm", n, "that of f32 results in their order");
            }
            if !plan.is_whole() || !rows.is_multiple_of(SLOT) {
                return setting("the number of rows of a block that begins a norm", rows, "whole slots of 32");
            }
            if !plan.batch.is_multiple_of(4) {
                return setting("a batch whose results begin a norm", plan.batch, "a multiple of 4");
            }
        }
        if self.best {
            let others = self.ends_norm() || self.normed.is_some() || self.epilogue.residual || !self.wide;
            if !matches!(plan.results, WeightRows::InOrder(_)) || others {
                return setting(
                    "the number of rows of which the largest is kept",
                    n,
                    "that of f32 results in their order",
                );
            }
            if plan.tuning.splits > 1 {
                return setting("the number of shares of k where the largest is kept", plan.tuning.splits, "1");
            }
        }
        match (self.heads, plan.results) {
            (None, _) => Ok(()),
            (Some(_), WeightRows::Groups { .. })
                if !self.epilogue.residual && self.epilogue.functions == ResultFunctions::default() =>
            {
                Ok(())
            }
            (Some(_), _) => {
                setting("the number of rows that are appended", n, "that of groups of heads, and no sums or functions")
            }
        }
    }
}

/// The results, and what is added to the sums.
#[derive(Clone)]
pub(super) struct HopperResults<'k> {
    y: Array<'k>,
    functions: ResultFunctions,
    bias: Option<Array<'k>>,
    residual: Option<Array<'k>>,
    scaled: Option<NormEnd<'k>>,
    normed: Option<NormStart<'k>>,
    heads: Option<HeadOutputs<'k>>,
    bests: Option<Bests<'k>>,
    custom: Option<Rc<ResultFunction<'k>>>,
}

/// Sums of a run, and those that it is finished with.
#[derive(Clone, Copy)]
pub(super) struct RunSums<'k, const RUN: usize> {
    /// Sums of the run.
    pub sums: [Val<'k, f32>; RUN],
    /// Sums of what gates gate, or of what pairs are rotated with.
    pub others: Option<[Val<'k, f32>; RUN]>,
}

/// The operands of a run's epilogue, loaded before its sums are complete.
pub(super) struct RunOperands<'k, const RUN: usize> {
    /// The biases of the run, and of the run that is finished with it.
    biases: [Option<[Val<'k, f32>; RUN]>; 2],
    residual: Option<[Val<'k, f32>; RUN]>,
    /// The weight of the norm that begins.
    weight: Option<[Val<'k, f32>; 4]>,
    /// Cosines and sines of a head's pairs.
    turns: Vec<Val<'k, f32>>,
}

/// The destination of heads, and the sequences that they belong to.
#[derive(Clone, Copy)]
struct HeadOutputs<'k> {
    page_tokens: u32,
    turns: Ptr<'k, Global, f32>,
    position: Ptr<'k, Global, i32>,
    table: Ptr<'k, Global, i32>,
    table_width: Val<'k, u32>,
    pages: Val<'k, u32>,
    pools: [PoolArray<'k>; 2],
    /// The position of every vector, followed by the row of its token in a plane of a pool.
    room: Ptr<'k, Shared, i32>,
    batch: u32,
}

impl<'k> HopperResults<'k> {
    /// Declares the parameters, in the order of [`gemv`](super::gemv).
    pub(super) fn parameters(
        k: &'k Builder,
        plan: &HopperPlan,
        finish: GemvEpilogue,
        custom: Option<CustomEpilogue<'_>>,
    ) -> HopperResults<'k> {
        let GemvEpilogue { epilogue, wide, normed, heads, best } = finish;
        let float = if wide { Float::F32 } else { Float::Bf16 };
        let array = |name: &str, float: Float| Array::new(k.global::<u8>(name), float);
        let y = k.global::<u8>("y");
        let bests = best.then(|| y.cast());
        let y = Array::new(y, float);
        let bias = epilogue.bias.then(|| array("bias", Float::Bf16));
        let residual = epilogue.residual.then(|| array("residual", float));
        let scaled = finish.ends_norm().then(|| {
            let width = plan.strip.k();
            let rows = plan.batch;
            let parts = NormEnd::parts((plan.tuning.warpgroups * 128).min(ROOM), width, rows);
            let squares = k.global("squares");
            let eps = k.param("eps");
            NormEnd { squares, eps, width, rows, parts, factors: k.shared("factors", parts * rows) }
        });
        let normed = normed.map(|float| NormStart {
            weight: array("norm_weight", float),
            out: array("normed", Float::Bf16),
            squares: k.global("norm_squares"),
            rows: k.lit(plan.batch),
        });
        let heads = heads.map(|HeadPages { page_tokens, pool }| {
            let turns = k.global("turns");
            let position = k.global("position");
            let table = k.global("page_table");
            let table_width = k.param("table_width");
            let pages = k.param("pages");
            let pools = ["key", "value"].map(|name| match pool {
                PoolType::Float(float) => array(&format!("{name}s"), float).into(),
                PoolType::E4m3 => {
                    let codes = k.global(&format!("{name}s"));
                    PoolArray::E4m3 { codes, scale: k.param(&format!("{name}_scale")) }
                }
            });
            let room = k.shared("places", 2 * plan.batch);
            HeadOutputs { page_tokens, turns, position, table, table_width, pages, pools, room, batch: plan.batch }
        });
        let functions = epilogue.functions;
        let bests = bests.map(|keys| Bests { keys, bias, functions });
        let custom = custom.map(|CustomEpilogue(declare)| {
            Rc::new(declare(k, [plan.batch, plan.results.results()].map(|extent| k.lit(extent))))
        });
        HopperResults { y, functions, bias, residual, scaled, normed, heads, bests, custom }
    }

    /// Prepares what is one number for each vector, by the warps that multiply, while weights and
    /// activations are on their way.
    pub(super) fn prepare(&self, consumers: ConsumerWarps<'k>) {
        if self.scaled.is_none() && self.heads.is_none() {
            return;
        }
        if let Some(heads) = self.heads {
            heads.prepare(consumers);
        }
        consumers.k.grid_wait();
        match self.scaled {
            Some(scaled) => scaled.prepare(consumers),
            None => consumers.sync(),
        }
    }

    /// Asks for what a run's sums are finished with.
    pub(super) fn ask<const RUN: usize>(
        &self,
        plan: &HopperPlan,
        [vector, row]: [Val<'k, u32>; 2],
    ) -> RunOperands<'k, RUN> {
        let all = plan.results.results();
        let load = |array: Array<'k>, at: Val<'k, u32>| -> [Val<'k, f32>; RUN] {
            if RUN == 4 {
                let four = array.load4(at);
                core::array::from_fn(|i| four[i])
            } else {
                core::array::from_fn(|i| array.load(at + i as u32))
            }
        };
        let of = |array: Option<Array<'k>>, at: Val<'k, u32>| array.map(|array| load(array, at));
        if let Some(heads) = self.heads {
            let pair = HeadPairs::of(plan.results, row);
            let biases = pair.results.map(|at| of(self.bias, at));
            let run = PairRun { rows: plan.results, vector, pair: &pair };
            return RunOperands { biases, residual: None, weight: None, turns: heads.turns::<RUN>(run) };
        }
        let first = plan.results.result(row);
        let others = self.others(plan.results).and_then(|_| of(self.bias, first + all));
        let residual = of(self.residual, vector * all + first);
        let weight = self.normed.map(|normed| normed.weight(first));
        RunOperands { biases: [of(self.bias, first), others], residual, weight, turns: Vec::new() }
    }

    /// Numbers that [`ask`](Results::ask) has for a run.
    pub(super) fn asked(&self, run: u32) -> u32 {
        let of = |is: bool, numbers: u32| if is { numbers } else { 0 };
        let biases = of(self.bias.is_some(), 2 * run);
        biases + of(self.residual.is_some(), run) + of(self.normed.is_some(), run) + of(self.heads.is_some(), 2 * run)
    }

    /// Whether operands lie where what is [prepared](Results::prepare) says: those of heads.
    pub(super) fn asks_by_vector(&self) -> bool {
        self.heads.is_some()
    }

    /// Finishes a run of sums, and stores it: results of `vector` from the packed row `row` on.
    pub(super) fn store<const RUN: usize>(
        &self,
        plan: &HopperPlan,
        [vector, row]: [Val<'k, u32>; 2],
        RunSums { sums, others }: RunSums<'k, RUN>,
        operands: &RunOperands<'k, RUN>,
    ) {
        let all = plan.results.results();
        let scale = self.scaled.map(|scaled| scaled.factors.at(vector).load());
        let finished = LoadedOperands { scale, bias: operands.biases, residual: operands.residual };
        let sums = finished.affine(GateSums::Gate, sums);
        let others = others.map(|others| finished.affine(GateSums::Up, others));
        if let (Some(heads), Some(others)) = (self.heads, others) {
            let pair = HeadPairs::of(plan.results, row);
            let run = PairRun { rows: plan.results, vector, pair: &pair };
            return heads.store(self.y, run, [sums, others], &operands.turns);
        }
        let up = others.map(|others| move |i: usize| others[i]);
        let sums = self.functions.apply(sums, up.as_ref().map(|up| up as _), &finished);
        let first = plan.results.result(row);
        let sums = match &self.custom {
            None => sums,
            Some(custom) => from_fn(|i| custom(ResultPlace { row: vector, column: first + i as u32 }, sums[i])),
        };
        let at = vector * all + first;
        self.y.store_run(at, sums);
        if let (Some(normed), Some(weight), Ok(four)) =
            (self.normed, operands.weight, <[Val<f32>; 4]>::try_from(&sums[..]))
        {
            normed.store_weighted([vector, first, at], four, weight);
        }
    }

    /// The destination of the largest results, if nothing else is stored.
    pub(super) fn bests(&self) -> Option<Bests<'k>> {
        self.bests
    }

    /// The distance from a run of packed rows to the run that is finished with it: the values that
    /// gates multiply, or the second of pairs.
    pub(super) fn others(&self, results: WeightRows) -> Option<u32> {
        match results {
            WeightRows::Gated(_) => Some(Strip::ROWS),
            WeightRows::Groups { .. } if self.heads.is_some() => Some(RUN),
            WeightRows::InOrder(_) | WeightRows::Groups { .. } => None,
        }
    }
}

/// Four pairs of a head, or eight dimensions of a value: which.
struct HeadPairs<'k> {
    is_query: Val<'k, bool>,
    is_value: Val<'k, bool>,
    /// The kv head, or the query head.
    head: Val<'k, u32>,
    /// The start of both halves in their head.
    dims: [Val<'k, u32>; 2],
    /// The results that they are.
    results: [Val<'k, u32>; 2],
}

impl<'k> HeadPairs<'k> {
    /// The pairs of a packed row, whose number is a multiple of eight.
    fn of(rows: WeightRows, row: Val<'k, u32>) -> HeadPairs<'k> {
        let (group, kv_heads, dim) = match rows {
            WeightRows::Groups { group, kv_heads, dim } => (group, kv_heads, dim),
            // Refused: these are not heads.
            WeightRows::InOrder(_) | WeightRows::Gated(_) => (1, 1, Strip::ROWS),
        };
        let per_head = dim / Strip::ROWS;
        let half = dim / 2;
        let strip = row / Strip::ROWS;
        let kv_head = strip / (per_head * (group + 2));
        let strip = strip % (per_head * (group + 2));
        let slot = strip / per_head;
        let at = strip % per_head;
        let is_query = slot.lt(group);
        let is_value = slot.gt(group);
        let head = is_query.select(kv_head * group + slot, kv_head);
        let first = is_value.select(at * Strip::ROWS, at * RUN);
        let dims = [first, first + is_value.select(row.builder().lit(RUN), half)];
        let of_all = is_query.select(head, slot * kv_heads + kv_head) * dim;
        HeadPairs { is_query, is_value, head, dims, results: dims.map(|at| of_all + at) }
    }
}

/// A run of a vector's heads.
#[derive(Clone, Copy)]
struct PairRun<'a, 'k> {
    /// The grouping of rows into heads.
    rows: WeightRows,
    /// Number of the vector in the batch.
    vector: Val<'k, u32>,
    /// Pairs of the run.
    pair: &'a HeadPairs<'k>,
}

impl<'k> HeadOutputs<'k> {
    /// Positions, and where tokens lie.
    fn prepare(self, consumers: ConsumerWarps<'k>) {
        let batch = self.batch;
        consumers.each(batch, |vector| {
            let position = self.position.at(vector).load();
            let token = position.max(0).cast::<u32>();
            self.room.at(vector).store(position);
            // An idle row's table is not looked at.
            consumers.k.when(position.ge(0), || {
                let page = self.table.at(vector * self.table_width + token / self.page_tokens).load();
                let place = page.cast::<u32>() * self.page_tokens + token % self.page_tokens;
                self.room.at(vector + batch).store(place.cast::<i32>());
            });
        });
    }

    /// Cosines and sines of a run of pairs. Places have 32 bits ([`HeadPages`]).
    fn turns<const RUN: usize>(self, PairRun { rows, vector, pair: at }: PairRun<'_, 'k>) -> Vec<Val<'k, f32>> {
        let WeightRows::Groups { dim, .. } = rows else { return Vec::new() };
        let token = self.room.at(vector).load().max(0).cast::<u32>();
        // Values have no pairs: those of dimension 0 are loaded, and not looked at.
        let first = (token * (dim / 2) + at.is_value.select(vector.builder().lit(0), at.dims[0])) * 2;
        (0..RUN as u32).step_by(2).flat_map(|pair| self.turns.at(first + 2 * pair).load_vec::<4>()).collect()
    }

    /// Rotates queries and keys; stores queries, zeros of an idle row, and appends the others.
    fn store<const RUN: usize>(
        self,
        queries: Array<'k>,
        PairRun { rows, vector, pair: at }: PairRun<'_, 'k>,
        [a, b]: [[Val<'k, f32>; RUN]; 2],
        turns: &[Val<'k, f32>],
    ) {
        let WeightRows::Groups { group, kv_heads, dim } = rows else { return };
        let k = vector.builder();
        let position = self.room.at(vector).load();
        let active = position.ge(0);
        let token = position.max(0).cast::<u32>();
        let turned = |x: &[Val<'k, f32>; RUN], partner: &[Val<'k, f32>; RUN], second: bool| {
            core::array::from_fn::<_, RUN, _>(|i| {
                let cos = turns[2 * i];
                let sin = turns[2 * i + 1];
                let rotated = match second {
                    true => rotated(x[i], partner[i], cos, sin),
                    false => rotated_first(x[i], partner[i], [cos, sin]),
                };
                at.is_value.select(x[i], rotated)
            })
        };
        let both = [turned(&a, &b, false), turned(&b, &a, true)];
        let stored = |store: &dyn Fn(Val<'k, u32>, [Val<'k, f32>; RUN])| {
            at.dims.iter().zip(both).for_each(|(&dim, values)| store(dim, values));
        };
        let query = || {
            let first = (vector * (group * kv_heads) + at.head) * dim;
            stored(&|dim, values| queries.store_run(first + dim, values.map(|y| active.select(y, 0.0f32))));
        };
        let append = |pool: PoolArray<'k>| {
            let place = self.room.at(vector + self.batch).load().cast::<u32>();
            let first = (at.head * self.pages * self.page_tokens + place) * dim;
            let row = TokenRow::new(first, [dim, pool.pool_type().run(dim)], token % self.page_tokens);
            stored(&|dim, values| pool.store_run(row.at(dim), values));
        };
        let [keys, values] = self.pools;
        k.if_else(at.is_query, query, || {
            k.when(active, || k.if_else(at.is_value, || append(values), || append(keys)));
        });
    }
}
