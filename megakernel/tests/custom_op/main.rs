//! Ops of another crate: registered, written, read, validated, run; and held to the regions that
//! they declare. The op is that of the example `custom_op`.

#[path = "../../examples/custom_op/soft_cap.rs"]
mod soft_cap;

mod beyond;
mod names;

use soft_cap::SoftCap;
use tilewright_codegen::device::Device;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_codegen::sim::Checks;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::ops::{Embed, Op, register};
use tilewright_megakernel::program::{BufferKind, CounterId, Program, Source, Span, Wait};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::{Placed, validate};
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::Unsupported;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Plan, register_device_op};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::weights::{WeightTensor, Weights};

/// Columns, in two tiles.
const WIDTH: usize = 64;
const CAP: f32 = 0.5;
const CELLS: StepCells<'static> = StepCells { tokens: &[3], positions: &[0], page_table: &[] };

/// A row of a table, capped twice, tile by tile: the second cap of a tile waits for the first of
/// that tile alone.
///
/// ```text
/// embed ─┬─ first[0] ── second[0]
///        └─ first[1] ── second[1]
/// ```
fn twice(cap: impl Fn(SoftCap) -> Op) -> Program {
    let mut p = Program::new("capped twice", Target { sms: 2, ..Target::named("h100").unwrap() });
    let table = p.add_buffer("table", BufferKind::Weight, DType::BF16, &[8, WIDTH]);
    p.buffers[table.index()].source = Some(Source::Random("table".into()));
    let [ids, position] = ["ids", "position"].map(|name| p.add_buffer(name, BufferKind::Cell, DType::I32, &[1]));
    let [x, y] = ["x", "y"].map(|name| p.add_buffer(name, BufferKind::Activation, DType::F32, &[1, WIDTH]));
    let z = p.add_buffer("z", BufferKind::Output, DType::F32, &[1, WIDTH]);
    let embedded = p.add_counter("embedded");
    let rows = Span::all(1);
    let embed =
        Embed { ids, position, table, scale: None, out: x, rows, cols: Span::all(WIDTH), shard: None, sent: vec![] };
    p.add_task("embed", embed, vec![], vec![embedded]).unwrap();
    let after = |counter: CounterId| vec![Wait { counter, threshold: 1 }];
    for tile in 0..2 {
        let cols = Span::new(tile * WIDTH / 2, (tile + 1) * WIDTH / 2);
        let first = p.add_counter(format!("first[{tile}]"));
        let op = cap(SoftCap { x, out: y, rows, cols, cap: CAP });
        p.add_task(format!("first[{tile}]"), op, after(embedded), vec![first]).unwrap();
        let op = cap(SoftCap { x: y, out: z, rows, cols, cap: CAP });
        p.add_task(format!("second[{tile}]"), op, after(first), vec![]).unwrap();
    }
    // A tile's tasks are one SM's: nothing else orders the tiles.
    for task in &mut p.tasks {
        task.sm = Some(tilewright_megakernel::program::SmId(u32::from(task.label.ends_with("[1]"))));
    }
    p
}

fn capped() -> Program {
    register::<SoftCap>().unwrap();
    register_device_op::<SoftCap>();
    twice(Op::from)
}

fn placed(program: Program) -> Placed {
    schedule(program, 64).unwrap_or_else(|error| panic!("{error:?}"))
}

fn simulated(placed: Placed, seed: u64) -> DeviceMachine {
    let device: Device = Simulator::new(Options { seed, sms: 2, checks: Checks::On, ..Options::default() }).device();
    let options = DeviceOptions { warps: 2, stage_bytes: 1024, ..DeviceOptions::default() }
        .with_thresholds(|limits| limits.stages = 2);
    DeviceMachine::load(placed, &NoWeights, &device, options, &mut |_, _| ()).unwrap()
}

/// A checkpoint of nothing: programs here make their weights at random.
struct NoWeights;

impl Weights for NoWeights {
    fn tensor(&self, _: &str) -> Option<WeightTensor> {
        None
    }
}

#[test]
fn an_op_from_outside_runs_on_the_reference_machine_and_on_the_simulated_device() {
    let placed = placed(capped());
    let mut reference = Machine::new(placed.clone(), &NoWeights, 1).unwrap();
    reference.poison();
    let mut kv = KvState::new(reference.program()).unwrap();
    let expected = reference.step(&mut kv, &CELLS).unwrap().f32("z").unwrap();
    assert!(expected.iter().any(|z| z.abs() > 1e-3) && expected.iter().all(|z| z.abs() < CAP));
    for seed in 0..3 {
        let mut device = simulated(placed.clone(), seed);
        device.step(&CELLS).unwrap();
        for (found, expected) in device.f32("z").unwrap().iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5, "seed {seed}: {found}, expected {expected}");
        }
    }
}

/// The row of `soft_cap` names no weights that it reads as they are.
#[test]
fn a_weight_that_the_row_does_not_name_is_refused_by_a_device() {
    let mut program = capped();
    let x = program.buffer_named("x").unwrap().id;
    program.tasks.retain(|task| !task.op.is::<Embed>());
    for (at, task) in program.tasks.iter_mut().enumerate() {
        task.id = at.into();
        task.waits.retain(|wait| wait.counter != CounterId(0));
    }
    let buffer = &mut program.buffers[x.index()];
    (buffer.kind, buffer.source) = (BufferKind::Weight, Some(Source::Random("x".into())));
    let error = Plan::new(&placed(program), DeviceOptions::default()).unwrap_err();
    let found = match &error {
        Unsupported::Task { source, .. } => source.as_ref(),
        other => other,
    };
    assert_eq!(*found, Unsupported::Packed { buffer: x }, "{error}");
}

#[test]
fn its_programs_are_valid_and_their_operands_checked() {
    let program = capped();
    assert!(validate(&program).is_valid(), "{}", validate(&program));
    let mut steep = program.clone();
    steep.tasks[1].op.get_mut::<SoftCap>().unwrap().cap = 0.0;
    insta::assert_snapshot!(
        validate(&steep).errors[0].to_string(),
        @"task t1 `first[0]`: op `soft_cap`: `cap` is 0, it must be a finite number above 0"
    );
    let mut wide = program;
    wide.tasks[1].op.get_mut::<SoftCap>().unwrap().cols = Span::all(WIDTH);
    assert!(validate(&wide).has("RegionsDiffer"));
}
