//! Every way in which a launch can fail is an error that says where, and the machine runs the next
//! launch.

use tilewright_codegen::sample::Sample;
use tilewright_megakernel::ops::{Attention, Linear, LinearOutput, Qkv};
use tilewright_megakernel::program::{Op, TaskId};
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions};

use super::lab::{Cells, chain, least, load, machine, options, splitting, tiny};

const SMS: usize = 3;
const STEPS: usize = 3;

/// A machine that does not wait long.
fn impatient(rows: usize, seed: u64) -> DeviceMachine {
    machine(&tiny(), rows, SMS, seed, DeviceOptions { polls: 1 << 13, ..options() })
}

fn run(machine: &mut DeviceMachine) -> Result<Vec<u32>, LaunchError> {
    machine.run(&Cells::at(machine.plan().rows as usize, 0).view(), STEPS)
}

/// The first task that does this, in the order of the program.
fn task(machine: &DeviceMachine, what: impl Fn(&Op) -> bool) -> TaskId {
    machine.program().tasks.iter().find(|task| what(&task.op)).expect("the program has one").id
}

/// Injects, runs into the fault, mends, and runs as if nothing had happened.
fn suffers(fault: impl Fn(&DeviceMachine) -> DeviceFault, expect: impl Fn(&LaunchError) -> bool) {
    suffers_with(1, fault, expect);
}

/// A machine with `rows` rows.
fn suffers_with(rows: usize, fault: impl Fn(&DeviceMachine) -> DeviceFault, expect: impl Fn(&LaunchError) -> bool) {
    for seed in Sample::one_of(2).of(&[0, 1000]) {
        let mut machine = impatient(rows, seed);
        let right = run(&mut machine).unwrap();
        let fault = fault(&machine);
        assert!(machine.inject(fault).unwrap(), "{fault:?}");
        let error = run(&mut machine).unwrap_err();
        println!("{}", chain(&error));
        assert!(expect(&error), "{fault:?}: {}", chain(&error));
        machine.mend().unwrap();
        assert_eq!(run(&mut machine).unwrap(), right, "after {fault:?}");
    }
}

/// Whether an op's signals are waited for in a program of one row.
fn logits(op: &Op) -> bool {
    op.get::<Linear>().is_some_and(|op| matches!(op.output, LinearOutput::Logits { .. }))
}

#[test]
fn an_unknown_opcode_is_named() {
    let gate = |op: &Op| op.is::<Attention>();
    suffers(
        |machine| DeviceFault::Opcode { task: task(machine, gate), opcode: 77 },
        |error| matches!(error, LaunchError::Opcode { opcode: 77, label, .. } if label.contains("attention")),
    );
}

#[test]
fn a_counter_that_is_never_signalled_is_named() {
    // Two rows release keys and values, which attention waits for; of one it would look for
    // packets.
    suffers_with(
        2,
        |machine| DeviceFault::Silent { task: task(machine, |op| op.is::<Qkv>()) },
        |error| {
            let LaunchError::Stuck { label, name, wanted, seen, .. } = error else { return false };
            label.contains("attention") && name.contains("qkv") && seen < wanted
        },
    );
}

#[test]
fn a_block_that_ends_its_step_early_leaves_the_others_waiting() {
    // For one of its signals, for its packets, or, where the next step should begin, for the blocks
    // that wait for one.
    suffers(
        |_| DeviceFault::Quits { block: 1, after: 1 },
        |error| match error {
            LaunchError::Stuck { block, seen, wanted, .. } => *block != 1 && seen < wanted,
            LaunchError::Blocks { seen, wanted, .. } => seen < wanted,
            LaunchError::Parts { block, .. } => *block != 1,
            _ => false,
        },
    );
}

#[test]
fn tables_that_something_wrote_over_are_found_before_they_are_used() {
    for (block, word) in [(0, 0), (2, 1), (1, 9)] {
        suffers(
            |_| DeviceFault::Corrupt { block, word },
            |error| matches!(error, LaunchError::Tables { block: found, .. } if *found as usize == block),
        );
    }
}

#[test]
fn a_place_that_the_program_does_not_have_takes_no_fault() {
    let mut machine = impatient(1, 0);
    for fault in [
        DeviceFault::Silent { task: TaskId::from(1_000_000) },
        DeviceFault::Quits { block: SMS, after: 0 },
        DeviceFault::Corrupt { block: SMS, word: 0 },
    ] {
        assert!(!machine.inject(fault).unwrap(), "{fault:?}");
    }
    run(&mut machine).unwrap();
}

#[test]
fn an_abort_ends_the_launch_and_the_next_one_runs() {
    for seed in [0, 1000] {
        let mut machine = impatient(1, seed);
        let right = run(&mut machine).unwrap();
        let handle = machine.abort_handle();
        handle.abort();
        let error = run(&mut machine).unwrap_err();
        assert!(matches!(error, LaunchError::Aborted { steps } if (steps as usize) < STEPS), "{}", chain(&error));
        assert!(!handle.is_set(), "the error takes the abort back");
        assert_eq!(run(&mut machine).unwrap(), right);
    }
}

/// Under some of these seeds block 0 comes to the end of a step that the other has left: it must
/// feed nothing back, which would race with those who write the tokens.
#[test]
fn an_abort_feeds_nothing_back_of_a_step_that_did_not_end() {
    let options =
        DeviceOptions { warps: 2, stage_bytes: 1024, ..options() }.with_thresholds(|limits| limits.sums_bytes = 256);
    for seed in 0..40 {
        let mut machine = load(splitting(&least(), 2, 2, 2), &least(), seed, options);
        machine.abort_handle().abort();
        let error = machine.run(&Cells::at(2, 0).view(), STEPS).unwrap_err();
        assert!(matches!(error, LaunchError::Aborted { .. }), "seed {seed}: {}", chain(&error));
    }
}

#[test]
fn an_abort_wakes_blocks_that_wait_for_what_never_comes() {
    // No poll times out here: only the host's word ends the launch.
    let mut machine = machine(&tiny(), 1, SMS, 0, DeviceOptions { polls: 1 << 30, ..options() });
    let right = run(&mut machine).unwrap();
    let silent = task(&machine, logits);
    assert!(machine.inject(DeviceFault::Silent { task: silent }).unwrap());
    machine.abort_handle().abort();
    let error = run(&mut machine).unwrap_err();
    assert!(matches!(error, LaunchError::Aborted { steps: 0 }), "{}", chain(&error));
    machine.mend().unwrap();
    assert_eq!(run(&mut machine).unwrap(), right);
}

#[test]
fn steps_and_cells_that_do_not_fit_are_refused_before_anything_runs() {
    let mut machine = impatient(1, 0);
    let cells = Cells::at(1, 0);
    assert!(matches!(machine.run(&cells.view(), 0), Err(LaunchError::Steps { found: 0, .. })));
    // 64 tokens of context: the 65th has no page.
    assert!(matches!(machine.run(&cells.view(), 65), Err(LaunchError::Cells(_))));
    let wrong = Cells { tokens: vec![200], ..Cells::at(1, 0) };
    assert!(matches!(machine.step(&wrong.view()), Err(LaunchError::Cells(_))));
    assert!(matches!(machine.times(), Err(LaunchError::NoTimeline)));
    run(&mut machine).unwrap();
}
