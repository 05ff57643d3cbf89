//! Prefill and decode attention: plain; with the shipped soft cap and window; with one closure that
//! does the same for each score; with a function of products and a mask that is asked per tile; and
//! with the window alone, as shipped and as a mask. Those that do the same agree; on a GPU the times
//! are compared.
//!
//! ```sh
//! cargo run --release -p tilewright-kernels --features testing --example scores -- cuda:0
//! ```
//!
//! Without an argument small problems run on the simulator.

use std::time::Duration;

use half::bf16;
use tilewright_codegen::device::{self, Arg, Buffer, Device, Event, Kernel, Stream, TensorMap, sim};
use tilewright_codegen::ir::{self, Arch};
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::tanh;
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout};
use tilewright_kernels::attention::{
    AttentionMask, CustomMask, CustomProducts, CustomScores, ScaledProducts, ScoreVariant, TileVisibility, WithScores,
};
use tilewright_kernels::kv::Tma;

type Failure = Box<dyn std::error::Error>;

const DEPTH: u32 = 128;
const CAP: f32 = 50.0;
/// Turns of each kernel, and launches of a turn.
const TURNS: usize = 15;
const LAUNCHES: usize = 10;

/// A soft cap and a window, asked for each score.
const CUSTOM: CustomScores<'static> = CustomScores(&|k| {
    let cap = k.param::<f32>("cap");
    let window = k.param::<u32>("width");
    let rate = k.lit(1.0f32) / cap;
    Box::new(move |at, score| {
        let capped = cap * tanh(score * rate);
        (at.token + window).gt(at.query).select(capped, f32::NEG_INFINITY)
    })
});

/// A soft cap.
const CAPPED: CustomProducts<'static> = CustomProducts(&|k, scale| {
    let cap = k.param::<f32>("cap");
    let rate = scale / cap;
    ScaledProducts { factor: cap, function: Box::new(move |_, product| tanh(product * rate)) }
});

/// A window, asked for tiles first.
const WINDOW: CustomMask<'static> = CustomMask(&|k| {
    let width = k.param::<u32>("width");
    AttentionMask {
        tile: Box::new(move |at| TileVisibility {
            any: (at.last_token + width).gt(at.first_query),
            all: (at.first_token + width).gt(at.last_query),
        }),
        sees: Box::new(move |at| (at.token + width).gt(at.query)),
    }
});

/// How scores are modified.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scores {
    Plain,
    /// The kernel's cap and window.
    Shipped,
    /// [`CUSTOM`].
    Closure,
    /// [`CAPPED`] and [`WINDOW`].
    Hooks,
    /// The kernel's window.
    ShippedWindow,
    /// [`WINDOW`].
    MaskWindow,
}

impl Scores {
    const ALL: [Scores; 6] =
        [Scores::Plain, Scores::Shipped, Scores::Closure, Scores::Hooks, Scores::ShippedWindow, Scores::MaskWindow];

    /// The one with the same result, if there is one.
    fn like(self) -> Option<usize> {
        match self {
            Scores::Closure | Scores::Hooks => Some(1),
            Scores::MaskWindow => Some(4),
            Scores::Plain | Scores::Shipped | Scores::ShippedWindow => None,
        }
    }

    fn variant(self) -> ScoreVariant {
        let is_shipped = self == Scores::Shipped;
        ScoreVariant { soft_cap: is_shipped, window: is_shipped || self == Scores::ShippedWindow, sinks: false }
    }

    fn with<K>(self, kernel: K) -> WithScores<'static, K> {
        let with = WithScores::from(kernel);
        match self {
            Scores::Closure => with.custom(CUSTOM),
            Scores::Hooks => with.products(CAPPED).mask(WINDOW),
            Scores::MaskWindow => with.mask(WINDOW),
            Scores::Plain | Scores::Shipped | Scores::ShippedWindow => with,
        }
    }

    /// Adds the cap and the window where the kernel takes them.
    fn pass<'a>(self, before: Vec<Arg<'a>>, after: Vec<Arg<'a>>, window: u32) -> Vec<Arg<'a>> {
        let both = vec![CAP.into(), window.into()];
        let (shipped, own) = match self {
            Scores::Plain => (vec![], vec![]),
            Scores::Shipped => (both, vec![]),
            Scores::Closure | Scores::Hooks => (vec![], both),
            Scores::ShippedWindow => (vec![window.into()], vec![]),
            Scores::MaskWindow => (vec![], vec![window.into()]),
        };
        [before, shipped, after, own].concat()
    }
}

/// Queries, keys and values `[heads, rows, DEPTH]` of a problem, and its result.
struct Problem {
    heads: [u32; 2],
    rows: [u32; 2],
    q: Buffer<bf16>,
    keys: Buffer<bf16>,
    values: Buffer<bf16>,
    out: Buffer<bf16>,
}

impl Problem {
    fn new(stream: &Stream, heads: [u32; 2], rows: [u32; 2]) -> Result<Problem, Failure> {
        let mut draw = Draw::new(1);
        let [queries, tokens] = [0, 1].map(|of: usize| (heads[of] * rows[of] * DEPTH) as usize);
        let mut drawn = |len: usize| stream.buffer(&draw.floats(len, bf16::from_f64));
        let [q, keys, values] = [drawn(queries)?, drawn(tokens)?, drawn(tokens)?];
        Ok(Problem { heads, rows, q, keys, values, out: stream.buffer(&vec![bf16::NAN; queries])? })
    }

    fn map(&self, device: &Device, of: &Buffer<bf16>, side: usize, rows: u32) -> Result<TensorMap, Failure> {
        let [heads, tokens] = [self.heads[side], self.rows[side]];
        Ok(device.tensor_map(of, Tma::map(DEPTH, [tokens, heads], [DEPTH, tokens * DEPTH], rows, false))?)
    }
}

/// The median times of the kernels, launched in turns; those that do the same have the same result.
fn compare(
    stream: &Stream,
    problem: &Problem,
    turns: usize,
    launch: impl Fn(usize) -> Result<(), Failure>,
) -> Result<[Duration; Scores::ALL.len()], Failure> {
    let mut times = Scores::ALL.map(|_| Vec::new());
    let mut results = Scores::ALL.map(|_| Vec::new());
    for _ in 0..turns {
        for kernel in 0..Scores::ALL.len() {
            let begin: Event = stream.record()?;
            (0..LAUNCHES).try_for_each(|_| launch(kernel))?;
            let end = stream.record()?;
            end.wait()?;
            times[kernel].push(end.since(&begin)? / LAUNCHES as u32);
            results[kernel] = stream.read(&problem.out)?;
        }
    }
    let far =
        |a: &[bf16], b: &[bf16]| a.iter().zip(b).map(|(a, b)| (a.to_f32() - b.to_f32()).abs()).fold(0.0, f32::max);
    for (kernel, scores) in Scores::ALL.into_iter().enumerate() {
        let difference = scores.like().map_or(0.0, |like| far(&results[like], &results[kernel]));
        assert!(difference < 0.01, "{scores:?} is off by {difference}");
        assert!(results[kernel].iter().all(|x| x.is_finite()), "all results of {scores:?} are stored");
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    }))
}

fn print(name: &str, times: [Duration; Scores::ALL.len()]) {
    println!("{name}");
    for (scores, time) in Scores::ALL.into_iter().zip(times) {
        let speed = |of: usize| times[of].as_secs_f64() / time.as_secs_f64();
        let like =
            scores.like().map_or(String::new(), |like| format!(", {:.3} of {:?}", speed(like), Scores::ALL[like]));
        println!("  {scores:?}: {time:?}, {:.3} of the plain kernel{like}", speed(0));
    }
}

fn load(device: &Device, kernel: ir::Kernel) -> Result<Kernel, Failure> {
    Ok(device.load(&verify(kernel)?)?)
}

fn prefill(device: &Device, heads: u32, tokens: u32, window: u32, turns: usize) -> Result<(), Failure> {
    let stream = device.stream()?;
    let problem = Problem::new(&stream, [heads; 2], [tokens; 2])?;
    let (queries, kv) = (QueryLayout::HeadMajor, Kv::HeadMajor);
    let plan = |scores: Scores| {
        scores.with(Prefill {
            depth: DEPTH,
            value_depth: None,
            group: 1,
            causal: true,
            queries,
            kv,
            scores: scores.variant(),
            lse: false,
        })
    };
    let kernels = Scores::ALL.map(|scores| load(device, plan(scores).record_hopper()));
    let kernels = kernels.into_iter().collect::<Result<Vec<_>, _>>()?;
    let shape = plan(Scores::Plain).kernel;
    let keys = shape.tuning().keys;
    let maps = [
        problem.map(device, &problem.q, 0, 64)?,
        problem.map(device, &problem.keys, 1, keys)?,
        problem.map(device, &problem.values, 1, keys)?,
    ];
    let starts = stream.buffer(&[0u32, tokens])?;
    let tiles = tokens.div_ceil(shape.hopper_rows());
    let times = compare(&stream, &problem, turns, |kernel| {
        let mut before: Vec<Arg<'_>> = maps.iter().map(Arg::Map).collect();
        before.extend([(&starts).into(), (&starts).into(), (&starts).into()]);
        let numbers = [0, tokens * DEPTH, tiles, heads, 4u32];
        before.extend(numbers.map(Arg::from));
        before.push(scale().into());
        let args = Scores::ALL[kernel].pass(before, vec![(&problem.out).into()], window);
        Ok(kernels[kernel].launch(&stream, [tiles * heads, 1], &args)?)
    })?;
    print(&format!("prefill, {heads} heads of {tokens} tokens, a window of {window}"), times);
    Ok(())
}

fn decode(device: &Device, kv_heads: u32, tokens: u32, window: u32, turns: usize) -> Result<(), Failure> {
    let stream = device.stream()?;
    let group = 4;
    let problem = Problem::new(&stream, [kv_heads * group, kv_heads], [1, tokens])?;
    let plan = |scores: Scores| {
        scores.with(Decode {
            depth: DEPTH,
            value_depth: None,
            group,
            layout: Layout::Dense,
            tile: 32,
            scores: scores.variant(),
            lse: false,
        })
    };
    let kernels = Scores::ALL.map(|scores| load(device, plan(scores).record::<Tma<2>>(Arch::Sm90a)));
    let kernels = kernels.into_iter().collect::<Result<Vec<_>, _>>()?;
    let shape = plan(Scores::Plain).kernel;
    let splits = shape.splits(kv_heads, tokens, device.properties().sms);
    let maps = [
        problem.map(device, &problem.keys, 1, shape.tokens())?,
        problem.map(device, &problem.values, 1, shape.tokens())?,
    ];
    let lengths = stream.buffer(&[tokens])?;
    let parts = (kv_heads * group * splits) as usize;
    let acc = device.buffer::<f32>(parts * DEPTH as usize)?;
    let stats = device.buffer::<f32>(parts * 2)?;
    let done = stream.buffer(&vec![0u32; kv_heads as usize])?;
    let times = compare(&stream, &problem, turns, |kernel| {
        let mut before = vec![Arg::from(&problem.q), Arg::Map(&maps[0]), Arg::Map(&maps[1])];
        before.extend([(&lengths).into(), (&lengths).into(), 1u32.into(), (tokens * DEPTH).into(), scale().into()]);
        let after = vec![(&acc).into(), (&stats).into(), (&done).into(), (&problem.out).into()];
        let args = Scores::ALL[kernel].pass(before, after, window);
        Ok(kernels[kernel].launch(&stream, [splits, kv_heads, 1], &args)?)
    })?;
    print(&format!("decode, {kv_heads} key/value heads of {tokens} tokens, a window of {window}"), times);
    Ok(())
}

/// The scale of scores times log₂e.
fn scale() -> f32 {
    std::f32::consts::LOG2_E / (DEPTH as f32).sqrt()
}

fn main() -> Result<(), Failure> {
    let name = std::env::args().nth(1);
    let device = match &name {
        Some(name) => device::open(name)?,
        None => sim::open(0),
    };
    println!("{}", device.properties().name);
    match name {
        Some(_) => {
            prefill(&device, 32, 4096, 4096, TURNS)?;
            prefill(&device, 32, 16384, 16384, TURNS)?;
            prefill(&device, 32, 16384, 2048, TURNS)?;
            decode(&device, 8, 32768, 32768, TURNS)?;
            decode(&device, 8, 131_072, 131_072, TURNS)?;
            decode(&device, 8, 131_072, 128, TURNS)
        }
        None => {
            prefill(&device, 1, 150, 150, 1)?;
            prefill(&device, 1, 300, 40, 1)?;
            decode(&device, 1, 150, 60, 1)
        }
    }
}
