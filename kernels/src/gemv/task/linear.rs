//! A tile of a linear layer: strips of eight output features, streamed, with the epilogue that
//! follows.

use tilewright_codegen::build::{Val, Var};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};

use super::operands::VarOperands;
use crate::collective::ranked_key;
use crate::epilogue::{GateSums, ResultFunctions, ResultOperands, ResultPlace};
use crate::gemv::activations::{AOperand, Prologue, ScaledOutput};
use crate::gemv::announce::Announce;
use crate::gemv::linear::{OutputCell, PassWork, SharedSums, StripPass, TilePhase, in_last_phase};
use crate::gemv::scratch::LinearScratch;
use crate::gemv::slots::SlotPhases;
use crate::sample::key::largest;
use crate::sample::tiles::TileBests;
use crate::tile::{Array, Copies};
use crate::warps::ConsumerWarps;
use crate::weights::{Strip, WeightStages};

/// A tile of a linear layer.
#[derive(Clone, Copy)]
pub struct LinearTask<'f, 'k> {
    /// Shape of a strip.
    pub strip: Strip,
    /// Elements from a row of activations to the next.
    pub pitch: u32,
    /// Rows of the batch, 1 to 16.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// First feature, a multiple of eight.
    pub first: Val<'k, u32>,
    /// The exclusive end of the features; with a stride it may be before the first: then there are
    /// none.
    pub end: Val<'k, u32>,
    /// Features from the first of a strip to that of the next, a multiple of eight: eight where they
    /// are consecutive.
    pub stride: u32,
    /// Activations.
    pub input: Prologue<'k>,
    /// The storage of the A operand.
    pub a_operand: AOperand,
    /// The slots whose columns are multiplied, if these are known when the step runs; then a strip
    /// is one of a slot, and activations are held in registers.
    pub slots: Option<SlotPhases<'k>>,
    /// The epilogue of the sums.
    pub epilogue: LinearEpilogue<'f, 'k>,
}

/// The epilogue of the features of row r: the steps of every linear product
/// ([`epilogue`](crate::epilogue)), and where results go.
#[derive(Clone, Copy)]
pub struct LinearEpilogue<'f, 'k> {
    /// Added to each feature: to y, and to what gates multiply.
    pub bias: [Option<Bias<'f, 'k>>; 2],
    /// Whether y are gates: strips of y and of what they multiply take turns in the ring.
    pub gated: bool,
    /// The functions of a result.
    pub functions: ResultFunctions,
    /// A factor of each result, after the residual is added. Where it is 0 the result is 0, whatever
    /// the sums are. It is asked for before the products.
    pub factor: Option<&'f dyn Fn(ResultPlace<'k>) -> Val<'k, f32>>,
    /// Added to the results, `[rows, width]`.
    pub residual: Option<Array<'k>>,
    /// A last step of one's own, of a result and its place: row of the batch, feature of the whole
    /// layer. It is called once for each result, so it may load, store and add atomically.
    pub custom: Option<&'f dyn Fn(ResultPlace<'k>, Val<'k, f32>) -> Val<'k, f32>>,
    /// The destination of the results, `[rows, width]`, perhaps on each of several devices.
    pub out: Option<Copies<'k>>,
    /// Features of a row of `out` and of the residual.
    pub width: u32,
    /// The destination of the results as split activations.
    pub scaled: Option<ScaledOutput<'k>>,
    /// The destination of the tile's argmax candidate.
    pub candidates: Option<ArgmaxCandidates<'k>>,
    /// The index of the shard's first feature, if the layer is a shard; it is added to feature
    /// indexes and to offsets in rows.
    pub shard: Option<Val<'k, u32>>,
}

/// What is added to the sums of a product.
#[derive(Clone, Copy)]
pub enum Bias<'f, 'k> {
    /// A number for each feature, `[n]`.
    OfFeature(Array<'k>),
    /// A function of a result's place. It is called once for each result, before its last products.
    OfPlace(&'f dyn Fn(ResultPlace<'k>) -> Val<'k, f32>),
}

impl<'k> From<Array<'k>> for Bias<'_, 'k> {
    fn from(array: Array<'k>) -> Self {
        Bias::OfFeature(array)
    }
}

/// The argmax candidates of a tile: the largest result of each row, with its index.
#[derive(Clone, Copy)]
pub struct ArgmaxCandidates<'k> {
    /// The candidates of all tiles.
    pub bests: TileBests<'k>,
    /// The index of this tile.
    pub tile: Val<'k, u32>,
}

/// Computes a tile. `announce` comes when all that the tile reads of other tiles is there, before
/// its last results are stored.
pub fn linear<'k>(
    consumers: ConsumerWarps<'k>,
    scratch: LinearScratch<'k>,
    weights: &dyn WeightStages<'k>,
    tile: LinearTask<'_, 'k>,
    announce: Option<Announce<'_>>,
) {
    let k = consumers.k;
    let rows = tile.rows;
    let strips = match tile.stride {
        Strip::ROWS => (tile.end - tile.first + (Strip::ROWS - 1)) / Strip::ROWS,
        stride => (tile.end.max(tile.first) - tile.first + (stride - 1)) / stride,
    };
    if tile.epilogue.candidates.is_some() {
        k.when(k.tid().lt(rows), || scratch.best.at(k.tid()).store(0u64));
    }
    let pass = StripPass {
        consumers,
        scratch,
        strip: tile.strip,
        pitch: tile.pitch,
        rows,
        streams: tile.epilogue.streams(),
        a_operand: tile.a_operand,
        spreads: true,
        accumulates_squares: None,
        reserved: 0,
        slots: None,
    };
    pass.each_phase(tile.input, tile.slots, |pass, input, phase| {
        in_last_phase(announce, phase, &|announce| {
            tile.tile(pass, PassWork { weights, input, first_row: tile.first_row, strips, announce }, phase);
        });
    });
    if let Some(ArgmaxCandidates { bests, tile: number }) = tile.epilogue.candidates {
        consumers.sync();
        k.when(k.tid().lt(rows), || bests.store(tile.first_row + k.tid(), number, scratch.best.at(k.tid()).load()));
    }
}

impl<'k> LinearTask<'_, 'k> {
    /// Computes the tile, or a phase of it.
    fn tile(self, pass: StripPass<'k>, work: PassWork<'_, 'k>, phase: Option<TilePhase<'k>>) {
        let tile = self;
        let StripPass { consumers, scratch, .. } = pass;
        let k = consumers.k;
        let prepare =
            |base: Val<'k, u32>, cell: &OutputCell<'k>| tile.prepare(consumers, cell, base + cell.strip, phase);
        // An output of a thread is of the same row in every group; its others may be, too.
        let of_thread = match tile.epilogue.candidates {
            None => 0,
            Some(_) if (consumers.threads() / Strip::ROWS).is_multiple_of(tile.rows) => 1,
            Some(_) => pass.outputs(work.input),
        };
        let bests: Vec<_> = (0..of_thread).map(|_| k.var(0u64)).collect();
        pass.run(work, prepare, |sums, cell, prepared| {
            let Prepared { n, inside, stored, .. } = *prepared;
            let result = k.var(0.0f32);
            k.when(inside, || {
                result.set(tile.finish(consumers, scratch, CellSums { sums, cell, prepared }, phase));
                if let Some(best) = bests.get(cell.number % bests.len().max(1)) {
                    let keep = || best.set(best.get().max(ranked_key(result.get(), tile.epilogue.index(n))));
                    phase.map_or_else(keep, |phase| k.when(phase.last, keep));
                }
            });
            let row = tile.first_row + cell.row;
            let result = result.get();
            if let Some(out) = tile.epilogue.out {
                let at = row * tile.epilogue.width + tile.epilogue.index(n);
                if out.together() == 2 {
                    let next = result.shfl_down(1);
                    k.when(stored & (n % 2).eq(0), || out.store_run(at, [result, next]));
                } else {
                    k.when(stored, || out.store_run(at, [result]));
                }
            }
            if let Some(terms) = tile.epilogue.scaled {
                let weight = prepared.weight.map(Var::get);
                let place = prepared.place.map(Var::get);
                terms.store_of_eight([row, n], result, weight, place, stored);
            }
        });
        for (first, best) in (0u32..).step_by(consumers.threads() as usize).zip(bests) {
            let at = k.tid() + first;
            // Eight lanes have the features of one strip and row.
            let row = at / Strip::ROWS % tile.rows;
            let best = largest(best.get(), Strip::ROWS);
            k.when((at % Strip::ROWS).eq(0), || {
                scratch.best.at(row).red(AtomOp::Max, best, RedOrder::Relaxed(Scope::Cta));
            });
        }
    }
}

/// The operands of an output's epilogue besides the sums.
struct Prepared<'k> {
    /// The feature.
    n: Val<'k, u32>,
    /// The first strip of the ring that it is of.
    strip: Val<'k, u32>,
    /// Whether there is such an output.
    inside: Val<'k, bool>,
    /// Whether it is stored: not while its sums wait in shared memory.
    stored: Val<'k, bool>,
    bias: [Option<Var<'k, f32>>; 2],
    factor: Option<Var<'k, f32>>,
    residual: Option<Var<'k, f32>>,
    /// The weight of the norm that comes next.
    weight: Option<Var<'k, f32>>,
    /// Its place in the act-order of its readers.
    place: Option<Var<'k, u32>>,
    /// The sums of the previous K chunks, for each of its strips of the ring.
    before: Vec<Var<'k, f32>>,
}

/// An output whose products are there.
#[derive(Clone, Copy)]
struct CellSums<'a, 'k> {
    /// Sums of the output's group.
    sums: SharedSums<'k>,
    /// Place of the output in its group.
    cell: &'a OutputCell<'k>,
    /// Operands of its epilogue.
    prepared: &'a Prepared<'k>,
}

impl<'k> LinearTask<'_, 'k> {
    /// Loads the operands that an output of a strip of features needs in addition to the sums.
    fn prepare(
        self,
        consumers: ConsumerWarps<'k>,
        cell: &OutputCell<'k>,
        strip: Val<'k, u32>,
        phase: Option<TilePhase<'k>>,
    ) -> Prepared<'k> {
        let k = consumers.k;
        let n = self.first + strip * self.stride + cell.feature;
        let inside = cell.inside & n.lt(self.end);
        let load = |array: Array<'k>, index: Val<'k, u32>| {
            let value = k.var(0.0f32);
            k.when(inside, || value.set(array.load(index)));
            value
        };
        let LinearEpilogue { width, scaled, bias: [bias, up_bias], .. } = self.epilogue;
        let at = || (self.first_row + cell.row) * width + self.epilogue.index(n);
        let place = || ResultPlace { row: self.first_row + cell.row, column: self.epilogue.index(n) };
        let factor = self.epilogue.factor.map(|factor| {
            let value = k.var(0.0f32);
            k.when(inside, || value.set(factor(place())));
            value
        });
        let residual = self.epilogue.residual.map(|residual| load(residual, at()));
        let load_bias = |bias: Bias<'_, 'k>| match bias {
            Bias::OfFeature(array) => load(array, n),
            Bias::OfPlace(of) => {
                let value = k.var(0.0f32);
                let needed = phase.map_or(inside, |phase| inside & phase.last);
                k.when(needed, || value.set(of(place())));
                value
            }
        };
        let up_bias = up_bias.map(load_bias);
        let streams = self.epilogue.streams();
        let strip = if streams > 1 { strip * streams } else { strip };
        let before = |phase: TilePhase<'k>, of: u32| match phase.waiting {
            None => self.epilogue.waits_in().map(|out| phase.before(inside, || out.load(at()))),
            Some(waiting) => Some(phase.before(inside, || waiting.of(strip + of, cell).load())),
        };
        let before = phase.into_iter().flat_map(|phase| (0..streams).filter_map(move |of| before(phase, of))).collect();
        let weight = scaled.and_then(|scaled| scaled.weight).map(|weight| load(weight, n));
        let order = scaled.and_then(|scaled| scaled.ask_place(n, inside));
        let bias = [bias.map(load_bias), up_bias];
        let stored = phase.filter(|phase| phase.waiting.is_some()).map_or(inside, |phase| inside & phase.last);
        Prepared { n, strip, inside, stored, bias, factor, residual, weight, place: order, before }
    }

    /// The products of an output with its strip of the ring of that number: those of the columns so
    /// far.
    fn sum(self, CellSums { sums, cell, prepared }: CellSums<'_, 'k>, of: u32) -> Val<'k, f32> {
        let place = if of > 0 { cell.place + of * self.rows * Strip::ROWS } else { cell.place };
        let sum = sums.total(place);
        prepared.before.get(of as usize).map_or(sum, |before| sum + before.get())
    }

    /// An output, as it is stored; after a phase that is not the last its sums wait, those of
    /// logits where these are stored.
    fn finish(
        self,
        consumers: ConsumerWarps<'k>,
        scratch: LinearScratch<'k>,
        output: CellSums<'_, 'k>,
        phase: Option<TilePhase<'k>>,
    ) -> Val<'k, f32> {
        let k = consumers.k;
        let CellSums { cell, prepared, .. } = output;
        let scale = self.input.scale(consumers, self.strip, cell.row, scratch.squares);
        let operands = VarOperands { scale, bias: prepared.bias, residual: prepared.residual };
        let sum = |of: u32| self.sum(output, of);
        let first = sum(0);
        let done = || {
            let y = operands.affine(GateSums::Gate, [first]);
            let up = self.epilogue.gated.then(|| operands.affine(GateSums::Up, [sum(1)]));
            let up = up.map(|up| move |i: usize| up[i]);
            let [result] = self.epilogue.functions.apply(y, up.as_ref().map(|up| up as _), &operands);
            let times = |factor: Var<'k, f32>| factor.get().ne(0.0).select(result * factor.get(), 0.0f32);
            let result = prepared.factor.map_or(result, times);
            let place = || ResultPlace { row: self.first_row + cell.row, column: self.epilogue.index(prepared.n) };
            self.epilogue.custom.map_or(result, |custom| custom(place(), result))
        };
        match phase {
            None => done(),
            Some(TilePhase { waiting: None, last, .. }) if self.epilogue.custom.is_none() => last.select(done(), first),
            // A function of one's own is called for whole sums alone.
            Some(TilePhase { waiting: None, last, .. }) => {
                let result = k.var(0.0f32);
                k.if_else(last, || result.set(done()), || result.set(first));
                result.get()
            }
            Some(TilePhase { waiting: Some(waiting), last, .. }) => {
                let result = k.var(0.0f32);
                let wait = || {
                    waiting.of(prepared.strip, cell).store(first);
                    (1..self.epilogue.streams()).for_each(|of| waiting.of(prepared.strip + of, cell).store(sum(of)));
                };
                k.if_else(last, || result.set(done()), wait);
                result.get()
            }
        }
    }
}

impl<'f, 'k> LinearEpilogue<'f, 'k> {
    /// Stores rows of `width` results, if anywhere, and does nothing else.
    pub fn to(out: Option<Copies<'k>>, width: u32) -> LinearEpilogue<'f, 'k> {
        LinearEpilogue {
            bias: [None; 2],
            gated: false,
            functions: ResultFunctions::default(),
            factor: None,
            residual: None,
            custom: None,
            out,
            width,
            scaled: None,
            candidates: None,
            shard: None,
        }
    }

    /// Strips of the ring that make one strip of features.
    fn streams(self) -> u32 {
        if self.gated { 2 } else { 1 }
    }

    /// The global memory in which the sums of a K chunk are kept until the next chunk, if shared
    /// memory is not used: the logits themselves.
    fn waits_in(self) -> Option<Array<'k>> {
        self.candidates.and(self.out).and_then(|out| out.each().next())
    }

    /// The index of a feature in a row.
    fn index(self, n: Val<'k, u32>) -> Val<'k, u32> {
        self.shard.map_or(n, |first| first + n)
    }
}
