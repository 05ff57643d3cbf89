//! Programs that load have no race: programs whose writers are moved to other pools and buffers are
//! ordered on the device, or refused.

use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::ops::{Attention, KeyOutput, Linear, LinearInput, LinearOutput, Qkv};
use tilewright_megakernel::program::{BufferId, BufferKind, Footprint, Op, Operands, Program, TaskId, Wait};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::testing::Rng;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, Plan};

use super::devices::shared;
use super::lab::{Cells, PAGES, bits, chain, device, least, normed, options, placed, tiny, weights};

/// Two layers of the least model.
fn spec() -> Llama {
    least().layers(2).heads(4, 2)
}

/// The lowering options of a program.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    sms: usize,
    splits: usize,
    kv: DType,
}

fn program(Shape { rows, sms, splits, kv }: Shape) -> Program {
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let pages = Some(PAGES * 16);
    let options =
        LowerOptions { rows, kv, page_tokens: 16, pages, splits: Some(splits), ..LowerOptions::for_context(64) };
    let lowered = lower(&spec(), &|_| DType::BF16, target, &options).unwrap();
    schedule(lowered, 64).unwrap().into_program()
}

/// Gives a task another op, with the regions that it touches.
fn replace(program: &mut Program, task: TaskId, op: Op) {
    let Footprint { reads, writes, .. } = op.footprint(&Operands::new(&program.buffers)).unwrap();
    let task = &mut program.tasks[task.index()];
    (task.op, task.reads, task.writes) = (op, reads, writes);
}

fn named(program: &Program, name: &str) -> BufferId {
    program.buffer_named(name).unwrap_or_else(|| panic!("{name} is a buffer")).id
}

/// The first task of a label, which reads the keys of a layer from the pool of another buffer.
fn reading_keys_of(program: &mut Program, label: &str, pool: &str) {
    let task = program.tasks.iter().find(|task| task.label.starts_with(label)).unwrap().id;
    let mut op = program.tasks[task.index()].op.clone();
    op.get_mut::<Attention>().unwrap().k_pool = named(program, pool);
    replace(program, task, op);
}

/// Loads a program and runs steps; whether it was loaded.
fn runs_without_a_race(placed: &Placed, seed: u64, of: &str) -> bool {
    let device = device(seed, placed.target.sms);
    let loaded = DeviceMachine::load(placed.clone(), &weights(&spec()), &device, options(), &mut |_, _| ());
    let Ok(mut machine) = loaded else { return false };
    let rows = machine.plan().rows as usize;
    for position in [3, 20] {
        let ran = machine.step(&Cells::at(rows, position).view());
        ran.unwrap_or_else(|error| panic!("{of}, seed {seed}, position {position}: {}", chain(&error)));
    }
    true
}

/// Attention of layer 0 reads a pool that layer 1 writes later in the step. The validator accepts
/// it, since attention's signals and later waits order both; packets in place of these signals
/// would not.
#[test]
fn a_pool_that_is_overwritten_later_in_the_step_is_ordered() {
    for kv in [DType::F8E4M3, DType::BF16] {
        for (rows, splits) in [(1, 2), (2, 1)] {
            let mut program = program(Shape { rows, sms: 3, splits, kv });
            let plain = Plan::new(&Placed::new(program.clone()).unwrap(), options()).unwrap();
            assert!(plain.options.packets && plain.skips_semaphores, "the program as it is lowered needs no releases");
            reading_keys_of(&mut program, "layers.0.attention", "layers.1.v");
            let placed = Placed::new(program).expect("the counters order the read and the write");
            let plan = Plan::new(&placed, options()).unwrap();
            assert!(!plan.options.packets && !plan.skips_semaphores, "{kv}, {rows} rows: every signal releases");
            for seed in 0..3 {
                assert!(runs_without_a_race(&placed, seed, "a pool"), "it is ordered, not refused");
            }
        }
    }
}

/// The reported program: pools of e4m3 codes, and queues in an order of their own.
#[test]
fn the_stored_program_whose_pool_is_overwritten_runs_without_a_race() {
    let program = Program::from_json(include_str!("../corpus/programs/pool-write-after-read.json")).unwrap();
    let placed = Placed::new(program).expect("the validator accepts it");
    let weights = weights(&spec().inner(48));
    for seed in 0..4 {
        let device = device(seed, placed.target.sms);
        let mut machine = DeviceMachine::load(placed.clone(), &weights, &device, options(), &mut |_, _| ()).unwrap();
        for position in [3, 20] {
            let cells = Cells::at(1, position);
            let view = StepCells { tokens: &cells.tokens, positions: &cells.positions, page_table: &[2, 1] };
            machine.step(&view).unwrap_or_else(|error| panic!("seed {seed}: {}", chain(&error)));
        }
    }
}

/// The order is part of the plan, so results do not depend on the seed.
#[test]
fn a_pool_that_is_overwritten_gives_the_same_bits_under_every_order_of_blocks() {
    let mut program = program(Shape { rows: 1, sms: 3, splits: 2, kv: DType::BF16 });
    reading_keys_of(&mut program, "layers.0.attention", "layers.1.k");
    let placed = Placed::new(program).unwrap();
    let of = |seed| bits(&mut super::lab::load(placed.clone(), &spec(), seed, options()), 1);
    let first = of(0);
    for seed in 1..4 {
        assert_eq!(of(seed), first, "seed {seed}");
    }
}

/// Without packets the device's order is the validator's: nothing that it accepts is refused for
/// its order.
#[test]
fn without_packets_the_order_is_the_validators() {
    let mut rng = Rng::new(5);
    let plain = DeviceOptions { packets: false, ..options() };
    let mut seen = 0;
    for _ in 0..200 {
        let Some(placed) = mutant(&mut rng) else { continue };
        seen += 1;
        if let Err(error) = Plan::new(&placed, plain) {
            let text = chain(&error);
            assert!(!text.contains("unordered"), "{text}");
        }
    }
    assert!(seen > 40, "{seen} mutants are valid");
}

/// Programs of the lowering need no fallback: flagged words are used wherever a program supports
/// them.
#[test]
fn lowered_programs_keep_their_packets() {
    let keeps = |placed: &Placed, of: &str| {
        let plan = Plan::new(placed, options()).unwrap_or_else(|error| panic!("{of}: {}", chain(&error)));
        assert!(plan.options.packets, "{of}");
    };
    for rows in [1, 2, 3, 8] {
        for spec in [tiny(), normed(tiny())] {
            let of = format!("{rows} rows, norms of heads {}", spec.qk_norm);
            keeps(&placed(&spec, rows, 5), &of);
            keeps(&shared(&spec, rows, 2, 3, false), &format!("{of}, two devices"));
        }
    }
}

/// Moves readers and writers to other pools and buffers, drops and adds waits; `None` where the
/// validator refuses it.
fn mutant(rng: &mut Rng) -> Option<Placed> {
    let shape = Shape {
        rows: rng.within(1, 2),
        sms: rng.within(2, 6),
        splits: rng.within(1, 2),
        kv: *rng.pick(&[DType::BF16, DType::F8E4M3])?,
    };
    let mut program = program(shape);
    for _ in 0..rng.within(1, 3) {
        mutate(&mut program, rng);
    }
    Placed::new(program).ok()
}

fn mutate(program: &mut Program, rng: &mut Rng) {
    let task = TaskId::from(rng.below(program.tasks.len()));
    let mut op = program.tasks[task.index()].op.clone();
    // A label without the head, tile or split: all tasks of a level move together most of the time.
    let label = |label: &str| label.split(['[', 'h']).next().unwrap_or_default().to_owned();
    let level = label(&program.tasks[task.index()].label);
    let together = rng.chance(50);
    let like = |program: &Program, old: BufferId, rng: &mut Rng| {
        let of = &program.buffers[old.index()];
        let is_like = |b: &&tilewright_megakernel::program::Buffer| {
            (b.kind, b.dtype, &b.shape) == (of.kind, of.dtype, &of.shape) && b.kind != BufferKind::Weight
        };
        let all: Vec<BufferId> = program.buffers.iter().filter(is_like).map(|b| b.id).collect();
        rng.pick(&all).copied().unwrap_or(old)
    };
    let choice = rng.below(3);
    let Some(old) = operand(&mut op, choice).copied() else {
        let task = &mut program.tasks[task.index()];
        match rng.below(2) {
            0 => drop(task.waits.pop()),
            _ => {
                let counter = rng.below(program.counters.len()) as u32;
                let counter = tilewright_megakernel::program::CounterId(counter);
                if task.waits.iter().all(|wait| wait.counter != counter) {
                    task.waits.push(Wait { counter, threshold: 1 });
                }
            }
        }
        return;
    };
    let new = like(program, old, rng);
    for at in 0..program.tasks.len() {
        let id = TaskId::from(at);
        if id == task || (together && label(&program.tasks[at].label) == level) {
            let mut op = program.tasks[at].op.clone();
            if let Some(place) = operand(&mut op, choice).filter(|place| **place == old) {
                *place = new;
                if op.footprint(&Operands::new(&program.buffers)).is_ok() {
                    replace(program, id, op);
                }
            }
        }
    }
}

/// An operand that a mutation moves.
fn operand(op: &mut Op, choice: usize) -> Option<&mut BufferId> {
    if op.is::<Attention>() {
        let attention = op.get_mut::<Attention>()?;
        return Some(if choice == 0 { &mut attention.v_pool } else { &mut attention.k_pool });
    }
    if op.is::<Qkv>() {
        let qkv = op.get_mut::<Qkv>()?;
        return match (&mut qkv.k, choice) {
            (KeyOutput::RopeAppend { pool, .. }, 0) => Some(pool),
            _ => Some(&mut qkv.v_pool),
        };
    }
    let linear = op.get_mut::<Linear>()?;
    match (&mut linear.output, &mut linear.input, choice) {
        (LinearOutput::Add { out, .. }, _, 0) => Some(out),
        (LinearOutput::Add { residual, .. }, _, 1) => Some(residual),
        (_, LinearInput::RmsNorm { x, .. } | LinearInput::Plain { x }, _) => Some(x),
        _ => None,
    }
}

/// Accepted by the validator and by the loader: no race, whatever the order of blocks.
#[test]
fn programs_with_moved_writers_that_load_have_no_race() {
    let is_long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let (first, count) = if is_long { (1000, 3_000) } else { (0, 8) };
    let mut valid = 0;
    let mut loaded = 0;
    let mut ordered = 0;
    for seed in first..first + count {
        let Some(placed) = mutant(&mut Rng::new(seed)) else { continue };
        valid += 1;
        let Ok(plan) = Plan::new(&placed, options()) else { continue };
        ordered += usize::from(!plan.options.packets);
        loaded += usize::from(runs_without_a_race(&placed, seed, &format!("program {seed}")));
    }
    println!("{valid} of {count} programs are valid, {loaded} load, {ordered} of them without packets");
    assert!(loaded * 8 >= count as usize, "{valid} valid, {loaded} loaded, {ordered} without packets");
}
