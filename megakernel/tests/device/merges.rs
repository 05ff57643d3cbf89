//! Splits of attention, merged by the block that comes last: any number of them, of tokens, and of
//! rows.

use tilewright_codegen::sample::Sample;
use tilewright_codegen::trial::Draw;
use tilewright_codegen::{ptx, verify::verify};
use tilewright_layout::DType;
use tilewright_megakernel::ops::Attention;
use tilewright_megakernel::program::{BufferId, BufferKind, Op, Program, Region, Span};
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::testing::{Combine, register_plain_ops};
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceOptions, Plan, record};
use tilewright_megakernel::vm::{LaunchError, Unsupported};

use super::both::{Both, CONTEXT, PAGES, lowered};
use super::lab::{Cells, bits, least, load, normed, options, splitting, tiny};

/// A position: idle, the first token, within a split, or anywhere.
fn position(draw: &mut Draw) -> i32 {
    let most = [0, 15, 16, 47, CONTEXT as u32 - 1][draw.between(0..=4) as usize];
    if draw.between(0..=4) == 0 { -1 } else { draw.between(0..=most) as i32 }
}

#[test]
fn any_number_of_splits_agrees_with_the_reference() {
    for (seed, splits) in [1, 2, 3, 5, 8, 16, 19, 33].into_iter().enumerate() {
        let mut draw = Draw::new(seed as u64);
        // One or two rows are packets, three are released in f32, five in bf16.
        for rows in [1 + seed % 2, [3, 5][seed / 2 % 2]] {
            let split_tokens = [16, 48][draw.between(0..=1) as usize];
            let activation_rows = [1, 3, 20][draw.between(0..=2) as usize];
            let single_tokens = [0, 32][draw.between(0..=1) as usize];
            let options = DeviceOptions { split_tokens, ..options() }.with_thresholds(|limits| {
                limits.single_tokens = single_tokens;
                limits.activation_rows = activation_rows;
            });
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
        let packets = seed % 2 == 0;
        let mut both = Both::new(&tiny(), [2, 4, 8], &mut draw, DeviceOptions { packets, ..options() });
        for _ in 0..2 {
            let positions = [0, 1].map(|_| draw.between(30..=200) as i32);
            both.step(&positions, 2e-3);
        }
    }
}

/// If no block has two splits of a level, the first split waits for the flagged words of the
/// others, and no bit changes; otherwise splits are counted.
#[test]
fn splits_may_wait_for_packets() {
    // The kernels of all cases are read; those of a half run.
    let sample = Sample::one_of(2);
    for (seed, (spec, rows, splits, sms, meets)) in (0..).zip([
        (least(), 1, 3, 8, true),
        (tiny(), 2, 4, 16, true),
        (tiny(), 2, 4, 7, false),
        (least(), 3, 2, 8, false),
        (normed(least()), 1, 2, 9, true),
    ]) {
        let run = sample.has(seed as usize);
        let with = |merge_packets, seed| {
            let options = DeviceOptions { merge_packets, ..options() };
            let mut machine = load(splitting(&spec, rows, sms, splits), &spec, seed, options);
            let counts = ptx::emit(&verify(record(machine.plan())).unwrap()).contains("atom.acq_rel.gpu.global.add");
            assert_eq!(counts, !merge_packets || !meets, "{rows} rows, {splits} splits on {sms} SMs");
            run.then(|| bits(&mut machine, rows))
        };
        assert!(with(true, seed) == with(false, seed + 20), "{rows} rows, {splits} splits on {sms} SMs");
    }
}

/// A split whose packets do not come is named by the first, which looks for them, and the next
/// launch is as if nothing had been.
#[test]
fn parts_that_do_not_come_are_an_error() {
    let program = splitting(&least(), 1, 8, 3);
    let part = |op: &Op| op.get::<Attention>().is_some_and(|op| op.split == 1);
    let task = program.tasks.iter().find(|task| part(&task.op)).expect("it attends").id;
    for skip_semaphores in [false, true] {
        let options = DeviceOptions { merge_packets: true, skip_semaphores, polls: 1 << 11, ..options() };
        let mut machine = load(program.clone(), &least(), 5, options);
        let right = machine.run(&Cells::at(1, 40).view(), 2).unwrap();
        machine.inject(DeviceFault::Stale { task }).unwrap();
        let error = machine.run(&Cells::at(1, 40).view(), 2).unwrap_err();
        // Who waits for who gave up may be the first to say so.
        assert!(
            matches!(error, LaunchError::Parts { .. } | LaunchError::Stuck { .. } | LaunchError::Blocks { .. }),
            "{error}"
        );
        machine.mend().unwrap();
        assert_eq!(machine.run(&Cells::at(1, 40).view(), 2).unwrap(), right);
    }
}

/// Counts begin anew with everything else that a failed launch left.
#[test]
fn a_launch_that_fails_between_two_arrivals_leaves_no_count() {
    for seed in 0..4 {
        let mut both = Both::new(&least(), [1, 8, 3], &mut Draw::new(seed), options());
        both.step(&[100], 2e-3);
        // Seven splits have a page each. The others of its block come before this one.
        let last = |op: &Op| op.get::<Attention>().is_some_and(|op| op.split == 6);
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
    let of = |op: &Op| op.get::<Attention>().map(|op| [op.acc, op.stats]);
    program.tasks.iter().find_map(|task| of(&task.op)).expect("it attends")
}

#[test]
fn programs_that_want_the_partial_results_are_refused() {
    let output = refusal(|program| {
        let [acc, _] = partial(program);
        program.buffers[acc.index()].kind = BufferKind::Output;
    });
    assert!(output.to_string().contains("are not activations of attention, and a device merges them"), "{output}");
}

#[test]
fn partial_results_that_another_op_reads_are_refused() {
    register_plain_ops().expect("no other op has the name of a plain one");
    let read = refusal(|program| {
        let [acc, stats] = partial(program);
        let o = program.tasks.iter().find(|task| task.reads.iter().any(|region| region.buffer == acc));
        let mut combine = o.expect("somebody reads them").clone();
        let shape = program.buffers[acc.index()].shape.clone();
        let out = program.add_buffer("merged", BufferKind::Output, DType::F32, &[shape[0], shape[1], shape[3]]);
        combine.reads.retain(|region| [acc, stats].contains(&region.buffer));
        combine.writes = vec![Region::whole(out, &[shape[0], shape[1], shape[3]])];
        let [rows, heads] = [shape[0], shape[1]].map(Span::all);
        combine.op = Op::from(Combine { acc, stats, out, rows, heads });
        (combine.id, combine.label, combine.signals) = (program.tasks.len().into(), "merge".into(), Vec::new());
        program.tasks.push(combine);
    });
    assert!(read.to_string().contains("are read or written as they are"), "{read}");
}

#[test]
fn splits_of_different_places_are_refused() {
    let places = refusal(|program| {
        let shape = |program: &Program, id: BufferId| program.buffers[id.index()].shape.clone();
        let first = program.tasks.iter_mut().find(|task| task.op.is::<Attention>()).expect("it attends");
        let Some(op) = first.op.get::<Attention>() else { unreachable!("it was looked for") };
        let id = first.id;
        let old = op.at.position;
        let new = program.add_buffer("elsewhere", BufferKind::Cell, DType::I32, &shape(program, old));
        let task = &mut program.tasks[id.index()];
        task.reads.iter_mut().filter(|region| region.buffer == old).for_each(|region| region.buffer = new);
        if let Some(op) = task.op.get_mut::<Attention>() {
            op.at.position = new;
        }
    });
    assert!(places.to_string().contains("belong to tokens of several places"), "{places}");
}
