//! A layer of experts on the device alone: the router's choice, choices sorted by expert, two
//! grouped products, and the weighted sum. The host never learns how many rows an expert has.
//!
//! ```sh
//! cargo run --release -p tilewright-kernels --features testing --example experts
//! ```
//!
//! Without an argument a small layer runs on the simulator, and is compared with plain loops. With a
//! device, such as `cuda:0`, the same layer runs there, then layers of Qwen3-30B-A3B are timed. A
//! further argument, `tiles`, times grouped products by their tiles.

use std::error::Error;
use std::time::Duration;

use half::bf16;
use tilewright_codegen::device::{self, Arg, Buffer, Device, Event, Graph, Stream, TensorMap, Work, sim};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::verify::verify;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::Epilogue;
use tilewright_kernels::gemm::grouped::{
    GroupedBuffer, GroupedChoice, GroupedProblem, GroupedShape, choose, grouped_step, plan,
};
use tilewright_kernels::gemm::{Argument, GemmDevice, PlannedLaunch};
use tilewright_kernels::naive;
use tilewright_kernels::route::{
    RouterKind, RouterShape, SortShape, SumShape, route_rows, sort_choices, weighted_sum_rows,
};
use tilewright_kernels::tile::Float;

/// How a row's experts are chosen.
const KIND: RouterKind = RouterKind::SoftmaxThenTopK { renormalise: true };
/// Launches of a graph that is timed, and how often it is.
const LAUNCHES: usize = 10;
const TURNS: usize = 9;

/// The sizes of a layer.
#[derive(Clone, Copy, Debug)]
struct Layer {
    tokens: u32,
    experts: u32,
    chosen: u32,
    hidden: u32,
    inner: u32,
}

impl Layer {
    /// Choices of all tokens.
    fn choices(self) -> u32 {
        self.tokens * self.chosen
    }
}

/// The buffers of a layer.
struct Memory {
    logits: Buffer<f32>,
    ids: Buffer<u32>,
    weights: Buffer<f32>,
    offsets: Buffer<u32>,
    order: Buffer<u32>,
    x: Buffer<bf16>,
    gate_up: Buffer<bf16>,
    active: Buffer<bf16>,
    down: Buffer<bf16>,
    y: Buffer<bf16>,
    residual: Buffer<f32>,
}

/// Random numbers on the device: a run of them, again and again.
fn drawn(device: &Device, stream: &Stream, len: usize) -> Result<Buffer<bf16>, Box<dyn Error>> {
    let buffer = device.buffer(len)?;
    let run: Vec<bf16> = Draw::new(len as u64).floats(len.min(1 << 22), bf16::from_f64);
    for begin in (0..len).step_by(run.len()) {
        let end = (begin + run.len()).min(len);
        stream.upload(&run[..end - begin], &buffer.slice(begin..end)?)?;
    }
    Ok(buffer)
}

impl Memory {
    fn new(device: &Device, stream: &Stream, layer: Layer) -> Result<Memory, Box<dyn Error>> {
        let Layer { tokens, experts, hidden, inner, .. } = layer;
        let [tokens, experts, hidden, inner, choices] =
            [tokens, experts, hidden, inner, layer.choices()].map(|extent| extent as usize);
        let draw = &mut Draw::new(7);
        Ok(Memory {
            logits: stream.buffer(&draw.floats(tokens * experts, |v| 3.0 * v as f32))?,
            ids: device.buffer(choices)?,
            weights: device.buffer(choices)?,
            offsets: device.buffer(experts + 1)?,
            order: device.buffer(choices)?,
            x: drawn(device, stream, tokens * hidden)?,
            gate_up: drawn(device, stream, experts * 2 * inner * hidden)?,
            active: device.buffer(choices * inner)?,
            down: drawn(device, stream, experts * hidden * inner)?,
            y: device.buffer(choices * hidden)?,
            residual: stream.buffer(&draw.floats(tokens * hidden, |v| v as f32))?,
        })
    }
}

/// A launch of a grouped product, with the buffers that it names.
fn product<'b>(
    device: &Device,
    launch: &PlannedLaunch<GroupedBuffer>,
    bf16s: impl Fn(GroupedBuffer) -> &'b Buffer<bf16>,
    [offsets, order]: [&'b Buffer<u32>; 2],
) -> Result<Work, Box<dyn Error>> {
    let map = |argument: &Argument<GroupedBuffer>| match argument {
        Argument::Map(of, shape) => device.tensor_map(bf16s(*of), shape.clone()).map(Some),
        Argument::Pointer(_) | Argument::Number(_) => Ok(None),
    };
    let maps: Vec<Option<TensorMap>> = launch.arguments.iter().map(map).collect::<Result<_, _>>()?;
    let mut arguments: Vec<Arg<'_>> = Vec::new();
    for (argument, map) in launch.arguments.iter().zip(&maps) {
        arguments.push(match (argument, map) {
            (_, Some(map)) => Arg::Map(map),
            (Argument::Number(number), None) => (*number).into(),
            (Argument::Pointer(GroupedBuffer::Offsets), None) => offsets.into(),
            (Argument::Pointer(GroupedBuffer::Order), None) => order.into(),
            (Argument::Pointer(of) | Argument::Map(of, _), None) => bf16s(*of).into(),
        });
    }
    Ok(device.load(&verify(launch.kernel.clone())?)?.work(launch.grid, &arguments)?)
}

/// The launches of a layer, in their order, each with its name.
fn launches(device: &Device, layer: Layer, memory: &Memory) -> Result<Vec<(&'static str, Work)>, Box<dyn Error>> {
    let properties = device.properties();
    let arch = properties.arch().ok_or("no kernels for this GPU")?;
    let target = GemmDevice { arch, multiprocessors: properties.sms, aligned: 256, partials: true };
    let Layer { tokens, experts, chosen, hidden, inner } = layer;
    let choices = layer.choices();
    let tables = [&memory.offsets, &memory.order];

    let router = RouterShape { experts, chosen, kind: KIND, warps: 4 };
    let route = device.load(&verify(route_rows(arch, router))?)?.work(
        tokens.div_ceil(router.warps),
        &[tokens.into(), (&memory.logits).into(), (&memory.ids).into(), (&memory.weights).into()],
    )?;
    let sort = device
        .load(&verify(sort_choices(arch, SortShape { experts, first: 0, inverse: false }))?)?
        .work(1, &[choices.into(), (&memory.ids).into(), (&memory.offsets).into(), (&memory.order).into()])?;
    let gate = GroupedProblem::new(experts, choices, inner, hidden).gather(chosen);
    let gate = plan::<bf16, bf16>(gate.epilogue(Epilogue::gate(Activation::Silu)), target)?;
    let gate = product(
        device,
        &gate,
        |of| match of {
            GroupedBuffer::A => &memory.x,
            GroupedBuffer::B => &memory.gate_up,
            _ => &memory.active,
        },
        tables,
    )?;
    let down = plan::<bf16, bf16>(GroupedProblem::new(experts, choices, hidden, inner).scatter(), target)?;
    let down = product(
        device,
        &down,
        |of| match of {
            GroupedBuffer::A => &memory.active,
            GroupedBuffer::B => &memory.down,
            _ => &memory.y,
        },
        tables,
    )?;
    let sum =
        SumShape { width: hidden, chosen, y: Float::Bf16, out: Float::F32, residual: true, inverse: false, warps: 8 };
    let residual = &memory.residual;
    let sum = device
        .load(&verify(weighted_sum_rows(arch, sum))?)?
        .work(tokens, &[(&memory.y).into(), (&memory.weights).into(), residual.into(), residual.into()])?;
    Ok(vec![("route", route), ("sort", sort), ("gate and up", gate), ("down", down), ("sum", sum)])
}

/// Runs a small layer, and compares it with plain loops in f64.
fn check(device: &Device, layer: Layer) -> Result<(), Box<dyn Error>> {
    let stream = device.stream()?;
    let memory = Memory::new(device, &stream, layer)?;
    let residual = stream.read(&memory.residual)?;
    for (_, work) in launches(device, layer, &memory)? {
        stream.submit(&work)?;
    }
    let found = stream.read(&memory.residual)?;
    let wide = |buffer: &Buffer<bf16>| -> Result<Vec<f64>, Box<dyn Error>> {
        Ok(stream.read(buffer)?.into_iter().map(f64::from).collect())
    };
    let [x, gate_up, down] = [wide(&memory.x)?, wide(&memory.gate_up)?, wide(&memory.down)?];
    let logits: Vec<f64> = stream.read(&memory.logits)?.into_iter().map(f64::from).collect();
    let [hidden, inner] = [layer.hidden as usize, layer.inner as usize];
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut squares = [0.0; 2];
    for (token, row) in logits.chunks(layer.experts as usize).enumerate() {
        let (ids, weights) = naive::route(KIND, row, &[], layer.chosen as usize);
        let x = &x[token * hidden..][..hidden];
        let of_expert = |id: u32| -> Vec<f64> {
            let of = |row: usize| dot(x, &gate_up[(id as usize * 2 * inner + row) * hidden..][..hidden]);
            let active: Vec<f64> =
                (0..inner).map(|i| naive::activate(Activation::Silu, of(i)) * of(inner + i)).collect();
            (0..hidden).map(|i| dot(&active, &down[(id as usize * hidden + i) * inner..][..inner])).collect()
        };
        let results: Vec<Vec<f64>> = ids.into_iter().map(of_expert).collect();
        let results: Vec<Option<&[f64]>> = results.iter().map(|y| Some(&y[..])).collect();
        let before: Vec<f64> = residual[token * hidden..][..hidden].iter().map(|&x| x.into()).collect();
        let expected = naive::weighted_sum(&before, &weights, &results);
        for (expected, &found) in expected.iter().zip(&found[token * hidden..]) {
            squares[0] += (expected - f64::from(found)).powi(2);
            squares[1] += expected.powi(2);
        }
    }
    let error = (squares[0] / squares[1]).sqrt();
    println!("{layer:?}: relative L2 {error:.1e}");
    assert!(error < 4e-3, "two roundings to bf16 are 2^-9 each");
    Ok(())
}

/// The median time of a launch of a graph of [`LAUNCHES`].
fn time(stream: &Stream, graph: &Graph) -> Result<Duration, Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..TURNS {
        let begin: Event = stream.record()?;
        graph.launch(stream)?;
        let end = stream.record()?;
        end.wait()?;
        times.push(end.since(&begin)? / LAUNCHES as u32);
    }
    times.sort_unstable();
    Ok(times[TURNS / 2])
}

/// Times a layer and each of its launches.
fn time_layer(device: &Device, layer: Layer) -> Result<(), Box<dyn Error>> {
    let stream = device.stream()?;
    let memory = Memory::new(device, &stream, layer)?;
    let launches = launches(device, layer, &memory)?;
    let all: Vec<Work> = launches.iter().map(|(_, work)| work.clone()).collect();
    let all: Vec<Work> = all.iter().cycle().take(all.len() * LAUNCHES).cloned().collect();
    let total = time(&stream, &device.graph(&all)?)?;
    println!("{layer:?}: {:.1} µs", total.as_secs_f64() * 1e6);
    for (name, work) in launches {
        let graph = device.graph(&vec![work; LAUNCHES])?;
        println!("  {name}: {:.1} µs", time(&stream, &graph)?.as_secs_f64() * 1e6);
    }
    Ok(())
}

/// Times a product of equal groups by its tiles.
fn time_tiles(device: &Device, problem: GroupedProblem) -> Result<(), Box<dyn Error>> {
    let stream = device.stream()?;
    let a = drawn(device, &stream, problem.rows as usize * problem.k as usize)?;
    let b = drawn(device, &stream, (problem.groups * problem.b_rows()) as usize * problem.k as usize)?;
    let c: Buffer<bf16> = device.buffer(problem.rows as usize * problem.n as usize)?;
    let each = problem.rows / problem.groups;
    let offsets = stream.buffer(&(0..=problem.groups).map(|group| group * each).collect::<Vec<_>>())?;
    let mut order: Vec<u32> = (0..problem.rows).collect();
    let draw = &mut Draw::new(3);
    (1..problem.rows).rev().for_each(|i| order.swap(i as usize, draw.between(0..=i) as usize));
    let order = stream.buffer(&order)?;
    let operations = 2.0 * f64::from(problem.rows) * f64::from(problem.b_rows()) * f64::from(problem.k);
    println!("{problem:?}\n  chosen: {:?}", choose::<bf16>(&problem, Arch::Sm90a, 132));
    for &shape in GroupedShape::ALL.iter().filter(|shape| shape.fits(16, problem.gather.is_some())) {
        for (cluster, band) in [(1, 8), (1, 16), (2, 4), (2, 8)] {
            let choice = GroupedChoice::Hopper { shape, stages: 8, cluster, band };
            let launch = grouped_step::<bf16, bf16>(problem, choice, device.properties().sms)?;
            let bf16s = |of| match of {
                GroupedBuffer::A => &a,
                GroupedBuffer::B => &b,
                _ => &c,
            };
            let work = product(device, &launch, bf16s, [&offsets, &order])?;
            let time = time(&stream, &device.graph(&vec![work; LAUNCHES])?)?.as_secs_f64();
            println!(
                "  {shape:?} cluster {cluster} band {band}: {:.1} µs, {:.0} TFLOP/s",
                time * 1e6,
                operations / time * 1e-12
            );
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let small = Layer { tokens: 37, experts: 9, chosen: 3, hidden: 136, inner: 72 };
    let Some(name) = arguments.first() else { return check(&sim::open(0), small) };
    let device = device::open(name)?;
    println!("{}", device.properties().name);
    check(&device, small)?;
    check(&device, Layer { tokens: 300, experts: 16, chosen: 4, hidden: 512, inner: 256 })?;
    if arguments.get(1).is_some_and(|argument| argument == "tiles") {
        let gate = Epilogue::gate(Activation::Silu);
        for tokens in [64, 512, 2048, 8192] {
            time_tiles(&device, GroupedProblem::new(128, tokens * 8, 768, 2048).gather(8).epilogue(gate))?;
            time_tiles(&device, GroupedProblem::new(128, tokens * 8, 768, 2048).epilogue(gate))?;
            time_tiles(&device, GroupedProblem::new(128, tokens * 8, 2048, 768).scatter())?;
        }
        for (groups, rows) in [(4, 8192), (8, 4096)] {
            time_tiles(&device, GroupedProblem::new(groups, groups * rows, 4096, 7168))?;
            time_tiles(&device, GroupedProblem::new(groups, groups * rows, 7168, 4096))?;
        }
        return Ok(());
    }
    for tokens in [64, 512, 2048, 8192] {
        time_layer(&device, Layer { tokens, experts: 128, chosen: 8, hidden: 2048, inner: 768 })?;
    }
    Ok(())
}
