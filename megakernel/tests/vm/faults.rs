//! Every fault is an error that names it, and no worker hangs.

use std::time::{Duration, Instant};

use tilewright_layout::DType;
use tilewright_megakernel::ops::{Argmax, Copy};
use tilewright_megakernel::program::{Op, Region, Span, TaskId};
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::reference::{Fault, KvState, Machine, StepError, TaskFault};

use super::lab::{Lab, Random, Table, random_queues};

/// `count` copies in a chain, then one to the output.
fn chain(count: usize) -> Lab {
    let mut lab = Lab::new(5);
    let (mut from, _) = lab.input("x", DType::F32, &[4]);
    for at in 0..=count {
        let name = format!("y{at}");
        let to =
            if at == count { lab.output("out", DType::F32, &[4]) } else { lab.activation(&name, DType::F32, &[4]) };
        lab.task(Op::from(Copy { src: Region::whole(from, &[4]), dst: Region::whole(to, &[4]) }));
        from = to;
    }
    lab
}

/// A step that is over, well or badly, within seconds.
fn step(machine: &mut Machine, kv: &mut KvState) -> Option<StepError> {
    let start = Instant::now();
    let error = machine.step(kv, &StepCells::default()).err();
    assert!(start.elapsed() < Duration::from_secs(20), "a worker hung");
    error
}

#[test]
fn every_lost_signal_is_a_deadlock_that_names_the_stuck_tasks() {
    for workers in [1, 2, 3, 5, 8] {
        let mut lab = chain(9);
        let mut machine = lab.machine(workers);
        let mut kv = lab.kv();
        for task in 0..9 {
            let counter = lab.program.tasks[task].signals[0];
            machine.inject(Fault::LoseSignal { task: TaskId::from(task), counter });
            let Some(StepError::Deadlock(deadlock)) = step(&mut machine, &mut kv) else { panic!("no deadlock") };
            assert_eq!((deadlock.done, deadlock.tasks), (task + 1, 10));
            let stuck = deadlock.stuck.iter().find(|s| s.task == TaskId::from(task + 1)).expect("the next task");
            assert_eq!((stuck.counter, stuck.wanted, stuck.seen), (counter, 1, 0));
            let queue = &machine.program().queues()[stuck.sm.index()];
            assert!(queue.contains(&stuck.task));
            assert_eq!(stuck.label, format!("copy[{}]", task + 1));
            machine.clear_faults();
            assert!(step(&mut machine, &mut kv).is_none(), "the machine goes on");
        }
    }
}

#[test]
fn the_text_of_a_deadlock_says_who_waits_for_what() {
    let mut lab = chain(1);
    let mut machine = lab.machine(2);
    let mut kv = lab.kv();
    let counter = lab.program.tasks[0].signals[0];
    machine.inject(Fault::LoseSignal { task: TaskId(0), counter });
    let text = step(&mut machine, &mut kv).unwrap().to_string();
    assert!(text.starts_with("deadlock after 1 of 2 tasks\n  t1 `copy[1]` on sm"), "{text}");
    assert!(text.ends_with("waits for c0 `done` to reach 1; it is 0"), "{text}");
}

/// A row without a finite largest logit has no likeliest token: neither the greedy choice nor a
/// drawn one makes one up.
#[test]
fn a_row_whose_logits_are_all_infinite_is_refused() {
    let lowest = f32::NEG_INFINITY;
    let highest = f32::INFINITY;
    for (values, found) in [
        ([lowest, lowest], lowest),
        ([f32::NAN, lowest], lowest),
        ([f32::NAN, f32::NAN], lowest),
        ([highest, 0.0], highest),
        ([lowest, highest], highest),
    ] {
        let mut lab = Lab::new(1);
        let value = lab.input_of("value", DType::F32, &[1, 2], &values);
        let index = lab.input_i32_of("index", &[1, 2], &[0, 7]);
        let out = lab.output("next", DType::I32, &[1]);
        lab.task(Op::from(Argmax { value, index, out, rows: Span::all(1) }));
        let mut machine = lab.machine(1);
        let mut kv = lab.kv();
        match step(&mut machine, &mut kv) {
            Some(StepError::Task { source: TaskFault::NoChoice { row: 0, found: seen }, .. }) => {
                assert_eq!(seen, found)
            }
            other => panic!("{values:?}: {other:?}"),
        }
    }
}

#[test]
fn the_last_signal_may_be_lost() {
    let mut lab = chain(2);
    let mut machine = lab.machine(2);
    let mut kv = lab.kv();
    machine.inject(Fault::LoseSignal { task: TaskId(2), counter: lab.program.tasks[2].signals[0] });
    assert!(step(&mut machine, &mut kv).is_none());
}

#[test]
fn a_task_that_fails_or_panics_stops_all_workers() {
    for workers in [1, 2, 4, 7] {
        let mut lab = chain(6);
        let mut machine = lab.machine(workers);
        let mut kv = lab.kv();
        machine.inject(Fault::FailTask { task: TaskId(3) });
        match step(&mut machine, &mut kv) {
            Some(StepError::Task { task: TaskId(3), label, source: TaskFault::Injected, .. }) => {
                assert_eq!(label, "copy[3]");
            }
            other => panic!("{other:?}"),
        }
        machine.clear_faults();
        machine.inject(Fault::PanicTask { task: TaskId(2) });
        match step(&mut machine, &mut kv) {
            Some(StepError::Panicked { task: TaskId(2), message, .. }) => assert_eq!(message, "injected panic"),
            other => panic!("{other:?}"),
        }
        machine.clear_faults();
        assert!(step(&mut machine, &mut kv).is_none());
    }
}

/// Many more queues than workers and the reverse, many times: every step ends, with the right
/// values.
#[test]
fn steps_end_for_any_number_of_queues_and_workers() {
    for (sms, workers) in [(1, 1), (1, 4), (3, 2), (2, 5), (17, 3), (40, 2)] {
        let mut lab = chain(30);
        lab.program.target = tilewright_codegen::target::Target::host(sms);
        let mut program = lab.program.clone();
        program.queues = Some(random_queues(&program, &mut Random(sms as u64)));
        let mut machine = Machine::new(Placed::new(program).unwrap(), &Table::default(), workers).unwrap();
        let mut kv = KvState::new(machine.program()).unwrap();
        for round in 0..30 {
            let values = [round as f32, 1.0, -2.0, 0.5];
            machine.set_input("x", &values).unwrap();
            machine.poison();
            let output = machine.step(&mut kv, &StepCells::default()).unwrap();
            assert_eq!(output.f32("out").unwrap(), values);
        }
    }
}
