//! Steps that are queued on a stream are those of launches, and what fails in one is reported later.

use tilewright_megakernel::lower::{LOGITS, PAGE_TABLE, POSITION, TOKEN};
use tilewright_megakernel::ops::Qkv;
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions};

use super::lab::{Cells, machine, options, tiny};

const SMS: usize = 3;
const ROWS: usize = 2;

fn queued(seed: u64) -> DeviceMachine {
    machine(&tiny(), ROWS, SMS, seed, DeviceOptions { queued: true, polls: 1 << 13, ..options() })
}

/// Queues a step at a position, and waits for its stream.
fn queue(machine: &DeviceMachine, position: i32) {
    let stream = machine.device().stream().unwrap();
    let cells = Cells::at(ROWS, position);
    let view = cells.view();
    for (name, values) in [(TOKEN, view.tokens), (POSITION, view.positions), (PAGE_TABLE, view.page_table)] {
        stream.upload(values, &machine.memory(name).unwrap().0.cast().unwrap()).unwrap();
    }
    machine.queue(&stream).unwrap();
    // The simulator reports a launch that ended early here, as `check` does.
    let _ = stream.wait();
}

#[test]
fn queued_steps_are_those_of_launches() {
    for seed in [3, 1003] {
        let mut launched = machine(&tiny(), ROWS, SMS, seed, options());
        let mut machine = queued(seed);
        for position in 0..6 {
            launched.step(&Cells::at(ROWS, position).view()).unwrap();
            // Both kinds count the steps of each other.
            if position % 3 == 2 {
                machine.step(&Cells::at(ROWS, position).view()).unwrap();
            } else {
                queue(&machine, position);
                machine.check().unwrap();
            }
            assert_eq!(machine.f32(LOGITS).unwrap(), launched.f32(LOGITS).unwrap(), "position {position}");
        }
    }
}

#[test]
fn what_fails_in_a_queued_step_is_reported_and_the_next_one_runs() {
    let mut machine = queued(5);
    queue(&machine, 0);
    let right = machine.f32(LOGITS).unwrap();
    let task = machine.program().tasks.iter().find(|task| task.op.is::<Qkv>()).expect("the program has one").id;
    assert!(machine.inject(DeviceFault::Silent { task }).unwrap());
    queue(&machine, 0);
    let error = machine.check().unwrap_err();
    assert!(matches!(&error, LaunchError::Stuck { name, .. } if name.contains("qkv")), "{error}");
    machine.mend().unwrap();
    machine.check().unwrap();
    queue(&machine, 0);
    machine.check().unwrap();
    assert_eq!(machine.f32(LOGITS).unwrap(), right);
}

#[test]
fn a_machine_that_is_told_its_steps_takes_none_from_a_queue() {
    let machine = machine(&tiny(), ROWS, SMS, 1, options());
    let error = machine.queue(&machine.device().stream().unwrap()).unwrap_err();
    assert!(matches!(error, LaunchError::NotQueued), "{error}");
}
