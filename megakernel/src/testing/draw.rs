//! Random small computations: buffers and ops in an order in which they make sense, without any
//! synchronisation.

use crate::ops::{Argmax, Copy, Linear, LinearInput, LinearOutput, REQUEST_WORDS, Sample};
use crate::program::{BufferId, BufferKind, Op, Program, Region, Source, Span};
use tilewright_codegen::target::Target;
use tilewright_kernels::activation::Activation;
use tilewright_layout::DType;

use super::clashes::Touched;
use super::oracle;
use super::plain_ops::{Add, RmsNorm, SiluMul, register_plain_ops};
use super::rng::Rng;

/// The buffers that ops are drawn over.
struct Draft {
    program: Program,
    rng: Rng,
    rows: usize,
    cols: usize,
    /// Buffers of shape `[rows, cols]` that tasks may write.
    scratch: Vec<BufferId>,
    input: BufferId,
    /// `[cols, cols]` and `[cols]`.
    weight: BufferId,
    gain: BufferId,
    value: BufferId,
    index: BufferId,
    position: BufferId,
    request: BufferId,
    chosen: BufferId,
    out: BufferId,
    /// Percent of reads that do not care whether anything was written.
    careless: usize,
}

/// A computation of at most 8 tasks. `careless` percent of its reads may find nothing.
pub fn computation(rng: &mut Rng, careless: usize) -> Program {
    register_plain_ops().expect("no other op has the name of a plain one");
    let mut draft = Draft::new(rng.clone(), careless);
    let count = draft.rng.within(2, 8);
    let tiles = draft.tiles(count.min(3));
    for _ in 0..12 {
        if draft.program.tasks.len() + tiles.len() < count {
            draft.draw();
        }
    }
    for tile in tiles {
        let region = Region::new(draft.out, &[Span::all(draft.rows), tile]);
        let op = match draft.defined_like(region) {
            Some(src) => Op::from(Copy { src, dst: region }),
            None => Op::from(Copy { src: Region::new(draft.input, region.spans()), dst: region }),
        };
        draft.push(op);
    }
    if draft.rng.chance(70) {
        draft.alias();
    }
    *rng = draft.rng;
    draft.program
}

impl Draft {
    fn new(mut rng: Rng, careless: usize) -> Draft {
        let rows = rng.within(1, 2);
        let cols = 2 * rng.within(1, 3);
        let mut p = Program::new("small", Target::host(1));
        let floats = [DType::F32, DType::BF16, DType::F16];
        let input = p.add_buffer("input", BufferKind::Input, DType::BF16, &[rows, cols]);
        let weight = p.add_buffer("weight", BufferKind::Weight, DType::BF16, &[cols, cols]);
        let gain = p.add_buffer("gain", BufferKind::Weight, DType::BF16, &[cols]);
        for at in [weight, gain] {
            p.buffers[at.index()].source = Some(Source::Tensor(format!("model.{at}")));
        }
        let mut scratch = Vec::new();
        for at in 0..rng.within(1, 3) {
            let dtype = floats[rng.below(3)];
            scratch.push(p.add_buffer(format!("x{at}"), BufferKind::Activation, dtype, &[rows, cols]));
        }
        if rng.chance(30) {
            scratch.push(p.add_buffer("pool", BufferKind::KvPool, DType::BF16, &[rows, cols]));
        }
        let value = p.add_buffer("value", BufferKind::Activation, DType::F32, &[rows, 2]);
        let index = p.add_buffer("index", BufferKind::Activation, DType::I32, &[rows, 2]);
        let position = p.add_buffer("position", BufferKind::Cell, DType::I32, &[rows]);
        let request = p.add_buffer("request", BufferKind::Cell, DType::I32, &[rows, REQUEST_WORDS]);
        let chosen = p.add_buffer("chosen", BufferKind::Activation, DType::I32, &[rows]);
        let out = p.add_buffer("out", BufferKind::Output, DType::F32, &[rows, cols]);
        let mut end = 0;
        for buffer in p.buffers.iter_mut().filter(|b| b.kind == BufferKind::Activation) {
            buffer.arena = rng.chance(80).then_some(end);
            end += (buffer.bytes().unwrap() as u64).next_multiple_of(4);
        }
        Draft {
            program: p,
            rng,
            rows,
            cols,
            scratch,
            input,
            weight,
            gain,
            value,
            index,
            position,
            request,
            chosen,
            out,
            careless,
        }
    }

    /// Adds a task, if its op stands.
    fn push(&mut self, op: Op) {
        let label = format!("{}[{}]", op.name(), self.program.tasks.len());
        if self.program.add_task(label, op, vec![], vec![]).is_ok()
            && oracle::footprint(&self.program, self.program.tasks.len() - 1).is_some()
        {
            self.program.tasks.pop();
        }
    }

    fn span(&mut self, extent: usize) -> Span {
        if self.rng.chance(40) {
            return Span::all(extent);
        }
        let lo = self.rng.below(extent);
        Span::new(lo, self.rng.within(lo + 1, extent))
    }

    /// Splits the columns into at most `most` tiles.
    fn tiles(&mut self, most: usize) -> Vec<Span> {
        let mut cuts = vec![0, self.cols];
        for _ in 1..self.rng.within(1, most) {
            cuts.push(self.rng.below(self.cols));
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).map(|cut| Span::new(cut[0], cut[1])).collect()
    }

    fn target(&mut self) -> Region {
        let spans = [self.span(self.rows), self.span(self.cols)];
        let buffer = self.scratch[self.rng.below(self.scratch.len())];
        Region::new(buffer, &spans)
    }

    /// Whether every byte of a region is defined when the tasks so far ran one after the other.
    fn is_defined(&self, region: &Region) -> bool {
        self.program.buffers[region.buffer.index()].kind.is_defined_at_start() || {
            let touched = Touched::of(&self.program);
            oracle::bytes(&self.program, region).iter().all(|byte| touched.writes.iter().any(|w| w.contains(byte)))
        }
    }

    /// A defined region of the same extents.
    fn defined_like(&mut self, like: Region) -> Option<Region> {
        for _ in 0..8 {
            let mut buffers = self.scratch.clone();
            buffers.push(self.input);
            let buffer = buffers[self.rng.below(buffers.len())];
            let mut spans = [like.spans()[0], like.spans()[1]];
            if self.rng.chance(30) {
                let lo = self.rng.below(self.cols - spans[1].len() + 1);
                spans[1] = Span::new(lo, lo + spans[1].len());
            }
            let region = Region::new(buffer, &spans);
            if self.is_defined(&region) || self.rng.chance(self.careless) {
                return Some(region);
            }
        }
        None
    }

    fn row_source(&mut self, rows: Span) -> Option<BufferId> {
        self.defined_like(Region::new(self.input, &[rows, Span::all(self.cols)])).map(|region| region.buffer)
    }

    /// Draws one more task; adds nothing if the drawn op has no operands.
    fn draw(&mut self) {
        let out = self.target();
        let op = match self.rng.below(100) {
            0..40 => self.defined_like(out).map(|src| Op::from(Copy { src, dst: out })),
            40..70 => self.binary(out),
            70..80 => self.norm(out),
            80..95 => self.linear(out),
            _ => self.choice(),
        };
        if let Some(op) = op {
            self.push(op);
        }
    }

    fn binary(&mut self, out: Region) -> Option<Op> {
        let a = if self.is_defined(&out) && self.rng.chance(50) { out } else { self.defined_like(out)? };
        let b = self.defined_like(out)?;
        Some(if self.rng.chance(60) { Op::from(Add { a, b, out }) } else { Op::from(SiluMul { gate: a, up: b, out }) })
    }

    fn norm(&mut self, out: Region) -> Option<Op> {
        let x = self.row_source(out.spans()[0])?;
        Some(Op::from(RmsNorm { x, weight: self.gain, out: out.buffer, rows: out.spans()[0], eps: 1e-5 }))
    }

    fn linear(&mut self, target: Region) -> Option<Op> {
        let rows = target.spans()[0];
        let cols = target.spans()[1];
        let x = self.row_source(rows)?;
        let input = if self.rng.chance(50) {
            LinearInput::Plain { x }
        } else {
            LinearInput::RmsNorm { x, weight: self.gain, eps: 1e-5 }
        };
        let out = target.buffer;
        let output = match self.rng.below(5) {
            0 | 1 => LinearOutput::Store { out, sent: vec![] },
            2 => {
                // The residual is read where the output is written.
                let residual = self.defined_like(target).filter(|region| region.spans() == target.spans())?.buffer;
                LinearOutput::Add { residual, out }
            }
            3 => LinearOutput::Gated { activation: Activation::default(), up: Some(self.weight), up_bias: None, out },
            _ => {
                let best_value = self.value;
                let best_index = self.index;
                let tile = self.rng.below(2);
                LinearOutput::Logits { soft_cap: None, out, shard: None, best_value, best_index, tile }
            }
        };
        Some(Op::from(Linear { input, weight: self.weight, bias: None, rows, cols, output }))
    }

    /// Adds a greedy choice, or one by requests. The argmax candidates of the tiles also serve as
    /// logits.
    fn choice(&mut self) -> Option<Op> {
        let rows = self.span(self.rows);
        let tiles = |buffer| Region::new(buffer, &[rows, Span::all(2)]);
        let defined = self.is_defined(&tiles(self.value)) && self.is_defined(&tiles(self.index));
        let value = self.value;
        let index = self.index;
        let out = self.chosen;
        let op = if self.rng.chance(50) {
            Op::from(Argmax { value, index, out, rows })
        } else {
            let position = self.position;
            let request = self.request;
            Op::from(Sample { logits: value, value, index, position, request, out, rows })
        };
        (defined || self.rng.chance(self.careless)).then_some(op)
    }

    /// Moves an activation over another one, if the tasks still make sense one after the other (or
    /// in some cases regardless).
    fn alias(&mut self) {
        for _ in 0..self.rng.within(1, 6) {
            let before = self.program.clone();
            overlay(&mut self.program, &mut self.rng);
            if !makes_sense(&self.program) && !self.rng.chance(self.careless) {
                self.program = before;
            }
        }
    }
}

/// Moves one activation so that it shares bytes with another one.
pub fn overlay(program: &mut Program, rng: &mut Rng) -> bool {
    let touched =
        |b: usize| program.tasks.iter().any(|t| t.reads.iter().chain(&t.writes).any(|r| r.buffer.index() == b));
    let activations: Vec<usize> = (0..program.buffers.len())
        .filter(|&b| program.buffers[b].kind == BufferKind::Activation && touched(b))
        .collect();
    let placed: Vec<usize> = activations.iter().copied().filter(|&b| program.buffers[b].arena.is_some()).collect();
    let (Some(&moved), Some(&onto)) = (rng.pick(&activations), rng.pick(&placed)) else { return false };
    if moved == onto {
        return false;
    }
    let size = program.buffers[moved].dtype.bytes() as u64;
    let shift = rng.below(program.buffers[onto].bytes().unwrap()) as u64;
    let base = program.buffers[onto].arena.unwrap() + if rng.chance(50) { 0 } else { shift };
    program.buffers[moved].arena = Some(base.next_multiple_of(size));
    true
}

/// Whether every read finds bytes of its own buffer when the tasks run one after the other.
fn makes_sense(program: &Program) -> bool {
    let mut through = std::collections::BTreeMap::new();
    (0..program.tasks.len()).all(|at| {
        let task = &program.tasks[at];
        let defined = |region: &Region, through: &std::collections::BTreeMap<_, _>| {
            program.buffers[region.buffer.index()].kind.is_defined_at_start()
                || oracle::bytes(program, region).iter().all(|byte| through.get(byte) == Some(&region.buffer))
        };
        let good =
            task.reads.iter().all(|region| defined(region, &through)) && oracle::footprint(program, at).is_none();
        for write in &task.writes {
            through.extend(oracle::bytes(program, write).into_iter().map(|byte| (byte, write.buffer)));
        }
        good
    })
}
