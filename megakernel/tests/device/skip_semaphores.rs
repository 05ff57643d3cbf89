//! Tasks that poll for their activations without a semaphore: which ones, that it changes no bit,
//! and what they do if packets do not arrive.

use std::collections::BTreeSet;

use tilewright_codegen::sample::Sample;
use tilewright_megakernel::program::TaskId;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions, Plan, TaskRecord};

use super::devices::shared;
use super::lab::{Cells, bits, chain, load, machine, normed, options, placed, records, splitting, tiny};

/// The ops of the tasks that wait for signals, and of those that signal.
fn heard(placed: &Placed, options: DeviceOptions) -> [BTreeSet<&'static str>; 2] {
    let plan = Plan::new(placed, options).unwrap();
    let records = records(&plan);
    assert_eq!(records.len(), placed.tasks.len());
    let of = |has: fn(&TaskRecord) -> bool| {
        let records = records.iter().filter(|record| has(record));
        records.map(|record| placed.tasks[record.task as usize].op.name()).collect()
    };
    [of(|record| record.wait_count > 0), of(|record| record.signal_count > 0)]
}

fn sets<const N: usize>(names: [&'static str; N]) -> BTreeSet<&'static str> {
    names.into()
}

#[test]
fn tasks_whose_inputs_are_all_packets_skip_semaphores() {
    for sms in [3, 8, 40] {
        // Of one row queries, keys and values are packets too: what is left chooses the next token.
        let [wait, signal] = heard(&placed(&tiny(), 1, sms), options());
        assert_eq!((wait, signal), (sets(["argmax"]), sets(["linear"])), "{sms} SMs");
        // Of two rows keys and values are released.
        let [wait, signal] = heard(&placed(&tiny(), 2, sms), options());
        assert_eq!((wait, signal), (sets(["argmax", "attention"]), sets(["linear", "qkv"])), "{sms} SMs");
        // Of three rows there are no packets.
        let every = [sets(["argmax", "attention", "linear", "qkv"]), sets(["attention", "embed", "linear", "qkv"])];
        assert_eq!(heard(&placed(&tiny(), 3, sms), options()), every, "{sms} SMs");
        let asked = DeviceOptions { skip_semaphores: false, ..options() };
        assert_eq!(heard(&placed(&tiny(), 1, sms), asked), every, "{sms} SMs");
        // A rotation on a level of its own writes what is no packet.
        let [wait, _] = heard(&placed(&normed(tiny()), 1, sms), options());
        assert!(wait.contains("attention") && !wait.contains("linear"), "{sms} SMs: {wait:?}");
        // On several devices what the others send is waited for as before.
        let [wait, _] = heard(&shared(&tiny(), 1, 2, sms, false), options());
        assert!(wait.contains("linear") && wait.contains("attention"), "{sms} SMs: {wait:?}");
    }
}

#[test]
fn no_bit_depends_on_who_waits() {
    for (seed, (rows, sms, splits)) in (0..).zip([(1, 3, 1), (1, 7, 2), (2, 5, 2), (1, 14, 4)]) {
        let with = |skip_semaphores, seed| {
            let options = DeviceOptions { skip_semaphores, ..options() };
            bits(&mut load(splitting(&tiny(), rows, sms, splits), &tiny(), seed, options), rows)
        };
        let waited = with(false, seed);
        for seed in Sample::one_of(2).of(&[seed, seed + 50]) {
            assert_eq!(with(true, seed), waited, "{rows} rows on {sms} SMs, {splits} splits, seed {seed}");
        }
    }
}

/// A row that is idle has no token whose packets attention would look for; the next step has one.
#[test]
fn an_idle_row_is_a_step_like_any_other() {
    for seed in Sample::one_of(4).of(&[0, 1, 2, 3]) {
        let mut machine = load(splitting(&tiny(), 1, 11, 3), &tiny(), seed, options());
        let right = bits(&mut machine, 1);
        machine.step(&Cells::at(1, -1).view()).unwrap();
        assert_eq!(bits(&mut machine, 1), right, "seed {seed}");
    }
}

/// A task of each op whose results are packets.
fn senders(machine: &DeviceMachine) -> Vec<TaskId> {
    let program = machine.program();
    let labels = ["embed", "layers.0.qkv", "layers.0.attention", "layers.0.o", "layers.0.gate_up", "layers.1.down"];
    let first = |label: &str| program.tasks.iter().find(|task| task.label.starts_with(label)).map(|task| task.id);
    labels.map(|label| first(label).unwrap_or_else(|| panic!("{label} is a task"))).to_vec()
}

#[test]
fn packets_that_do_not_come_are_named_by_who_looks_for_them() {
    for seed in Sample::one_of(2).of(&[0, 1000]) {
        let mut machine =
            machine(&tiny(), 1, 5, seed, DeviceOptions { polls: 1 << 11, prefetch_stages: 2, ..options() });
        let run = |machine: &mut DeviceMachine| machine.run(&Cells::at(1, 20).view(), 1);
        let right = run(&mut machine).unwrap();
        let mut looked = 0;
        for task in senders(&machine) {
            assert!(machine.inject(DeviceFault::Stale { task }).unwrap());
            let error = run(&mut machine).unwrap_err();
            looked += u32::from(matches!(error, LaunchError::Parts { .. }));
            println!("{}", chain(&error));
            // Who waits for who gives up may be the first to say so.
            let found = match error {
                LaunchError::Parts { task, .. } => task,
                LaunchError::Stuck { task, .. } => task,
                error => panic!("{task}: {}", chain(&error)),
            };
            let program = machine.program();
            let of = |id: TaskId| &program.tasks[id.index()];
            // Its readers, and theirs, which look as long. A task of attention that merges the
            // parts of all splits reads its own part too, and may be the first to give up.
            let own = found == task && of(task).label.contains(".attention[");
            assert!(found > task || own, "{} says so of {}", of(found).label, of(task).label);
            machine.mend().unwrap();
            assert_eq!(run(&mut machine).unwrap(), right, "after {task}");
        }
        assert!(looked >= 3, "{looked} looked for packets that did not come");
    }
}

#[test]
fn tasks_that_skip_semaphores_end_when_the_host_aborts() {
    // No poll times out here: only the host's word ends the launch.
    let mut machine = machine(&tiny(), 1, 5, 3, DeviceOptions { polls: 1 << 30, ..options() });
    let run = |machine: &mut DeviceMachine| machine.run(&Cells::at(1, 20).view(), 3);
    let right = run(&mut machine).unwrap();
    for task in senders(&machine) {
        assert!(machine.inject(DeviceFault::Stale { task }).unwrap());
        machine.abort_handle().abort();
        let error = run(&mut machine).unwrap_err();
        assert!(matches!(error, LaunchError::Aborted { steps: 0 }), "{}", chain(&error));
        machine.mend().unwrap();
        assert_eq!(run(&mut machine).unwrap(), right);
    }
}
