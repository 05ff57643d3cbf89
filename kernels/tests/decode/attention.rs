//! Attention over splits of the pages, merged: groups, head dims, page sizes, splits and idle rows
//! at random, and tokens that come by stages, as many as the immutable prefix has.

use std::ops::Range;

use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared, Val, Var, block, record};
use tilewright_codegen::device::sim;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::sim::mutate::Equivalent;
use tilewright_codegen::trial::{Bound, BufferId, Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::attention::prefill::Prefill;
use tilewright_kernels::attention::split::{
    HeadCounts, Merged, Shares, SplitAttention, SplitSignal, TokenSelection, attention,
};
use tilewright_kernels::attention::{ScoreModifier, ScorePlace};
use tilewright_kernels::gemv::activations::ActivationOutput;
use tilewright_kernels::gemv::task::LinearScratch;
use tilewright_kernels::kv::{PagedPool, PoolArray, PoolType, SplitPages, StepScalars, Streamed, TokenStage};
use tilewright_kernels::naive::{self, PoolShape};
use tilewright_kernels::quant::Code;
use tilewright_kernels::ring;
use tilewright_kernels::tile::{AccessMode, Array, Float};
use tilewright_kernels::warps::ConsumerWarps;

use crate::paged::Paged;
use crate::stored::{self, UNIT};
use crate::supply::scratch;
use crate::{right, surveyed};

#[derive(Clone, Debug)]
struct Case {
    heads: HeadCounts,
    warps: u32,
    q: Float,
    out: Float,
    pool: PoolType,
    /// The factors of key codes and of value codes.
    scales: [f32; 2],
    /// Whether the result carries its arrival.
    packets: bool,
    /// Whether the parts of splits do, too.
    meets: bool,
    paged: Paged,
    /// Fewest pages of a split.
    least: SplitPages,
    position: Vec<i32>,
    /// The layout of a stage, if tokens are streamed by stages.
    stage: Option<TokenStage>,
    /// Of each row, how many tokens do at most.
    immutable_prefix: Vec<i32>,
    modifier: ScoreModifier,
    /// A logit of each query head that takes part in the softmax.
    sinks: Option<Vec<f32>>,
    /// Whether the function [`distant`] is applied.
    custom: bool,
    /// Keys are −∞ in every dimension, and queries positive: no query sees anything.
    blank: bool,
}

/// Stages that the team copies itself, row by row.
struct Stages<'k> {
    team: ConsumerWarps<'k>,
    work: SplitAttention<'k, 'k>,
    streamed: Option<Streamed<'k>>,
    memory: Ptr<'k, Shared, u32>,
    row: Var<'k, u32>,
    next: Var<'k, u32>,
}

impl<'k> Stages<'k> {
    fn new(team: ConsumerWarps<'k>, work: SplitAttention<'k, 'k>) -> Stages<'k> {
        let k = team.k;
        let tokens = work.streamed.map_or(0, |streamed| streamed.stage.tokens());
        let memory = k.shared_aligned("stage", (tokens * work.heads.dim).max(4), 16);
        Stages { team, work, streamed: work.streamed, memory, row: k.var(0u32), next: k.var(0u32) }
    }

    fn tokens(&self, streamed: Streamed<'k>) -> [Val<'k, u32>; 2] {
        let keys = self.work.keys;
        let row = self.row.get();
        let shares = Shares::of_row(keys, row, self.work.heads.splits, self.work.modifier.window);
        streamed.tokens(shares.tokens_of(self.work.split, keys.page_tokens), row)
    }
}

impl<'k> ring::Stages<'k> for Stages<'k> {
    fn wait(&self) -> ring::AnyStage<'k> {
        let team = self.team;
        let k = self.team.k;
        let streamed = self.streamed.expect("stages are asked for where tokens are streamed");
        k.loop_(|| {
            k.break_if(self.next.get().lt(streamed.stages(self.tokens(streamed))));
            self.row.set(self.row.get() + 1);
            self.next.set(0u32);
        });
        let tokens = self.tokens(streamed);
        let at = [tokens[0] + self.next.get() * streamed.stage.tokens(), streamed.count(tokens, self.next.get())];
        team.sync();
        for piece in 0..streamed.stage.pieces() {
            let piece = streamed.piece(self.work.keys, [self.work.kv_head, self.row.get()], at, piece);
            for (pool, to) in [(self.work.keys, piece.keys), (self.work.values, piece.values)] {
                let from = pool.bytes_from(piece.first).cast::<u32>();
                let to = self.memory.at(to / 4);
                k.for_step(k.tid(), piece.bytes / 4, team.threads(), |at| to.at(at).store(from.at(at).load()));
            }
        }
        team.sync();
        self.next.set(self.next.get() + 1);
        ring::AnyStage::untold(self.memory)
    }
}

/// A function of scores of one's own: tokens farther than ten times the row and head are not seen,
/// and a token weighs less with its distance.
fn distant<'k>(at: ScorePlace<'k>, score: Val<'k, f32>) -> Val<'k, f32> {
    let distance = at.query_index() - at.token_index();
    let most = (at.sequence + at.head + 1) * 10;
    distance.lt(most).select(score - distance.cast::<f32>() * 0.125, f32::NEG_INFINITY)
}

/// The place of a score, for the definition of [`distant`].
struct Distance {
    row: usize,
    head: usize,
    query: usize,
    token: usize,
}

impl Distance {
    fn score(&self, score: f64) -> f64 {
        let distance = self.query - self.token;
        if distance < (self.row + self.head + 1) * 10 { score - distance as f64 * 0.125 } else { f64::NEG_INFINITY }
    }
}

/// The generation of a packets result: a number in both types.
const GENERATION: u32 = 0x3f80_0000;

/// Types of keys and values.
const POOLS: [PoolType; 2] = [PoolType::Float(Float::Bf16), PoolType::E4m3];

/// Modifiers, as often as not none: caps below most scores and above all of them, windows that are
/// a token, begin inside a block, inside a page or at one, and see everything.
fn modifier(draw: &mut Draw, page_tokens: u32) -> ScoreModifier {
    let soft_cap = [None, None, Some(0.25), Some(1.0), Some(30.0)][draw.between(0..=4) as usize];
    let windows = [1, draw.between(2..=40), page_tokens * draw.between(1..=2), draw.between(1..=200)];
    let window = (draw.between(0..=1) == 0).then(|| windows[draw.between(0..=3) as usize]);
    ScoreModifier { soft_cap, window }
}

impl Case {
    fn draw(draw: &mut Draw) -> Case {
        let kv_heads = draw.between(1..=2);
        let group = draw.between(1..=16);
        let dim = 8 * [draw.between(1..=4), draw.between(1..=32), 8, 16][draw.between(0..=3) as usize];
        let heads = HeadCounts {
            heads: kv_heads * group,
            kv_heads,
            dim,
            splits: [draw.between(1..=4), draw.between(1..=20)][draw.between(0..=1) as usize],
        };
        Case::of(heads, None, draw)
    }

    /// A problem of these heads; the pool's type is drawn where it is not given.
    fn of(heads: HeadCounts, pool: Option<PoolType>, draw: &mut Draw) -> Case {
        let HeadCounts { kv_heads, dim, .. } = heads;
        let rows = draw.between(1..=3);
        let most = [1, 40, 150][draw.between(0..=2) as usize];
        // One in four rows is idle, some are at their first token.
        let position: Vec<i32> =
            (0..rows).map(|_| if draw.between(0..=3) == 0 { -1 } else { draw.between(0..=most - 1) as i32 }).collect();
        let page_tokens = 16 * draw.between(1..=4);
        let paged = Paged::draw(draw, rows, most, [kv_heads, page_tokens, dim]);
        let bytes = [4096, 8192, 16384, 0][draw.between(0..=3) as usize];
        let drawn = POOLS[draw.between(0..=1) as usize];
        let pool = pool.unwrap_or(drawn);
        let scales = [0, 1].map(|_| [1.0, 0.75, 0.3][draw.between(0..=2) as usize]);
        let stage = TokenStage::new(pool, dim, page_tokens, bytes).filter(|_| heads.is_one_pass());
        let immutable_prefix = position.iter().map(|&p| draw.between(0..=p.max(0) as u32 / 16) as i32 * 16).collect();
        let warps = draw.between(1..=5);
        let q = stored::float(draw);
        let packets = draw.between(0..=1) == 0;
        let out = [Float::F32, Float::Bf16][draw.between(0..=1) as usize];
        let least = draw.between(1..=2);
        let least = SplitPages { fewest: least, single: draw.between(0..=4) };
        let meets = draw.between(0..=2) == 0;
        let modifier = modifier(draw, page_tokens);
        Case {
            heads,
            warps,
            q,
            out,
            pool,
            scales,
            packets,
            meets,
            paged,
            least,
            position,
            stage,
            immutable_prefix,
            modifier,
            sinks: None,
            custom: false,
            blank: false,
        }
    }

    fn record(&self, k: &Builder) {
        let work = self.work(k);
        self.attend(SplitAttention { custom: self.custom.then_some(&distant), ..work });
    }

    fn attend<'k>(&self, work: SplitAttention<'k, 'k>) {
        let team = ConsumerWarps::new(work.split.builder(), self.warps);
        let strips = self.heads.query_bytes().div_ceil(LinearScratch::strip_bytes(1, self.warps));
        let scratch = scratch(team, self.heads.scratch_bytes(self.warps), 1, strips);
        attention(team, scratch, &Stages::new(team, work), work, || ());
    }

    fn work<'k>(&self, k: &'k Builder) -> SplitAttention<'k, 'k> {
        let q = k.global::<u8>("q");
        let [keys, values] = ["keys", "values"].map(|name| k.global::<u8>(name));
        let position = k.global::<i32>("position");
        let table = k.global::<i32>("table");
        let pages = |pool, scale: f32| {
            let pool = match self.pool {
                PoolType::Float(float) => Array::new(pool, float).into(),
                PoolType::E4m3 => PoolArray::E4m3 { codes: pool, scale: k.lit(scale) },
            };
            PagedPool { split_pages: self.least, ..self.paged.pages(k, pool, position, table) }
        };
        let immutable_prefix = StepScalars::Global(k.global::<i32>("immutable_prefix"));
        SplitAttention {
            heads: self.heads,
            rows: self.position.len() as u32,
            first_row: k.lit(0),
            kv_head: k.block_id() / self.heads.splits,
            split: k.block_id() % self.heads.splits,
            scale: self.scale(),
            modifier: self.modifier,
            custom: None,
            sinks: self.sinks.as_ref().map(|_| k.global("sinks")),
            q: Array::new(q, self.q),
            keys: pages(keys, self.scales[0]),
            values: pages(values, self.scales[1]),
            acc: k.global("acc"),
            stats: k.global("stats"),
            streamed: self.stage.map(|stage| Streamed { stage, immutable_prefix }),
            selected: None,
            merged: Merged { out: ActivationOutput::Rows(self.result(k)), parts: self.parts(k) },
            newest: None,
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.heads.dim as f32).sqrt()
    }

    /// The signal between splits.
    fn parts<'k>(&self, k: &'k Builder) -> SplitSignal<'k> {
        if !self.meets {
            return SplitSignal::Counted(k.global("arrivals"));
        }
        let packets = AccessMode::Packets(k.lit(GENERATION));
        SplitSignal::Packets(Array::new(k.global::<u8>("arrivals"), Float::F32).accessed(packets))
    }

    /// The result, as readers have it.
    fn result<'k>(&self, k: &'k Builder) -> Array<'k> {
        let out = Array::new(k.global::<u8>("out"), self.out).accessed(AccessMode::Relaxed);
        if self.packets { out.accessed(AccessMode::Packets(k.lit(GENERATION))) } else { out }
    }

    /// The numbers of a pool, and how it is stored.
    fn numbers(&self, trial: &mut Trial, name: &'static str, pool: &[bf16], scale: f32) -> (Vec<f64>, BufferId) {
        match self.pool {
            PoolType::Float(_) => {
                (pool.iter().map(|x| x.to_f64()).collect(), trial.input(name, &self.paged.swizzled(pool)))
            }
            PoolType::E4m3 => {
                let code = |x: &bf16| if x.is_nan() { 0x7f } else { Code::E4m3.nearest(x.to_f32()) };
                let codes: Vec<u8> = pool.iter().map(code).collect();
                let number = |&code: &u8| f64::from(Code::E4m3.value(code)) * f64::from(scale);
                (codes.iter().map(number).collect(), trial.input(name, &self.paged.swizzled(&codes)))
            }
        }
    }

    /// The attention of every row and head; idle rows have zeros.
    fn oracle(&self, q: &[f64], keys: &[f64], values: &[f64]) -> Vec<f64> {
        let HeadCounts { heads, kv_heads, dim, .. } = self.heads;
        let of = |(at, q): (usize, &[f64])| {
            let row = at / heads as usize;
            let head = at % heads as usize;
            let kv_head = head / (heads / kv_heads) as usize;
            let table = self.paged.row(row);
            let gather = |pool: &[f64]| -> Vec<f64> {
                let token = |t| &pool[self.paged.shape.offset(kv_head, &table, t)..][..dim as usize];
                self.seen(row).flat_map(token).copied().collect()
            };
            let seen = self.seen(row);
            let score = |token: usize, product: f64| {
                let score = product * f64::from(self.scale());
                let score = self.modifier.soft_cap.map_or(score, |cap| naive::soft_cap(score, cap.into()));
                let at = Distance { row, head, query: seen.end - 1, token: seen.start + token };
                if self.custom { at.score(score) } else { score }
            };
            let all = naive::attention_by(q, &gather(keys), &gather(values), score);
            let sink = self.sinks.as_ref().map(|sinks| naive::SplitPartial::sink(sinks[head].into(), dim as usize));
            naive::combine(&[all].into_iter().chain(sink).collect::<Vec<_>>(), dim as usize)
        };
        q.chunks(dim as usize).enumerate().flat_map(of).collect()
    }

    /// The tokens that a row sees.
    fn seen(&self, row: usize) -> Range<usize> {
        self.modifier.seen((self.position[row] + 1).max(0) as usize)
    }

    /// Splits of a row that have tokens.
    fn active(&self, row: usize) -> u32 {
        let page = self.paged.shape.page_tokens;
        let seen = self.seen(row);
        let pages = (seen.end.div_ceil(page) - seen.start / page) as u32;
        let SplitPages { fewest, single } = self.least;
        if pages <= single { 1 } else { pages.div_ceil(pages.div_ceil(self.heads.splits).max(fewest)) }
    }

    /// A pool that is not a number in pages whose tokens a window hides.
    fn hide(&self, mut pool: Vec<bf16>) -> Vec<bf16> {
        let PoolShape { kv_heads, page_tokens, head_dim, .. } = self.paged.shape;
        for row in 0..self.position.len() {
            let table = self.paged.row(row);
            for token in 0..self.seen(row).start / page_tokens * page_tokens {
                for head in 0..kv_heads {
                    let at = self.paged.shape.offset(head, &table, token);
                    pool[at..at + head_dim].fill(bf16::NAN);
                }
            }
        }
        pool
    }

    /// Counts of arrivals before the launch and after it, the first launches and the last before
    /// they wrap.
    fn arrivals(&self, draw: &mut Draw) -> [Vec<u32>; 2] {
        let all = self.heads.splits.next_power_of_two();
        let mut counts = [Vec::new(), Vec::new()];
        for at in 0..self.position.len() * self.heads.kv_heads as usize {
            let before = all * [0, draw.between(0..=9), (u32::MAX / all).max(1)][draw.between(0..=2) as usize];
            let merges = self.active(at / self.heads.kv_heads as usize) > 1;
            let after = if merges { before.wrapping_add(all) } else { before };
            let rest = vec![7; Merged::ARRIVAL as usize - 1];
            counts.iter_mut().zip([before, after]).for_each(|(counts, count)| {
                counts.push(count);
                counts.extend(&rest);
            });
        }
        counts
    }

    /// The stored result: every word of a packets one beside the generation.
    fn stored(&self, result: &[f64]) -> Vec<f64> {
        match (self.packets, self.out) {
            (false, _) => result.to_vec(),
            (true, Float::F32) => result.iter().flat_map(|&x| [x, 1.0]).collect(),
            (true, _) => result.chunks(2).flat_map(|pair| [pair[0], pair[1], 0.0, 1.0]).collect(),
        }
    }

    fn trial(&self, draw: &mut Draw) -> Trial {
        self.trial_of(self, draw)
    }

    /// The launch of this case against the oracle of another with the same inputs.
    fn trial_of(&self, other: &Case, draw: &mut Draw) -> Trial {
        let HeadCounts { heads, kv_heads, dim, splits } = self.heads;
        let rows = self.position.len();
        let mut numbers = stored::numbers(draw, self.q, rows as u32 * heads * dim, 2.0);
        let mut pools = [0, 1].map(|_| other.hide(self.paged.fill(draw, &self.position)));
        if self.blank {
            // Factor and query give a little more than 1: what bf16 rounds off is positive, too.
            let factor = self.scale() * std::f32::consts::LOG2_E;
            numbers.fill(stored::rounded((1.0 + 2f64.powi(-10)) / f64::from(factor), self.q));
            pools[0].iter_mut().filter(|key| !key.is_nan()).for_each(|key| *key = bf16::NEG_INFINITY);
        }
        // A score: queries in two parts of bf16 or f16, products in f32. A weight: twice the
        // score's error (the maximum has it too), the exponential, and the two parts that multiply
        // values, or the one of f16 that multiplies codes. The result divides by their sum.
        let tokens = f64::from(self.position.iter().max().map_or(0, |p| p + 1));
        let score = 2.0 * f64::from(dim).sqrt() * (2f64.powi(-16) + f64::from(dim) * UNIT);
        // A soft cap keeps the error or shrinks it, and adds that of `tanh`.
        let score = score + self.modifier.soft_cap.map_or(0.0, f64::from) * 2f64.powi(-20);
        let part = if self.pool == PoolType::E4m3 { 2f64.powi(-11) } else { 2f64.powi(-16) };
        let weight = 2.0 * score + part + (tokens + 40.0) * UNIT;
        let bound = Bound { absolute: 2.0 * weight, relative: 0.0 };

        let arch = if self.pool == PoolType::E4m3 { Arch::Sm89 } else { Arch::Sm80 };
        // Who looks for packets waits for other blocks.
        let launch = block(self.warps * 32);
        let launch = if self.meets { launch.cooperative() } else { launch };
        let kernel = record("attention", arch, launch, |k| self.record(k));
        let kernel = verify(kernel).unwrap_or_else(|errors| panic!("{errors}"));
        let mut trial = Trial::new(kernel, kv_heads * splits).note(format!("{self:?}"));
        let q = stored::input(&mut trial, "q", self.q, &numbers);
        let (key_numbers, keys) = self.numbers(&mut trial, "keys", &pools[0], self.scales[0]);
        let (value_numbers, values) = self.numbers(&mut trial, "values", &pools[1], self.scales[1]);
        let result = other.oracle(&numbers, &key_numbers, &value_numbers);
        assert!(!self.blank || result.iter().all(|&x| x == 0.0), "the oracle has zeros");
        let position = trial.input("position", &self.position);
        let table = trial.input("table", &self.paged.table);
        let immutable_prefix = trial.input("immutable_prefix", &self.immutable_prefix);
        let parts = rows * (heads * splits) as usize;
        let acc = trial.scratch::<f32>("acc", parts * dim as usize);
        let stats = trial.scratch::<f32>("stats", parts * 2);
        let out = stored::output(&mut trial, "out", self.out, &self.stored(&result), bound);
        let [before, after] = self.arrivals(draw);
        let words = Merged::packet_bytes(parts as u32, dim) as usize / 4;
        let arrivals = match self.meets {
            true => trial.changed("arrivals", &vec![0u32; words], Expected::anything::<u32>(words)),
            false => trial.changed("arrivals", &before, Expected::exact(&after)),
        };
        // In the order in which they are declared.
        let sinks = self.sinks.as_ref().map(|sinks| trial.input("sinks", sinks));
        [Some(q), Some(keys), Some(values), Some(position), Some(table), Some(immutable_prefix), sinks]
            .into_iter()
            .flatten()
            .chain([acc, stats, out, arrivals])
            .fold(trial, Trial::pass)
    }
}

#[test]
fn random_heads_and_pages() {
    for seed in 0..60 {
        let mut draw = Draw::new(seed);
        let case = Case::draw(&mut draw);
        right(&case.trial(&mut draw), seed);
    }
}

/// Every depth that the standalone kernels take and groups to the most that a model has, with keys
/// and values of either type: passes of eight heads have no largest group. One type of each;
/// `TILEWRIGHT_LONG` in the environment: both, of ten problems.
#[test]
fn every_depth_and_group_alone() {
    let long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    for (at, &dim) in Prefill::DEPTHS.iter().enumerate() {
        for (turn, group) in [1, 4, 16, 17, 64].into_iter().enumerate() {
            let one = POOLS[(at + turn) % 2];
            let (pools, seeds) = if long { (POOLS.to_vec(), 0..10) } else { (vec![one], 0..1) };
            for pool in pools {
                for seed in seeds.clone() {
                    let heads = HeadCounts { heads: group, kv_heads: 1, dim, splits: 2 };
                    let mut draw = Draw::new(seed + 100 * turn as u64);
                    let case = Case::of(heads, Some(pool), &mut draw);
                    right(&case.trial(&mut draw), seed);
                }
            }
        }
    }
}

/// A row whose scores are all −∞ gets zeros, as the naive attention has them: in one split and in
/// several, merged by counts and by packets, from pages and through the ring.
#[test]
fn scores_of_negative_infinity_alone_give_zeros() {
    for seed in 0..12 {
        let splits = [1, 3][seed as usize % 2];
        let meets = seed % 3 == 0;
        let heads = HeadCounts { heads: [4, 17][seed as usize / 6], kv_heads: 1, dim: 32, splits };
        let mut draw = Draw::new(seed);
        let drawn = Case::of(heads, Some(PoolType::Float(Float::Bf16)), &mut draw);
        let paged = Paged::draw(&mut draw, 3, 150, [1, 16, 32]);
        let stage = TokenStage::new(drawn.pool, 32, 16, 8192).filter(|_| heads.is_one_pass() && seed % 4 < 2);
        let least = SplitPages { fewest: 1, single: 1 };
        let position = vec![149, -1, 70];
        let immutable_prefix = vec![144, 0, 48];
        let modifier = ScoreModifier { window: (seed % 5 == 0).then_some(21), ..ScoreModifier::NONE };
        let case = Case {
            q: Float::F32,
            meets,
            paged,
            stage,
            least,
            position,
            immutable_prefix,
            modifier,
            blank: true,
            ..drawn
        };
        right(&case.trial(&mut draw), seed);
    }
}

/// Windows that begin at position 0, inside a block of 16, at a block, inside a page and at one, in
/// one split and in several, from pages and through the ring, with and without a cap.
#[test]
fn windows_begin_anywhere() {
    for (turn, window) in [1, 2, 15, 16, 17, 31, 48, 64, 100, 149, 150, 151, 1000].into_iter().enumerate() {
        for splits in [1, 3] {
            let heads = HeadCounts { heads: 2, kv_heads: 1, dim: 32, splits };
            let mut draw = Draw::new(turn as u64);
            let drawn = Case::of(heads, None, &mut draw);
            let paged = Paged::draw(&mut draw, 2, 150, [1, [16, 32, 48, 64][turn % 4], 32]);
            let page_tokens = paged.shape.page_tokens as u32;
            let stage = TokenStage::new(drawn.pool, 32, page_tokens, 8192).filter(|_| turn % 2 == 0);
            let modifier = ScoreModifier { soft_cap: (turn % 3 == 0).then_some(0.5), window: Some(window) };
            let least = SplitPages { fewest: 1, single: 1 };
            let position = vec![149, 70];
            let immutable_prefix = vec![144, 48];
            let case = Case { paged, stage, modifier, least, position, immutable_prefix, ..drawn };
            right(&case.trial(&mut draw), turn as u64);
        }
    }
}

/// Sinks of every size and a function of one's own, in one split and in several, merged by counts
/// and by packets, from pages and through the ring; an oracle without them disagrees.
#[test]
fn sinks_and_functions_of_ones_own() {
    for seed in 0..12u64 {
        let [splits, group] = [[1, 3], [4, 17]].map(|choices| choices[seed as usize % 2]);
        let heads = HeadCounts { heads: 2 * group, kv_heads: 2, dim: 32, splits };
        let mut draw = Draw::new(seed);
        let drawn = Case::of(heads, None, &mut draw);
        let paged = Paged::draw(&mut draw, 3, 150, [2, 16, 32]);
        let stage = TokenStage::new(drawn.pool, 32, 16, 8192).filter(|_| heads.is_one_pass() && seed % 4 < 2);
        let least = SplitPages { fewest: 1, single: 1 };
        let sinks = (0..heads.heads).map(|head| [f32::NEG_INFINITY, -2.0, 0.5, 3.0, 30.0][head as usize % 5]);
        let case = Case {
            paged,
            stage,
            least,
            meets: seed % 3 == 0,
            position: vec![149, -1, 70],
            immutable_prefix: vec![144, 0, 48],
            sinks: (seed % 4 != 3).then(|| sinks.collect()),
            custom: seed % 4 != 1,
            ..drawn
        };
        right(&case.trial(&mut draw.clone()), seed);
        let plain = Case { sinks: None, custom: false, ..case.clone() };
        let outcome = case.trial_of(&plain, &mut draw).run(&sim::open(1)).expect("a launch that ends");
        assert!(!outcome.is_right(), "seed {seed}: no sink and no function pass for {case:?}");
    }
}

/// An oracle whose window is a token longer or shorter, or that caps nothing, disagrees.
#[test]
fn other_windows_and_caps_are_found_out() {
    let heads = HeadCounts { heads: 4, kv_heads: 1, dim: 64, splits: 2 };
    let modifier = ScoreModifier { soft_cap: Some(0.25), window: Some(21) };
    let others = [
        ScoreModifier { window: Some(20), ..modifier },
        ScoreModifier { window: Some(22), ..modifier },
        ScoreModifier { window: None, ..modifier },
        ScoreModifier { soft_cap: None, ..modifier },
    ];
    for other in others {
        let mut draw = Draw::new(3);
        let drawn = Case::of(heads, Some(POOLS[0]), &mut draw);
        let position = vec![90];
        let paged = Paged::draw(&mut draw, 1, 91, [1, 64, 64]);
        let case = Case { paged, position, immutable_prefix: vec![0], stage: None, modifier, ..drawn };
        let trial = case.trial_of(&Case { modifier: other, ..case.clone() }, &mut draw);
        let outcome = trial.run(&sim::open(1)).expect("a launch that ends");
        assert!(!outcome.is_right(), "{other:?} passes for {modifier:?}");
    }
}

/// A modifier that no kernel has, and a window of chosen blocks.
#[test]
fn modifiers_that_mean_nothing_are_refused() {
    let heads = HeadCounts { heads: 1, kv_heads: 1, dim: 32, splits: 1 };
    let case = |modifier| Case { modifier, stage: None, ..Case::of(heads, Some(POOLS[0]), &mut Draw::new(1)) };
    let refused = |record_work: &dyn Fn(&Builder)| {
        verify(record("attention", Arch::Sm80, block(160), record_work)).expect_err("refused").to_string()
    };
    let negative = case(ScoreModifier { soft_cap: Some(-1.0), window: None });
    let cap = refused(&|k| negative.record(k));
    assert!(cap.contains("attention scores: a soft cap must be a number from 1e-30 to 1e30, got -1.0"), "{cap}");
    let empty = case(ScoreModifier { soft_cap: None, window: Some(0) });
    let window = refused(&|k| empty.record(k));
    assert!(window.contains("a sliding window of 0 tokens"), "{window}");
    let chosen = case(ScoreModifier { soft_cap: None, window: Some(7) });
    let selected = refused(&|k| {
        let work = chosen.work(k);
        let position = work.keys.position;
        let selected = TokenSelection { position, page_blocks: 1, split_pages: SplitPages::ANY, streams: None };
        chosen.attend(SplitAttention { selected: Some(selected), ..work });
    });
    assert!(selected.contains("a sliding window of 7 tokens over selected blocks"), "{selected}");
    let plain = case(ScoreModifier::NONE);
    let function = refused(&|k| {
        let work = plain.work(k);
        let position = work.keys.position;
        let selected = TokenSelection { position, page_blocks: 1, split_pages: SplitPages::ANY, streams: None };
        plain.attend(SplitAttention { selected: Some(selected), custom: Some(&distant), ..work });
    });
    assert!(function.contains("a score function of one's own over selected blocks"), "{function}");
}

/// Equivalent mutants of attention alone.
const LEDGER: &[Equivalent] = &[Equivalent::new("split/merge.rs", "st.relaxed.gpu", "weak", STRONG)];

/// Equivalent mutants where the first split waits for packets, its own among them.
const MEETING: &[Equivalent] = &[
    LEDGER[0],
    Equivalent::new("tile/array.rs", "ld.relaxed.gpu.u64", "weak", "the first split's packets are its own").times(1),
];

const STRONG: &str =
    "results are stored strongly for kernels in which other blocks overwrite them later: here no block does";

#[test]
fn mutants_are_found_out() {
    let drawn = |draw: &mut Draw| Case { modifier: ScoreModifier::NONE, ..Case::draw(draw) };
    // Stages would bring barriers of their own.
    let several = |case: &Case| {
        let merges = (0..case.position.len()).filter(|&row| case.active(row) > 1).count();
        let long = case.position.iter().filter(|&&p| p > 64).count();
        case.stage.is_none() && case.pool != PoolType::E4m3 && case.warps > 1 && !case.packets && long > 1 && merges > 1
    };
    for meets in [false, true] {
        let is_one = |seed: &u64| {
            let case = drawn(&mut Draw::new(*seed));
            // Of packets every split has some.
            let all = (0..case.position.len()).any(|row| case.active(row) == case.heads.splits);
            several(&case) && case.meets == meets && (!meets || all && case.out == Float::F32)
        };
        let mut draw = Draw::new((0..4000).find(is_one).expect("a case"));
        let trial = drawn(&mut draw).trial(&mut draw);
        surveyed(&trial, if meets { MEETING } else { LEDGER });
    }
}
