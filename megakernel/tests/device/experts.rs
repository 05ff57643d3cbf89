//! Mixtures of experts by themselves: random sizes, routes and rows, against the reference machine.
//! The router's logits are an input, so that both machines choose by the same numbers.

use std::sync::Arc;

use tilewright_codegen::sample::Sample;
use tilewright_codegen::target::Target;
use tilewright_codegen::trial::Draw;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::experts::RouteShape;
use tilewright_kernels::quant::{Code, QuantMatrix};
use tilewright_layout::DType;
use tilewright_megakernel::model::TensorSpec;
use tilewright_megakernel::ops::{ExpertDown, ExpertGateUp, ExpertOutput, LinearInput, Route, RouteKind, SlotStrips};
use tilewright_megakernel::program::{BufferId, BufferKind, CounterId, Op, Program, Quantised, Source, Span, Wait};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::{WeightTensor, Weights, random_codes, random_tensor};

use super::lab::{chain, device, options, relative};

/// A mixture, and how its levels are cut.
#[derive(Clone, Copy, Debug)]
struct Mixture {
    rows: usize,
    experts: usize,
    chosen: usize,
    hidden: usize,
    inner: usize,
    sms: usize,
    kind: RouteKind,
    activation: DType,
    norm: bool,
    /// Whether the products have biases, as those of gpt-oss have; then its gate is theirs too.
    bias: bool,
    codes: Option<(Code, usize)>,
}

/// The weights of a mixture: expert e's gate is `gate.e`.
struct OfMixture(Mixture);

impl OfMixture {
    fn extents(&self, name: &str) -> Option<[usize; 2]> {
        let Mixture { hidden, inner, .. } = self.0;
        match name.split_once('.')?.0 {
            "gate" | "up" => Some([inner, hidden]),
            "down" => Some([hidden, inner]),
            _ => None,
        }
    }
}

impl Weights for OfMixture {
    fn tensor(&self, name: &str) -> Option<WeightTensor> {
        let shape = match self.extents(name) {
            Some(extents) => extents.to_vec(),
            None if name.starts_with("gate_bias") || name.starts_with("up_bias") => vec![self.0.inner],
            None => vec![self.0.hidden],
        };
        random_tensor(&TensorSpec { name: name.to_owned(), shape }, DType::BF16, 3).ok()
    }

    fn quantized(&self, name: &str) -> Option<Arc<QuantMatrix>> {
        let (code, group) = self.0.codes?;
        let form = Quantised { code, group: Some(group), zeros: false, scale: DType::BF16, ordered: false };
        let tensor = TensorSpec { name: name.to_owned(), shape: self.extents(name)?.to_vec() };
        random_codes(&tensor, 5, form).ok().map(Arc::new)
    }
}

/// The buffers of a program of a mixture.
struct Parts {
    program: Program,
    waits: Vec<Wait>,
}

impl Parts {
    fn buffer(&mut self, name: &str, kind: BufferKind, dtype: DType, shape: &[usize]) -> BufferId {
        self.program.add_buffer(name, kind, dtype, shape)
    }

    fn experts(&mut self, name: &str, of: Mixture, [n, k]: [usize; 2]) -> BufferId {
        let id = self.buffer(name, BufferKind::Weight, DType::BF16, &[of.experts * n, k]);
        let tensor = format!("{name}.{{expert}}");
        let index = vec![Span::all(n), Span::all(k)];
        self.program.buffers[id.index()].source = Some(Source::Experts { tensor, experts: of.experts, index });
        id
    }

    fn biases(&mut self, name: &str, of: Mixture, n: usize) -> Option<BufferId> {
        let id = of.bias.then(|| self.buffer(name, BufferKind::Weight, DType::BF16, &[of.experts * n]))?;
        let tensor = format!("{name}.{{expert}}");
        let source = Source::Experts { tensor, experts: of.experts, index: vec![Span::all(n)] };
        self.program.buffers[id.index()].source = Some(source);
        Some(id)
    }

    /// Adds a level that waits for those before it as `waits` says.
    fn level(&mut self, name: &str, ops: Vec<Op>) -> Wait {
        let counter: CounterId = self.program.add_counter(name.to_owned());
        let threshold = ops.len() as u32;
        for (at, op) in ops.into_iter().enumerate() {
            self.program.add_task(format!("{name}[{at}]"), op, self.waits.clone(), vec![counter]).unwrap();
        }
        Wait { counter, threshold }
    }
}

/// The choice of experts, gate and up, and down into the output `out`.
fn placed(of: Mixture) -> Placed {
    let Mixture { rows, experts, chosen, hidden, inner, sms, .. } = of;
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let mut parts = Parts { program: Program::new("mixture", target), waits: vec![] };
    let shape = RouteShape { rows: rows as u32, experts: experts as u32, chosen: chosen as u32 };
    let slots = shape.slots() as usize;
    let logits = parts.buffer("logits", BufferKind::Input, DType::F32, &[rows, experts]);
    let x = parts.buffer("x", BufferKind::Input, DType::F32, &[rows, hidden]);
    let residual = parts.buffer("residual", BufferKind::Input, DType::F32, &[rows, hidden]);
    let routes = parts.buffer("routes", BufferKind::Activation, DType::F32, &shape.table().map(|at| at as usize));
    let h = parts.buffer("h", BufferKind::Activation, of.activation, &[rows, slots * inner]);
    let out = parts.buffer("out", BufferKind::Output, DType::F32, &[rows, hidden]);
    let [gate, up] = ["gate", "up"].map(|name| parts.experts(name, of, [inner, hidden]));
    let weight = parts.experts("down", of, [hidden, inner]);
    let [gate_bias, up_bias] = ["gate_bias", "up_bias"].map(|name| parts.biases(name, of, inner));
    let bias = parts.biases("down_bias", of, hidden);
    let input = match of.norm {
        false => LinearInput::Plain { x },
        true => {
            let weight = parts.buffer("norm", BufferKind::Weight, DType::BF16, &[hidden]);
            parts.program.buffers[weight.index()].source = Some(Source::Tensor("norm".to_owned()));
            LinearInput::RmsNorm { x, weight, eps: 1e-6 }
        }
    };
    let rows = Span::all(rows);
    let routed =
        parts.level("route", vec![Route { logits, routes, chosen, kind: of.kind, correction: None, rows }.into()]);
    parts.waits = vec![routed];
    let step = sms.min(slots * inner / 8);
    let strips = |first| SlotStrips { first, step };
    let input = &input;
    let gate_up = |first| {
        let (input, strips) = (input.clone(), strips(first));
        Op::from(ExpertGateUp {
            input,
            routes,
            experts,
            chosen,
            gate,
            up,
            gate_bias,
            up_bias,
            activation: if of.bias { Activation::GPT_OSS } else { Activation::Silu },
            rows,
            strips,
            out: h,
        })
    };
    let made = parts.level("gate_up", (0..step).map(gate_up).collect());
    parts.waits = vec![routed, made];
    let strips = hidden / 8;
    let tiles = sms.min(strips);
    let down = |at: usize| {
        let cols = Span::new(strips * at / tiles * 8, strips * (at + 1) / tiles * 8);
        let output = ExpertOutput::Add { residual, out };
        Op::from(ExpertDown { x: h, routes, experts, chosen, weight, bias, rows, cols, output })
    };
    parts.level("down", (0..tiles).map(down).collect());
    schedule(parts.program.stored_as(&OfMixture(of)), 1).unwrap()
}

/// Steps with other routes each time, on both machines.
fn agree(of: Mixture, seed: u64, options: DeviceOptions) {
    let draw = &mut Draw::new(seed);
    let placed = placed(of);
    let mut reference = Machine::new(placed.clone(), &OfMixture(of), 1).unwrap();
    let mut kv = KvState::new(reference.program()).unwrap();
    let device = device(seed, of.sms);
    let loaded = DeviceMachine::load(placed, &OfMixture(of), &device, options, &mut |_, _| ());
    let mut machine = loaded.unwrap_or_else(|error| panic!("{of:?}: {}", chain(&error)));
    let cells = StepCells { tokens: &[], positions: &[], page_table: &[] };
    for step in 0..2 {
        let numbers = |draw: &mut Draw, count: usize| draw.floats(count, |x| x as f32);
        // Whole logits: ties are frequent. In the second step all rows choose alike.
        let mut logits: Vec<f32> = (0..of.rows * of.experts).map(|_| draw.between(0..=6) as f32).collect();
        if step == 1 {
            logits = logits[..of.experts].repeat(of.rows);
        }
        let x = numbers(draw, of.rows * of.hidden);
        let residual = numbers(draw, of.rows * of.hidden);
        for (name, values) in [("logits", &logits), ("x", &x), ("residual", &residual)] {
            reference.set_input(name, values).unwrap();
            machine.set_input(name, values).unwrap();
        }
        machine.step(&cells).unwrap_or_else(|error| panic!("{of:?}: {}", chain(&error)));
        let expected = reference.step(&mut kv, &cells).unwrap().f32("out").unwrap();
        let found = machine.f32("out").unwrap();
        let error = relative(&found, &expected);
        let most = if of.codes.is_some() || of.activation == DType::BF16 { 1e-2 } else { 1e-4 };
        assert!(error < most, "seed {seed}, step {step}: {error} of {of:?}");
    }
}

fn drawn(draw: &mut Draw) -> Mixture {
    let experts = draw.between(1..=12) as usize;
    let mut one_of = |list: &[usize]| list[draw.between(0..=list.len() as u32 - 1) as usize];
    let (hidden, inner) = (one_of(&[32, 64, 104, 416]), one_of(&[8, 32, 40, 96, 264]));
    Mixture {
        rows: one_of(&[1, 2, 3, 4, 7, 8, 9, 16]),
        experts,
        chosen: one_of(&[1, 2, 3, 5]).min(experts),
        hidden,
        inner,
        sms: one_of(&[1, 2, 3, 5]),
        kind: [RouteKind::All, RouteKind::Chosen][one_of(&[0, 1])],
        activation: [DType::F32, DType::BF16][one_of(&[0, 0, 1])],
        norm: one_of(&[0, 1]) == 1,
        bias: one_of(&[0, 0, 1]) == 1,
        codes: None,
    }
}

/// Activations of several slots in registers, of one, and of a part of one.
#[test]
fn random_mixtures_agree_with_the_reference() {
    let sample = Sample::one_of(20);
    for seed in (0..200).filter(|&seed| sample.has(seed as usize)) {
        let draw = &mut Draw::new(seed);
        let of = drawn(draw);
        let activation_registers = [128, 64, 32][draw.between(0..=2) as usize];
        let fits = of.hidden <= 104;
        let registers = if fits { activation_registers } else { 128 };
        agree(of, seed, DeviceOptions { activation_registers: registers, ..options() });
    }
}

#[test]
fn mixtures_of_codes_agree_with_the_reference() {
    let sample = Sample::one_of(15);
    for seed in (0..60).filter(|&seed| sample.has(seed as usize)) {
        let draw = &mut Draw::new(1000 + seed);
        let of = Mixture { hidden: 64, inner: [32, 64, 96][draw.between(0..=2) as usize], ..drawn(draw) };
        let code = [Code::U4, Code::U8, Code::E4m3][draw.between(0..=2) as usize];
        agree(Mixture { codes: Some((code, 32)), ..of }, seed, options());
    }
}
