//! A crate that brings an op of its own: a soft cap on the logits of a small Llama, on the
//! reference machine and on a device, from one definition.
//!
//! `cargo run -p tilewright-megakernel --example custom_op -- --device sim` (or `cuda:0`). It
//! prints how far the device is from the oracle, and fails where that is more than rounding.

mod soft_cap;

use std::error::Error;

use soft_cap::SoftCap;
use tilewright_codegen::device;
use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::ops::{self, Argmax};
use tilewright_megakernel::program::{BufferKind, Program, Span};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, register_device_op};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::RandomWeights;

/// The bound on logits.
const CAP: f32 = 0.25;
/// The output that the op writes.
const CAPPED: &str = "capped";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let device = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => "sim",
        ["--device", device] => device,
        _ => {
            eprintln!("error: give `--device sim` or `--device cuda:0`, or nothing");
            std::process::exit(2);
        }
    };
    if let Err(error) = run(device) {
        eprintln!("error: {error}");
        std::process::exit(2);
    }
}

/// The step of a model, and after its logits the caps, a tile of columns a task.
fn program(spec: &ModelSpec, sms: usize) -> Result<Program, Box<dyn Error>> {
    let target = Target { sms, ..Target::named("h100").ok_or("no such target")? };
    let options = LowerOptions { kv: DType::BF16, page_tokens: 16, ..LowerOptions::for_context(64) };
    let mut program = lower(spec, &|_| DType::BF16, target, &options)?;
    let x = program.buffer_named(LOGITS).ok_or("the step has no logits")?.id;
    let out = program.add_buffer(CAPPED, BufferKind::Output, DType::F32, &[1, spec.vocab]);
    let choice = program.tasks.iter().find(|task| task.op.is::<Argmax>()).ok_or("the step chooses nothing")?;
    let ready = choice.waits.clone();
    for (tile, first) in (0..spec.vocab).step_by(16).enumerate() {
        let cols = Span::new(first, spec.vocab.min(first + 16));
        let op = SoftCap { x, out, rows: Span::all(1), cols, cap: CAP };
        program.add_task(format!("soft_cap[{tile}]"), op, ready.clone(), vec![])?;
    }
    Ok(program)
}

fn run(name: &str) -> Result<(), Box<dyn Error>> {
    ops::register::<SoftCap>()?;
    register_device_op::<SoftCap>();
    let spec = Llama::small().layers(1).vocab(40).model()?.into_owned();
    let device = device::open(name)?;
    let placed = schedule(program(&spec, 3)?, 64)?;
    let weights = RandomWeights::new(&spec, DType::BF16, 7)?;
    let cells = StepCells { tokens: &[7], positions: &[0], page_table: &[0, 1, 2, 3] };

    let mut reference = Machine::new(placed.clone(), &weights, 1)?;
    let mut kv = KvState::new(reference.program())?;
    let output = reference.step(&mut kv, &cells)?;
    let logits = output.f32(LOGITS)?;
    let expected = output.f32(CAPPED)?;

    let options = DeviceOptions { stage_bytes: 2048, ..DeviceOptions::for_simulator() };
    let mut machine = DeviceMachine::load(placed, &weights, &device, options, &mut |_, _| ())?;
    machine.step(&cells)?;
    let found = machine.f32(CAPPED)?;

    let largest = |values: &[f32]| values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let apart = largest(&found.iter().zip(&expected).map(|(a, b)| a - b).collect::<Vec<_>>());
    println!("{name}: {} logits up to {:.3}, capped up to {:.3}", logits.len(), largest(&logits), largest(&expected));
    println!("the device is at most {apart:.1e} from the oracle");
    if apart.is_nan() || apart > 2e-3 {
        return Err(format!("the device is {apart} from the oracle, rounding allows 2e-3").into());
    }
    Ok(())
}
