//! A tile of a linear layer: strips of eight output features, streamed, with the epilogue that
//! follows.

use tilewright_codegen::build::{Ptr, Shared, Val, Var};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};

use super::pass::{Announce, OutputCell, PassWork, StripPass};
use super::phases::TilePhase;
use super::{AOperand, ActivationOutput, Beyond, Input, ScaledOutput, SharedSums, WeightStages};
use crate::activation::{Activation, SoftCap};
use crate::gemv::Strip;
use crate::sample::key::{key, largest};
use crate::sample::tiles::TileBests;
use crate::tile::{Array, Copies};
use crate::warps::ConsumerWarps;

/// A tile of a linear layer.
#[derive(Clone, Copy)]
pub struct LinearTask<'k> {
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
    /// Where the features end.
    pub end: Val<'k, u32>,
    /// Activations.
    pub input: Input<'k>,
    /// Where the A operand lives.
    pub a_operand: AOperand,
    /// Added to each feature, `[n]`.
    pub bias: Option<Array<'k>>,
    /// What becomes of the result.
    pub output: LinearEpilogue<'k>,
}

/// The epilogue of the features of row r.
#[derive(Clone, Copy)]
pub enum LinearEpilogue<'k> {
    /// `out[r, n] = y[r, n]`, `[rows, width]`.
    Store {
        /// Output, perhaps on each of several devices.
        out: Copies<'k>,
        /// Features of a row.
        width: u32,
    },
    /// `out[r, n] = residual[r, n] + y[r, n]`.
    Add {
        /// What is added.
        residual: Array<'k>,
        /// Output.
        out: Array<'k>,
        /// Features of a row.
        width: u32,
        /// Where it is stored as the readers of its norm multiply it, too.
        scaled: Option<ScaledOutput<'k>>,
    },
    /// `out[r, n] = activation(y[r, n]) · u[r, n]`; strips of y and u take turns in the ring.
    Gated {
        /// The function that y goes through.
        activation: Activation,
        /// Bias of u.
        up_bias: Option<Array<'k>>,
        /// Output.
        out: ActivationOutput<'k>,
        /// Features of a row.
        width: u32,
    },
    /// `out[r, n] = y[r, n]`, perhaps capped, and the largest of the tile with its index.
    Logits {
        /// A soft cap of logits: `y` becomes `cap · tanh(y / cap)`.
        soft_cap: Option<SoftCap>,
        /// Output.
        out: Array<'k>,
        /// Features of a row.
        width: u32,
        /// Where the largest goes.
        bests: TileBests<'k>,
        /// Which tile this is.
        tile: Val<'k, u32>,
        /// What is added to features for their indexes, where the layer has a part of the
        /// vocabulary.
        shard: Option<Val<'k, u32>>,
    },
}

/// Shared memory of the team that functions use while they run.
#[derive(Clone, Copy)]
pub struct LinearScratch<'k> {
    /// Activations, followed by `sums`.
    pub operand: Ptr<'k, Shared, half::bf16>,
    /// Bytes of `operand`, a multiple of 8.
    pub operand_bytes: u32,
    /// Sums of squares, f32 `[16, warps]`.
    pub squares: Ptr<'k, Shared, f32>,
    /// Sums of products.
    pub sums: Ptr<'k, Shared, f32>,
    /// Bytes of `sums`.
    pub sums_bytes: u32,
    /// The largest logit of each row and its index, u64 `[16]`.
    pub best: Ptr<'k, Shared, u64>,
    /// Most registers of a lane to which copied activations come before bf16 weights are
    /// multiplied: then a tile of weights is all that a product reads of shared memory.
    pub copied_registers: u32,
    /// Most rows whose codes are multiplied two strips at a time, where they can be.
    pub paired_rows: u32,
    /// Most stages of a strip of 4-bit codes of which the words of one come into registers under
    /// the products of the one before.
    pub words_ahead: u32,
    /// Where it is said that activations are beyond what an f16 holds, if it is.
    pub beyond: Option<Beyond<'k>>,
    /// Where the time is noted when activations are there, if it is wanted.
    pub loaded: Option<Ptr<'k, Shared, u64>>,
}

/// Computes a tile. `announce` comes when all that the tile reads of other tiles is there, before
/// its last results are stored.
pub fn linear<'k>(
    team: ConsumerWarps<'k>,
    scratch: LinearScratch<'k>,
    weights: &dyn WeightStages<'k>,
    tile: LinearTask<'k>,
    announce: Option<Announce<'_>>,
) {
    let k = team.k;
    let rows = tile.rows;
    let strips = (tile.end - tile.first + (Strip::ROWS - 1)) / Strip::ROWS;
    if let LinearEpilogue::Logits { .. } = tile.output {
        k.when(k.tid().lt(rows), || scratch.best.at(k.tid()).store(0u64));
    }
    let pass = StripPass {
        team,
        scratch,
        strip: tile.strip,
        pitch: tile.pitch,
        rows,
        streams: tile.output.streams(),
        a_operand: tile.a_operand,
        spreads: true,
        accumulates_squares: None,
        reserved: 0,
    };
    pass.each_phase(tile.input, |pass, input, phase| {
        Announce::in_last(announce, phase, &|announce| {
            tile.tile(pass, PassWork { weights, input, first_row: tile.first_row, strips, announce }, phase);
        });
    });
    if let LinearEpilogue::Logits { bests, tile: number, .. } = tile.output {
        team.sync();
        k.when(k.tid().lt(rows), || bests.store(tile.first_row + k.tid(), number, scratch.best.at(k.tid()).load()));
    }
}

impl<'k> LinearTask<'k> {
    /// Computes the tile, or a phase of it.
    fn tile(self, pass: StripPass<'k>, work: PassWork<'_, 'k>, phase: Option<TilePhase<'k>>) {
        let tile = self;
        let StripPass { team, scratch, .. } = pass;
        let k = team.k;
        let prepare = |base: Val<'k, u32>, cell: &OutputCell<'k>| tile.prepare(team, cell, base + cell.strip, phase);
        // An output of a thread is of the same row in every group; its others may be, too.
        let bests: Vec<_> = match tile.output {
            LinearEpilogue::Logits { .. } if (team.threads() / Strip::ROWS).is_multiple_of(tile.rows) => {
                vec![k.var(0u64)]
            }
            LinearEpilogue::Logits { .. } => (0..pass.outputs(work.input)).map(|_| k.var(0u64)).collect(),
            LinearEpilogue::Store { .. } | LinearEpilogue::Add { .. } | LinearEpilogue::Gated { .. } => Vec::new(),
        };
        pass.run(work, prepare, |sums, cell, prepared| {
            let Prepared { n, inside, stored, .. } = *prepared;
            let result = k.var(0.0f32);
            k.when(inside, || {
                result.set(tile.finish(team, scratch, CellSums { sums, cell, prepared }, phase));
                if let Some(best) = bests.get(cell.number % bests.len().max(1)) {
                    let keep = || best.set(best.get().max(key(result.get(), tile.output.index(n))));
                    phase.map_or_else(keep, |phase| k.when(phase.last, keep));
                }
            });
            let row = tile.first_row + cell.row;
            let result = result.get();
            if let Some((out, width)) = tile.output.rows() {
                let at = row * width + tile.output.index(n);
                if out.together() == 2 {
                    let next = result.shfl_down(1);
                    k.when(stored & (n % 2).eq(0), || out.store_run(at, [result, next]));
                } else {
                    k.when(stored, || out.store_run(at, [result]));
                }
            }
            if let Some(terms) = tile.output.terms() {
                let weight = prepared.weight.map(Var::get);
                let place = prepared.place.map(Var::get);
                terms.store_of_eight([row, n], result, weight, place, stored);
            }
        });
        for (first, best) in (0u32..).step_by(team.threads() as usize).zip(bests) {
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

/// What an output's epilogue reads beside the sums.
struct Prepared<'k> {
    /// The feature.
    n: Val<'k, u32>,
    /// The first strip of the ring that it is of.
    strip: Val<'k, u32>,
    /// Whether there is such an output.
    inside: Val<'k, bool>,
    /// Whether it is stored: not while its sums wait in shared memory.
    stored: Val<'k, bool>,
    bias: Option<Var<'k, f32>>,
    /// The residual, or the second layer's bias.
    other: Option<Var<'k, f32>>,
    /// The weight of the norm that comes next.
    weight: Option<Var<'k, f32>>,
    /// Its place in the act-order of those who read it.
    place: Option<Var<'k, u32>>,
    /// What the phases before summed, of each strip of the ring that it is of.
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

impl<'k> LinearTask<'k> {
    /// Loads what an output of a strip of features needs beside the sums.
    fn prepare(
        self,
        team: ConsumerWarps<'k>,
        cell: &OutputCell<'k>,
        strip: Val<'k, u32>,
        phase: Option<TilePhase<'k>>,
    ) -> Prepared<'k> {
        let k = team.k;
        let n = self.first + strip * Strip::ROWS + cell.feature;
        let inside = cell.inside & n.lt(self.end);
        let load = |array: Array<'k>, index: Val<'k, u32>| {
            let value = k.var(0.0f32);
            k.when(inside, || value.set(array.load(index)));
            value
        };
        let at = |width: u32| (self.first_row + cell.row) * width + self.output.index(n);
        let other = match self.output {
            LinearEpilogue::Add { residual, width, .. } => Some(load(residual, at(width))),
            LinearEpilogue::Gated { up_bias, .. } => up_bias.map(|bias| load(bias, n)),
            LinearEpilogue::Store { .. } | LinearEpilogue::Logits { .. } => None,
        };
        let streams = self.output.streams();
        let strip = if streams > 1 { strip * streams } else { strip };
        let before = |phase: TilePhase<'k>, of: u32| match (phase.waiting, self.output) {
            (None, LinearEpilogue::Logits { out, width, .. }) => Some(phase.before(inside, || out.load(at(width)))),
            (None, _) => None,
            (Some(waiting), _) => Some(phase.before(inside, || waiting.of(strip + of, cell).load())),
        };
        let before = phase.into_iter().flat_map(|phase| (0..streams).filter_map(move |of| before(phase, of))).collect();
        let weight = self.output.terms().and_then(|terms| terms.weight).map(|weight| load(weight, n));
        let place = self.output.terms().and_then(|terms| terms.ask_place(n, inside));
        let bias = self.bias.map(|bias| load(bias, n));
        let stored = phase.filter(|phase| phase.waiting.is_some()).map_or(inside, |phase| inside & phase.last);
        Prepared { n, strip, inside, stored, bias, other, weight, place, before }
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
        team: ConsumerWarps<'k>,
        scratch: LinearScratch<'k>,
        output: CellSums<'_, 'k>,
        phase: Option<TilePhase<'k>>,
    ) -> Val<'k, f32> {
        let k = team.k;
        let CellSums { cell, prepared, .. } = output;
        let scale = self.input.scale(team, self.strip, cell.row, scratch.squares);
        let scaled = |sum: Val<'k, f32>| scale.map_or(sum, |scale| sum * scale);
        let plus = |sum: Val<'k, f32>, other: Option<Var<'k, f32>>| other.map_or(sum, |other| sum + other.get());
        let sum = |of: u32| self.sum(output, of);
        let first = sum(0);
        let done = || {
            let y = plus(scaled(first), prepared.bias);
            match self.output {
                LinearEpilogue::Store { .. } => y,
                LinearEpilogue::Logits { soft_cap, .. } => soft_cap.map_or(y, |cap| cap.apply(y)),
                LinearEpilogue::Add { .. } => plus(y, prepared.other),
                LinearEpilogue::Gated { activation, .. } => {
                    let up = plus(scaled(sum(1)), prepared.other);
                    activation.apply(y) * up
                }
            }
        };
        match phase {
            None => done(),
            Some(TilePhase { waiting: None, last, .. }) => last.select(done(), first),
            Some(TilePhase { waiting: Some(waiting), last, .. }) => {
                let result = k.var(0.0f32);
                let wait = || {
                    waiting.of(prepared.strip, cell).store(first);
                    (1..self.output.streams()).for_each(|of| waiting.of(prepared.strip + of, cell).store(sum(of)));
                };
                k.if_else(last, || result.set(done()), wait);
                result.get()
            }
        }
    }
}

impl<'k> LinearEpilogue<'k> {
    /// Strips of the ring that make one strip of features.
    fn streams(self) -> u32 {
        if matches!(self, LinearEpilogue::Gated { .. }) { 2 } else { 1 }
    }

    /// Where features go row by row, and how many a row has.
    fn rows(self) -> Option<(Copies<'k>, u32)> {
        match self {
            LinearEpilogue::Store { out, width } => Some((out, width)),
            LinearEpilogue::Add { out, width, .. }
            | LinearEpilogue::Gated { out: ActivationOutput::Rows(out), width, .. }
            | LinearEpilogue::Logits { out, width, .. } => Some((out.into(), width)),
            LinearEpilogue::Gated { out: ActivationOutput::Terms(_), .. } => None,
        }
    }

    /// Where they go as their readers multiply them.
    fn terms(self) -> Option<ScaledOutput<'k>> {
        match self {
            LinearEpilogue::Add { scaled, .. } => scaled,
            LinearEpilogue::Gated { out: ActivationOutput::Terms(terms), .. } => Some(terms),
            LinearEpilogue::Store { .. } | LinearEpilogue::Gated { .. } | LinearEpilogue::Logits { .. } => None,
        }
    }

    /// Where a feature is in a row.
    fn index(self, n: Val<'k, u32>) -> Val<'k, u32> {
        match self {
            LinearEpilogue::Logits { shard: Some(first), .. } => first + n,
            LinearEpilogue::Store { .. }
            | LinearEpilogue::Add { .. }
            | LinearEpilogue::Gated { .. }
            | LinearEpilogue::Logits { .. } => n,
        }
    }
}
