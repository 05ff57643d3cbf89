//! Splits of attention, merged by the block that comes last: any number of them, of tokens, and of rows.

use half::bf16;
use tilewright_codegen::target::Target;
use tilewright_codegen::trial::Draw;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::program::{BufferId, BufferKind, Combine, Op, Program, Region, Span};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions, Plan, Unsupported};
use tilewright_megakernel::vm::reference::{KvState, Machine, StepCells};

use super::lab::{chain, device, least, options, relative, tiny, weights};

/// Tokens of a sequence, and pages of 16.
const CONTEXT: usize = 256;
const PAGES: usize = CONTEXT / 16;

fn lowered(spec: &ModelSpec, rows: usize, splits: usize, sms: usize) -> Program {
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let options = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, ..LowerOptions::for_context(CONTEXT) };
    lower(spec, &|_| DType::BF16, target, &LowerOptions { splits: Some(splits), ..options }).unwrap()
}

fn placed(spec: &ModelSpec, rows: usize, splits: usize, sms: usize) -> Placed {
    schedule(lowered(spec, rows, splits, sms), CONTEXT).unwrap()
}

/// Steps of a device and of the reference machine from the same history.
struct Both {
    device: DeviceMachine,
    reference: Machine,
    kv: KvState,
    rows: usize,
}

impl Both {
    fn new(spec: &ModelSpec, [rows, splits, sms]: [usize; 3], draw: &mut Draw, options: DeviceOptions) -> Both {
        let (program, weights) = (placed(spec, rows, splits, sms), weights(spec));
        let reference = Machine::new(program.clone(), &weights, 1).unwrap();
        let mut kv = KvState::new(reference.program()).unwrap();
        let device = device(draw.between(0..=1 << 20).into(), sms);
        let mut device = DeviceMachine::load(program, &weights, &device, options, &mut |_, _| ()).unwrap();
        for pool in reference.program().buffers.iter().filter(|buffer| buffer.kind == BufferKind::KvPool) {
            let values = draw.floats(pool.elements().unwrap(), bf16::from_f64);
            device.set_pool(&pool.name, &values).unwrap();
            kv.write(&pool.name, 0, &values.iter().map(|value| value.to_f32()).collect::<Vec<_>>()).unwrap();
        }
        Both { device, reference, kv, rows }
    }

    /// A step at these positions, which must agree.
    fn step(&mut self, positions: &[i32], most: f64) {
        let tokens: Vec<i32> = (0..self.rows as i32).map(|row| row * 5 + positions[0].rem_euclid(7)).collect();
        let page_table: Vec<i32> = (0..(self.rows * PAGES) as i32).rev().collect();
        let cells = StepCells { tokens: &tokens, positions, page_table: &page_table };
        self.device.step(&cells).unwrap_or_else(|error| panic!("{positions:?}: {}", chain(&error)));
        let output = self.reference.step(&mut self.kv, &cells).unwrap();
        for row in (0..self.rows).filter(|&row| positions[row] >= 0) {
            let (found, expected) = (self.device.f32_row(LOGITS, row).unwrap(), output.f32_row(LOGITS, row).unwrap());
            let error = relative(&found, &expected);
            assert!(error < most, "{positions:?}, row {row}: {error}");
        }
    }
}

/// A position: idle, the first token, within a split, or anywhere.
fn position(draw: &mut Draw) -> i32 {
    let most = [0, 15, 16, 47, CONTEXT as u32 - 1][draw.between(0..=4) as usize];
    if draw.between(0..=4) == 0 { -1 } else { draw.between(0..=most) as i32 }
}

#[test]
fn any_number_of_splits_agrees_with_the_reference() {
    for (seed, splits) in [1, 2, 3, 5, 8, 16, 19, 33].into_iter().enumerate() {
        let mut draw = Draw::new(seed as u64);
        // One or two rows are tagged, three and four are released in f32, more in bf16.
        for rows in [1, 1 + seed % 2, 3, 5] {
            let split_tokens = [16, 48][draw.between(0..=1) as usize];
            let held_rows = [1, 3, 20][draw.between(0..=2) as usize];
            let options = DeviceOptions { split_tokens, held_rows, ..options() };
            let mut both = Both::new(&least(), [rows, splits, 3], &mut draw, options);
            for _ in 0..3 {
                let mut positions: Vec<i32> = (0..rows).map(|_| position(&mut draw)).collect();
                positions[draw.between(0..=rows as u32 - 1) as usize] = draw.between(100..=255) as i32;
                both.step(&positions, if rows <= 4 { 2e-3 } else { 2e-2 });
            }
        }
    }
}

#[test]
fn layers_and_steps_merge_in_one_place() {
    for seed in 0..4 {
        let mut draw = Draw::new(seed);
        let tags = seed % 2 == 0;
        let mut both = Both::new(&tiny(), [2, 4, 8], &mut draw, DeviceOptions { tags, ..options() });
        for _ in 0..2 {
            let positions = [0, 1].map(|_| draw.between(30..=200) as i32);
            both.step(&positions, 2e-3);
        }
    }
}

/// Counts begin anew with everything else that a failed launch left.
#[test]
fn a_launch_that_fails_between_two_arrivals_leaves_no_count() {
    for seed in 0..4 {
        let mut both = Both::new(&least(), [1, 8, 3], &mut Draw::new(seed), options());
        both.step(&[100], 2e-3);
        // Seven splits have a page each. The others of its block come before this one.
        let last = |op: &Op| matches!(op, Op::Attention(op) if op.split == 6);
        let task = both.reference.program().tasks.iter().find(|task| last(&task.op)).expect("it attends").id;
        assert!(both.device.inject(DeviceFault::Opcode { task, opcode: 99 }).unwrap());
        let page_table: Vec<i32> = (0..PAGES as i32).rev().collect();
        let cells = StepCells { tokens: &[3], positions: &[101], page_table: &page_table };
        assert!(both.device.step(&cells).is_err());
        both.device.mend().unwrap();
        for position in [101, 102] {
            both.step(&[position], 2e-3);
        }
    }
}

/// Why a program is not planned.
fn refusal(change: impl FnOnce(&mut Program)) -> Unsupported {
    let mut program = lowered(&least(), 1, 2, 2);
    change(&mut program);
    Plan::new(&schedule(program, CONTEXT).expect("the program is placed"), options()).expect_err("it is refused")
}

/// The buffers of partial results.
fn partial(program: &Program) -> [BufferId; 2] {
    let of = |op: &Op| if let Op::Attention(op) = op { Some([op.acc, op.stats]) } else { None };
    program.tasks.iter().find_map(|task| of(&task.op)).expect("it attends")
}

#[test]
fn programs_that_want_the_partial_results_are_refused() {
    let output = refusal(|program| {
        let [acc, _] = partial(program);
        program.buffers[acc.index()].kind = BufferKind::Output;
    });
    assert!(output.to_string().contains("are no activations of attention, and a device merges them"), "{output}");
}

#[test]
fn partial_results_that_another_op_reads_are_refused() {
    let read = refusal(|program| {
        let [acc, stats] = partial(program);
        let o = program.tasks.iter().find(|task| task.reads.iter().any(|region| region.buffer == acc));
        let mut combine = o.expect("somebody reads them").clone();
        let shape = program.buffers[acc.index()].shape.clone();
        let out = program.add_buffer("merged", BufferKind::Output, DType::F32, &[shape[0], shape[1], shape[3]]);
        combine.reads.retain(|region| [acc, stats].contains(&region.buffer));
        combine.writes = vec![Region::whole(out, &[shape[0], shape[1], shape[3]])];
        let [rows, heads] = [shape[0], shape[1]].map(Span::all);
        combine.op = Op::Combine(Combine { acc, stats, out, rows, heads });
        (combine.id, combine.label, combine.signals) = (program.tasks.len().into(), "merge".into(), Vec::new());
        program.tasks.push(combine);
    });
    assert!(read.to_string().contains("are read or written as they are"), "{read}");
}

#[test]
fn splits_of_different_places_are_refused() {
    let places = refusal(|program| {
        let shape = |program: &Program, id: BufferId| program.buffers[id.index()].shape.clone();
        let first = program.tasks.iter_mut().find(|task| matches!(task.op, Op::Attention(_))).expect("it attends");
        let Op::Attention(op) = &first.op else { unreachable!("it was looked for") };
        let (id, old) = (first.id, op.at.position);
        let new = program.add_buffer("elsewhere", BufferKind::Cell, DType::I32, &shape(program, old));
        let task = &mut program.tasks[id.index()];
        task.reads.iter_mut().filter(|region| region.buffer == old).for_each(|region| region.buffer = new);
        if let Op::Attention(op) = &mut task.op {
            op.at.position = new;
        }
    });
    assert!(places.to_string().contains("belong to tokens of several places"), "{places}");
}
