//! Laws of the scheduler, and the balance of known models.

use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::ops::Copy;
use tilewright_megakernel::program::{BufferKind, CounterId, Op, Program, Region, SmId, Span, TaskId, Wait};
use tilewright_megakernel::schedule::{Balance, Levels, ScheduleError, cost, schedule};
use tilewright_megakernel::validate::Placed;

fn known(name: &str, rows: usize, context: usize) -> Program {
    let spec = ModelSpec::named(name).expect("a known model");
    let target = Target::named("h100").expect("a known target");
    let options = LowerOptions { rows, kv: DType::BF16, ..LowerOptions::for_context(context) };
    lower(&spec, &|_| DType::BF16, target, &options).expect("lowers")
}

#[test]
fn balance_of_known_models() {
    let table = |name, rows| {
        let placed = schedule(known(name, rows, 4096), 1024).expect("schedules");
        Balance::of(&placed, 1024)
    };
    for (name, rows) in [("llama-3.2-1b", 1), ("llama-3.1-8b", 1), ("llama-3.1-70b", 1), ("llama-3.2-1b", 8)] {
        let balance = table(name, rows);
        insta::assert_snapshot!(format!("balance-{name}-rows{rows}"), balance);
        let limit = if name == "llama-3.1-8b" { 1.03 } else { 1.035 };
        assert!(balance.by_level() <= limit, "{name}: {:.4}", balance.by_level());
        assert!(balance.streamed() <= 1.01, "{name}: {:.4}", balance.streamed());
    }
}

#[test]
fn the_step_reads_every_weight_and_every_cached_token_once() {
    let spec = ModelSpec::named("llama-3.2-1b").expect("known");
    let context = 1000;
    let program = known("llama-3.2-1b", 1, 4096);
    let read: u64 = program.tasks.iter().map(|t| cost::bytes(&program, t, context).device).sum();
    let matrices: usize = spec
        .model()
        .unwrap()
        .tensors()
        .iter()
        .filter(|t| t.shape.len() == 2)
        .map(|t| t.shape.iter().product::<usize>())
        .sum();
    let kv = 2 * spec.layers * spec.kv_heads * spec.head_dim * context;
    let expected = 2 * (matrices + kv) as u64;
    // Norms and the embedded row are read by many tasks, but weigh little.
    assert!(read >= expected && (read as f64) < 1.01 * expected as f64, "{read} against {expected}");
}

/// A fan of `width` independent copies into the tiles of one buffer, then one copy of the whole.
fn fan(sizes: &[usize], sms: usize) -> Program {
    let mut program = Program::new("fan", Target::host(sms));
    let total = sizes.iter().sum();
    let [x, y, z] = [("x", BufferKind::Input), ("y", BufferKind::Activation), ("z", BufferKind::Output)]
        .map(|(name, kind)| program.add_buffer(name, kind, DType::F32, &[total]));
    let done = program.add_counter("tiles");
    let mut at = 0;
    for (i, size) in sizes.iter().enumerate() {
        let tile = |buffer| Region::new(buffer, &[Span::new(at, at + size)]);
        let op = Op::from(Copy { src: tile(x), dst: tile(y) });
        program.add_task(format!("tile[{i}]"), op, vec![], vec![done]).expect("fits");
        at += size;
    }
    let whole = |buffer| Region::new(buffer, &[Span::all(total)]);
    let waits = vec![Wait { counter: CounterId(0), threshold: sizes.len() as u32 }];
    program.add_task("whole", Op::from(Copy { src: whole(y), dst: whole(z) }), waits, vec![]).expect("fits");
    program
}

proptest! {
    #[test]
    fn a_level_is_at_most_one_task_longer_than_ideal(
        sizes in prop::collection::vec(1usize..100, 1..60), sms in 1usize..12,
    ) {
        let placed = schedule(fan(&sizes, sms), 1).expect("schedules");
        let load = |queue: &[TaskId]| queue.iter().filter(|t| t.index() < sizes.len()).map(|t| sizes[t.index()]).sum::<usize>();
        let longest = placed.queues().iter().map(|q| load(q)).max().unwrap_or(0);
        let total = sizes.iter().sum::<usize>();
        let dearest = *sizes.iter().max().expect("not empty");
        prop_assert!(longest * sms <= total + dearest * sms);
    }

    #[test]
    fn pins_are_honoured_and_the_rest_is_balanced_around_them(
        sizes in prop::collection::vec(1usize..100, 1..40), pins in prop::collection::vec(0u32..5, 0..40),
    ) {
        let mut program = fan(&sizes, 5);
        for (task, sm) in program.tasks.iter_mut().zip(&pins) {
            task.sm = Some(SmId(*sm));
        }
        let placed = schedule(program, 1).expect("schedules");
        for (sm, queue) in placed.queues().iter().enumerate() {
            for task in queue {
                let pin = placed.tasks[task.index()].sm;
                prop_assert!(pin.is_none_or(|pin| pin.index() == sm));
            }
        }
        let free = placed.tasks.len() - pins.len().min(placed.tasks.len());
        let on_zero = placed.queues()[0].iter().filter(|t| placed.tasks[t.index()].sm.is_none()).count();
        prop_assert!(free < 15 || on_zero < free, "unpinned tasks are spread, not heaped on SM 0");
    }

    #[test]
    fn levels_come_after_what_they_wait_for(sizes in prop::collection::vec(1usize..9, 1..20)) {
        let program = fan(&sizes, 2);
        let levels = Levels::of(&program, &vec![1; program.tasks.len()]);
        prop_assert_eq!(levels.tasks.len(), 2);
        prop_assert_eq!(levels.tasks[1].as_slice(), &[TaskId::from(sizes.len())][..]);
        prop_assert!(levels.tail[..sizes.len()].iter().all(|&t| t == 2));
    }
}

#[test]
fn a_pin_that_the_target_lacks_is_refused() {
    let mut program = fan(&[4, 4], 2);
    program.tasks[1].sm = Some(SmId(2));
    let error = schedule(program, 1).expect_err("refused");
    insta::assert_snapshot!(error, @"task t1 (`tile[1]`) is pinned to sm2, the target has 2 SMs");
}

#[test]
fn a_placed_program_is_not_placed_again_and_a_partial_placement_is_invalid() {
    let placed = schedule(fan(&[4, 4], 2), 1).expect("schedules");
    let mut program = placed.into_program();
    assert!(matches!(schedule(program.clone(), 1), Err(ScheduleError::Placed)));
    let queues = program.queues.as_mut().expect("placed");
    let left_out = queues.iter_mut().find_map(|q| q.pop()).expect("some task");
    let rejected = Placed::new(program).expect_err("a task is in no queue");
    assert!(rejected.to_string().contains(&format!("{left_out}")), "{rejected}");
}

/// A caller prints one line with the first violation, its task and region, and the number of
/// violations.
#[test]
fn a_refused_program_is_one_line_with_task_region_and_count() {
    let mut program = fan(&[4, 4], 2);
    let task = program.tasks.iter_mut().find(|task| !task.writes.is_empty()).expect("a task that writes");
    let mut spans = task.writes[0].spans().to_vec();
    spans[0].hi += 1000;
    task.writes[0] = Region::new(task.writes[0].buffer, &spans);
    let label = task.label.clone();
    let region = task.writes[0];
    let error = schedule(program, 1).expect_err("a region outside its buffer");
    let line = error.to_string();
    assert!(line.starts_with("the program is not valid: task t"), "{line}");
    assert!(line.contains(&format!("`{label}`")) && line.contains(&region.to_string()), "{line}");
    assert!(line.ends_with(" errors)") && line.contains("(first of "), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
}
