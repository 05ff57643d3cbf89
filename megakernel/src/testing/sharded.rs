//! Random small computations of several devices, without any synchronisation: products whose parts
//! every device is sent, sums of the parts, results on the first device.

use crate::ops::{Linear, LinearInput, LinearOutput, Op, Reduce};
use crate::program::{BufferId, BufferKind, DeviceId, Program, Source, Span};
use tilewright_codegen::target::Target;
use tilewright_layout::DType;

use super::rng::Rng;

/// The buffers of one device over which ops are drawn.
struct Shard {
    /// Activations `[rows, cols]`.
    x: BufferId,
    /// The buffers that receive partial sums, by sending device.
    parts: Vec<BufferId>,
}

/// A computation of two or three devices, of one layer or two, of at most 12 tasks.
pub fn computation(rng: &mut Rng) -> Program {
    let devices = rng.within(2, 3);
    let rows = rng.within(1, 2);
    let cols = 2 * rng.within(1, 2);
    let layers = if devices == 2 { rng.within(1, 2) } else { 1 };
    let mut p = Program::new("sharded", Target::host(1));
    p.devices = devices;
    let input = p.add_buffer("input", BufferKind::Input, DType::F32, &[rows, cols]);
    let weight = p.add_buffer("weight", BufferKind::Weight, DType::BF16, &[cols, cols]);
    p.buffers[weight.index()].source = Some(Source::Tensor("model.weight".into()));
    let shards: Vec<Shard> = (0..devices).map(|device| Shard::new(&mut p, device, [rows, cols])).collect();
    let mut of_first = |name: &str, kind, dtype, shape: &[usize]| {
        let id = p.add_buffer(name, kind, dtype, shape);
        p.buffers[id.index()].device = Some(DeviceId(0));
        id
    };
    let out = of_first("out", BufferKind::Output, DType::F32, &[rows, cols]);
    let best_value = of_first("value", BufferKind::Activation, DType::F32, &[rows, devices]);
    let best_index = of_first("index", BufferKind::Activation, DType::I32, &[rows, devices]);
    let every = Span::all(rows);
    for layer in 0..layers {
        // A layer after the first adds to what the devices have; the first may add to the input.
        let x = |shard: &Shard| if layer == 0 { input } else { shard.x };
        for (from, shard) in shards.iter().enumerate() {
            let sent = shards.iter().enumerate().filter(|&(to, _)| to != from).map(|(_, shard)| shard.parts[from]);
            let output = LinearOutput::Store { out: shard.parts[from], sent: sent.collect() };
            let input = LinearInput::Plain { x: x(shard) };
            for cols in tiles(rng, cols, if devices == 2 && layers == 1 { 2 } else { 1 }) {
                let output = output.clone();
                push(&mut p, from, Linear { input: input.clone(), weight, bias: None, rows: every, cols, output });
            }
        }
        for (device, shard) in shards.iter().enumerate() {
            let parts = shard.parts.clone();
            let residual = rng.chance(70).then(|| x(shard));
            push(
                &mut p,
                device,
                Reduce { parts, norm: None, residual, out: shard.x, rows: every, cols: Span::all(cols) },
            );
        }
    }
    for (tile, shard) in shards.iter().enumerate().take(cols) {
        let last = tile + 1 == devices.min(cols);
        let cols = Span::new(tile, if last { cols } else { tile + 1 });
        let output = LinearOutput::Logits { soft_cap: None, out, shard: None, best_value, best_index, tile };
        let input = LinearInput::Plain { x: shard.x };
        push(&mut p, tile, Linear { input, weight, bias: None, rows: every, cols, output });
    }
    p
}

impl Shard {
    fn new(p: &mut Program, device: usize, shape: [usize; 2]) -> Shard {
        let devices = p.devices;
        let mut scratch = |name: &str| {
            let id = p.add_buffer(format!("{name}.dev{device}"), BufferKind::Activation, DType::F32, &shape);
            p.buffers[id.index()].device = Some(DeviceId::from(device));
            id
        };
        Shard { x: scratch("x"), parts: (0..devices).map(|from| scratch(&format!("part{from}"))).collect() }
    }
}

/// Divides columns into one or two intervals, at most `most`.
fn tiles(rng: &mut Rng, cols: usize, most: usize) -> Vec<Span> {
    if rng.within(1, most) == 1 {
        return vec![Span::all(cols)];
    }
    let cut = rng.within(1, cols - 1);
    vec![Span::new(0, cut), Span::new(cut, cols)]
}

fn push(p: &mut Program, device: usize, op: impl Into<Op>) {
    let op = op.into();
    let label = format!("{}[{}].dev{device}", op.name(), p.tasks.len());
    let id = p.add_task(label, op, vec![], vec![]).expect("operands of one shape");
    p.tasks[id.index()].device = DeviceId::from(device);
}
