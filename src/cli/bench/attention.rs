//! The attention suite, `bf16`: decode of one token over long contexts, and prefill of a sequence.

use half::bf16;
use tilewright_codegen::device::{Arg, Buffer, Device, DeviceError, TensorMap};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::attention::ScoreVariant;
use tilewright_kernels::attention::decode::{Decode, DecodeTuning, Layout};
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout};
use tilewright_kernels::kv::Tma;
use tilewright_kernels::naive;

use super::finding;
use super::timing::{Bench, Only, Times};
use crate::cli::Failure;
use crate::cli::bench::error::BenchError;
use crate::cli::bench::extent::room;
use crate::cli::bench::tunable::{Prepare, ShapeExtents, Tunable};
use crate::results::ResultRow;
use crate::tuning::{SearchSpace, Settings};

/// Rows of decode: 32 query heads, 8 key/value heads.
const DECODE: [DecodeShape; 14] = [
    DecodeShape::of(1, 1024),
    DecodeShape::of(1, 8192),
    DecodeShape::of(1, 65536),
    DecodeShape::of(8, 8192),
    DecodeShape::of(32, 4096),
    DecodeShape::of(1, 65536).of_depths(80, 80),
    DecodeShape::of(8, 8192).of_depths(80, 80),
    DecodeShape::of(1, 65536).of_depths(256, 256),
    DecodeShape::of(8, 8192).of_depths(256, 256),
    DecodeShape::of(1, 65536).of_depths(192, 128),
    DecodeShape::of(8, 8192).of_depths(192, 128),
    // The time of a window is that of its tokens.
    DecodeShape::of(1, 128),
    DecodeShape { capacity: 131_072, ..DecodeShape::of(1, 128) },
    DecodeShape { window: Some(128), ..DecodeShape::of(1, 131_072) },
];
const KV_HEADS: u32 = 8;
const GROUP: u32 = 4;
const DEPTH: u32 = 128;

/// Rows of prefill, causal and not: one sequence of 32 heads.
const PREFILL: [PrefillShape; 7] = [
    PrefillShape::of(2048, 128),
    PrefillShape::of(8192, 128),
    PrefillShape::of(16384, 128),
    PrefillShape::of(2048, 64),
    PrefillShape::of(8192, 64),
    PrefillShape::of(16384, 64),
    PrefillShape { value_depth: 128, ..PrefillShape::of(8192, 192) },
];
const HEADS: u32 = 32;

/// Largest relative error: weights and results are `bf16`, 2⁻⁹ each on average.
const LIMIT: f64 = 1e-2;

/// Runs the suite.
pub(super) fn run(bench: &Bench) -> Result<(), Failure> {
    for shape in DECODE {
        let kernel = Decoding { bench, shape };
        if bench.begins(kernel.suite(), &kernel.shape()) {
            bench.keep_row_of(&kernel)?;
        }
    }
    for shape in PREFILL.into_iter().flat_map(PrefillShape::forms) {
        if bench.begins("attention", &shape.extents()) {
            bench.keep(prefill(bench, shape)?)?;
        }
    }
    Ok(())
}

/// The number of rows that [`run`] keeps or skips.
pub(super) fn rows_of(only: &Only) -> usize {
    let decode = DECODE.map(DecodeShape::extents);
    let prefill = PREFILL.into_iter().flat_map(PrefillShape::forms).map(PrefillShape::extents);
    only.count(decode) + only.count(prefill)
}

/// Numbers from −1 to 1 with a period of 1,000,003.
fn numbers(count: usize, seed: u64) -> Result<Vec<bf16>, BenchError> {
    let period = count.min(1_000_003);
    let mut all = room(count)?;
    all.extend(Draw::new(seed).floats(period, bf16::from_f64));
    while all.len() < count {
        all.extend_from_within(..period.min(count - all.len()));
    }
    Ok(all)
}

/// Tensor map of `[planes, tokens, depth]` in boxes of a panel by `rows` tokens.
fn map(
    device: &Device,
    buffer: &Buffer<bf16>,
    [planes, tokens, depth]: [u32; 3],
    rows: u32,
) -> Result<TensorMap, DeviceError> {
    device.tensor_map(buffer, Tma::map(depth, [tokens, planes], [depth, tokens * depth], rows, false))
}

fn scale(depth: u32) -> f32 {
    std::f32::consts::LOG2_E / (depth as f32).sqrt()
}

fn row(shape: &[(&str, u64)], variant: &str, times: Times, work: [u64; 2], error: f64) -> Result<ResultRow, Failure> {
    finding::check(ResultRow { variant: variant.into(), ..finding::row("attention", shape, times, work, error) }, LIMIT)
}

/// A shape of `--shape`: with both depths, or of the depth that most models have.
pub(super) fn parse_shape(text: &str) -> Result<DecodeShape, BenchError> {
    let extents = ShapeExtents::parse(text)?;
    let operands = |[batch, tokens, depth, value_depth]: [u128; 4]| {
        let lines = batch * u128::from(KV_HEADS);
        [lines * tokens * depth, lines * tokens * value_depth, lines * u128::from(GROUP) * depth]
    };
    if extents.line().contains("depth=") {
        let [batch, tokens, depth, value_depth] = extents.of(["batch", "tokens", "depth", "value_depth"], operands)?;
        return Ok(DecodeShape::of(batch, tokens).of_depths(depth, value_depth));
    }
    let with_depth = |[batch, tokens]: [u128; 2]| operands([batch, tokens, DEPTH.into(), DEPTH.into()]);
    let [batch, tokens] = extents.of(["batch", "tokens"], with_depth)?;
    Ok(DecodeShape::of(batch, tokens))
}

/// Kernels to tune: decode for the given shapes, or for those of the suite.
pub(super) fn tunables<'b>(bench: &'b Bench, shapes: &[DecodeShape]) -> Vec<Prepare<'b>> {
    let all: Vec<DecodeShape> = if shapes.is_empty() { DECODE.to_vec() } else { shapes.to_vec() };
    let prepare = |shape: DecodeShape| -> Prepare<'b> { Box::new(move || Ok(Box::new(Decoding { bench, shape }))) };
    all.into_iter().map(prepare).collect()
}

/// Sequences of as many tokens.
#[derive(Clone, Copy, Debug)]
pub struct DecodeShape {
    batch: u32,
    tokens: u32,
    /// Columns of a key, and of a value.
    depth: u32,
    value_depth: u32,
    /// Tokens that a sequence has room for.
    capacity: u32,
    /// Tokens that the query sees, where these are a window.
    window: Option<u32>,
}

impl DecodeShape {
    /// Heads of [`DEPTH`] that see all tokens.
    const fn of(batch: u32, tokens: u32) -> DecodeShape {
        DecodeShape { batch, tokens, depth: DEPTH, value_depth: DEPTH, capacity: tokens, window: None }
    }

    const fn of_depths(self, depth: u32, value_depth: u32) -> DecodeShape {
        DecodeShape { depth, value_depth, ..self }
    }

    fn plan(self) -> Decode {
        let DecodeShape { depth, value_depth, window, .. } = self;
        let scores = ScoreVariant { window: window.is_some(), ..ScoreVariant::NONE };
        let value_depth = Some(value_depth);
        Decode { depth, value_depth, group: GROUP, layout: Layout::Dense, tile: 32, scores, lse: false }
    }

    fn extents(self) -> Vec<(&'static str, u64)> {
        let all = [("batch", self.batch), ("tokens", self.tokens), ("depth", self.depth)];
        let window = self.window.map(|window| ("window", window));
        let capacity = (self.capacity != self.tokens).then_some(("capacity", self.capacity));
        let values = (self.value_depth != self.depth).then_some(("value_depth", self.value_depth));
        all.into_iter()
            .chain(values)
            .chain(window)
            .chain(capacity)
            .map(|(name, extent)| (name, extent.into()))
            .collect()
    }

    /// Tokens that the query sees.
    fn seen(self) -> u32 {
        self.window.map_or(self.tokens, |window| window.min(self.tokens))
    }
}

/// Decode of one token of each sequence of a batch.
struct Decoding<'b> {
    bench: &'b Bench,
    shape: DecodeShape,
}

impl Tunable for Decoding<'_> {
    fn suite(&self) -> &str {
        "attention"
    }

    fn shape(&self) -> Vec<(&'static str, u64)> {
        self.shape.extents()
    }

    fn space(&self) -> SearchSpace {
        let DecodeTuning { tile, stages, blocks } = self.shape.plan().tuning();
        SearchSpace::new(Settings::default().with("tile", tile).with("stages", stages).with("blocks", blocks))
            .axis("tile", [16, 32])
            .axis("stages", [2, 3])
            .axis("blocks", [1, 2, 4])
    }

    fn measure(&self, settings: &Settings) -> Result<ResultRow, Failure> {
        let Decoding { bench, shape } = *self;
        let DecodeShape { batch, tokens, depth, value_depth, capacity, window } = shape;
        let cut = Cut {
            tile: settings.choice("tile", &[("16", 16), ("32", 32)], "16 or 32 tokens")?,
            stages: settings.choice("stages", &[("2", 2), ("3", 3)], "2 or 3")?,
            blocks: settings.number("blocks")?,
        };
        let device = &bench.device;
        let stream = &bench.stream;
        let plan = Decode { tile: cut.tile, ..shape.plan() };
        let kernel = device.load(&verify(cut.record(&plan))?)?;
        let lines = batch * KV_HEADS;
        let splits = plan.splits(lines, shape.seen(), device.properties().sms * cut.blocks);
        let depths = [depth, value_depth];
        let elements = depths.map(|columns| (lines * capacity * columns) as usize);
        let results = (lines * GROUP * value_depth) as usize;
        let queries = numbers((lines * GROUP * depth) as usize, 3)?;
        let host = [queries, numbers(elements[0], 1)?, numbers(elements[1], 2)?];
        let q = stream.buffer(&host[0])?;
        let mut caches = vec![[stream.buffer(&host[1])?, stream.buffer(&host[2])?]];
        let seen = u64::from(lines * shape.seen() * (depth + value_depth));
        for _ in 1..bench.rotations(2 * elements.iter().sum::<usize>() as u64).min(16) {
            let copy = |which: usize| {
                let to = device.buffer::<bf16>(elements[which])?;
                stream.copy(&caches[0][which], &to).map(|()| to)
            };
            caches.push([copy(0)?, copy(1)?]);
        }
        let lengths = stream.buffer(&vec![tokens; batch as usize])?;
        let acc = device.buffer::<f32>(results * splits as usize)?;
        let stats = device.buffer::<f32>((lines * GROUP * splits * 2) as usize)?;
        let done = stream.buffer(&vec![0u32; lines as usize])?;
        let out = device.buffer::<bf16>(results)?;
        stream.poison(&out, 0xff)?;
        let mut work = Vec::new();
        for cache in &caches {
            let maps = [0, 1].map(|of: usize| map(device, &cache[of], [lines, capacity, depths[of]], plan.tokens()));
            let [keys, values] = maps;
            let (keys, values) = (keys?, values?);
            let mut args: Vec<Arg<'_>> = vec![(&q).into(), Arg::Map(&keys), Arg::Map(&values)];
            args.extend([(&lengths).into(), (&lengths).into(), 1u32.into(), (capacity * depth).into()]);
            args.push(scale(depth).into());
            args.extend(window.map(Arg::from));
            args.extend([(&acc).into(), (&stats).into(), (&done).into(), (&out).into()]);
            work.push(kernel.work([splits, KV_HEADS, batch], &args)?);
        }
        let times = bench.time(&work)?;
        let out = stream.read(&out)?;
        let heads = [0, (lines * GROUP - 1) as usize];
        let first = (tokens - shape.seen()) as usize;
        let looks = heads.map(|head| Look { query: head, plane: head / GROUP as usize, first, end: tokens as usize });
        let error = error(&host, &out, &looks, capacity as usize, depths.map(|columns| columns as usize));
        row(&self.shape(), "decode", times, [2 * seen, 2 * u64::from(GROUP) * seen], error)
    }
}

/// Settings of decode: tokens of a tile, stages of a warp's rings, blocks per multiprocessor.
#[derive(Clone, Copy)]
struct Cut {
    tile: u32,
    stages: u32,
    blocks: u32,
}

impl Cut {
    fn record(self, plan: &Decode) -> Kernel {
        match self.stages {
            2 => plan.record::<Tma<2>>(Arch::Sm90a),
            _ => plan.record::<Tma<3>>(Arch::Sm90a),
        }
    }
}

/// A sequence whose queries are its tokens.
#[derive(Clone, Copy)]
struct PrefillShape {
    tokens: u32,
    /// Columns of a key, and of a value.
    depth: u32,
    value_depth: u32,
    causal: bool,
}

impl PrefillShape {
    const fn of(tokens: u32, depth: u32) -> PrefillShape {
        PrefillShape { tokens, depth, value_depth: depth, causal: false }
    }

    /// Full, and causal.
    fn forms(self) -> [PrefillShape; 2] {
        [false, true].map(|causal| PrefillShape { causal, ..self })
    }

    /// The extents of its row.
    fn extents(self) -> Vec<(&'static str, u64)> {
        let PrefillShape { tokens, depth, value_depth, causal } = self;
        let values = (value_depth != depth).then_some(("value_depth", value_depth));
        let shape = [("queries", tokens), ("tokens", tokens), ("depth", depth), ("causal", causal.into())];
        shape.into_iter().chain(values).map(|(name, extent)| (name, extent.into())).collect()
    }
}

fn prefill(bench: &Bench, shape: PrefillShape) -> Result<ResultRow, Failure> {
    let PrefillShape { tokens, depth, value_depth, causal } = shape;
    let device = &bench.device;
    let stream = &bench.stream;
    let queries = QueryLayout::HeadMajor;
    let kv = Kv::HeadMajor;
    let scores = ScoreVariant::NONE;
    let plan = Prefill { depth, value_depth: Some(value_depth), group: 1, causal, queries, kv, scores, lse: false };
    let kernel = device.load(&verify(plan.record_hopper())?)?;
    let columns = [depth, depth, value_depth];
    let elements = columns.map(|columns| (HEADS * tokens * columns) as usize);
    let host = [numbers(elements[0], 3)?, numbers(elements[1], 1)?, numbers(elements[2], 2)?];
    let buffers = host.iter().map(|host| stream.buffer(host)).collect::<Result<Vec<_>, _>>()?;
    let rows = [64, plan.tuning().keys, plan.tuning().keys];
    let of = columns.into_iter().zip(rows);
    let maps = buffers.iter().zip(of).map(|(buffer, (of, rows))| map(device, buffer, [HEADS, tokens, of], rows));
    let maps = maps.collect::<Result<Vec<_>, _>>()?;
    let starts = stream.buffer(&[0u32, tokens])?;
    let out = device.buffer::<bf16>(elements[2])?;
    stream.poison(&out, 0xff)?;
    let tiles = tokens.div_ceil(plan.hopper_rows());
    // Heads whose keys and values fit L2 together.
    let bunch = if causal { 4u32 } else { 2 };
    let args: [Arg<'_>; 13] = [
        Arg::Map(&maps[0]),
        Arg::Map(&maps[1]),
        Arg::Map(&maps[2]),
        (&starts).into(),
        (&starts).into(),
        (&starts).into(),
        0u32.into(),
        (tokens * depth).into(),
        tiles.into(),
        HEADS.into(),
        bunch.into(),
        scale(depth).into(),
        (&out).into(),
    ];
    let times = bench.time(&[kernel.work([tiles * HEADS, 1], &args)?])?;
    let out = stream.read(&out)?;
    let n = tokens as usize;
    let looks = [(0, 0), (0, 77), (3, n / 2 + 13), (HEADS as usize - 1, n - 1)].map(|(plane, query)| Look {
        query: plane * n + query,
        plane,
        first: 0,
        end: if causal { query + 1 } else { n },
    });
    let error = error(&host, &out, &looks, n, [depth, value_depth].map(|columns| columns as usize));
    let sum = (elements[1] + elements[2]) as u64;
    let flops = 2 * u64::from(tokens) * sum / if causal { 2 } else { 1 };
    row(&shape.extents(), "prefill", times, [4 * sum, flops], error)
}

/// A query that is compared with f64.
struct Look {
    /// Its number among all.
    query: usize,
    /// Its head of keys and values.
    plane: usize,
    /// The first token that it attends to.
    first: usize,
    /// The end of those tokens.
    end: usize,
}

/// The relative error of some queries; `host` is queries, keys, values.
fn error(host: &[Vec<bf16>; 3], out: &[bf16], looks: &[Look], tokens: usize, [depth, value_depth]: [usize; 2]) -> f64 {
    let wide = |x: &[bf16]| x.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
    let mut difference = 0.0;
    let mut norm = 0.0;
    for &Look { query, plane, first, end } in looks {
        let tokens = plane * tokens + first..plane * tokens + end;
        let rows = |which: usize, columns| wide(&host[which][tokens.start * columns..tokens.end * columns]);
        let row = |columns| query * columns..(query + 1) * columns;
        let (keys, values) = (rows(1, depth), rows(2, value_depth));
        let scale = 1.0 / (depth as f64).sqrt();
        let score = |_, product: f64| product * scale;
        let part = naive::attention_to(&wide(&host[0][row(depth)]), &keys, &values, value_depth, score);
        for (found, exact) in out[row(value_depth)].iter().zip(naive::combine(&[part], value_depth)) {
            difference += (found.to_f64() - exact).powi(2);
            norm += exact * exact;
        }
    }
    (difference / norm).sqrt()
}
