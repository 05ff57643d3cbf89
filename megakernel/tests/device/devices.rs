//! Programs of several devices: the tokens and the logits of the reference machine, whatever the
//! order of the blocks; many steps in a launch, ends, choices at random; a device that stops is an
//! error on all.

use std::ops::ControlFlow;

use tilewright_codegen::device::Device;
use tilewright_codegen::device::sim::{self, Options};
use tilewright_codegen::target::Target;
use tilewright_graph::models::Llama;
use tilewright_kernels::sample::Request;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LOGITS, LowerOptions, lower};
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::testing::small_mixtures;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::reference::{KvState, Machine};
use tilewright_megakernel::vm::{LaunchError, LoadError};

use super::lab::{Cells, PAGES, gemma2, least, normed, options, relative, tiny, weights};

/// A model shared by devices of `sms` SMs each.
pub fn shared(spec: &impl Architecture, rows: usize, devices: usize, sms: usize, sampling: bool) -> Placed {
    let target = Target { sms, ..Target::named("h100").unwrap() };
    let pages = Some(PAGES * 16);
    let base = LowerOptions::for_context(64);
    let options = LowerOptions { rows, kv: DType::BF16, page_tokens: 16, pages, devices, sampling, ..base };
    schedule(lower(spec, &|_| DType::BF16, target, &options).unwrap(), 64).unwrap()
}

pub fn peers(seed: u64, devices: usize, sms: usize) -> Vec<Device> {
    sim::peers(&Options { seed, sms: sms as u32, ..Options::default() }, devices as u32)
}

pub fn machine(placed: &Placed, spec: &impl Architecture, seed: u64, options: DeviceOptions) -> DeviceMachine {
    let devices = peers(seed, placed.devices, placed.target.sms);
    DeviceMachine::load_on(placed.clone(), &weights(spec), &devices, options, &mut |_, _| ()).unwrap()
}

/// Logits and next tokens of steps on the reference machine.
fn expected(spec: &impl Architecture, rows: usize, steps: usize) -> Vec<(Vec<f32>, Vec<i32>)> {
    let placed = shared(spec, rows, 1, 2, false);
    let mut kv = KvState::new(&placed).unwrap();
    let mut machine = Machine::new(placed, &weights(spec), 1).unwrap();
    let step = |position| {
        let output = machine.step(&mut kv, &Cells::at(rows, position).view()).unwrap();
        (output.f32(LOGITS).unwrap().to_vec(), output.i32("next_token").unwrap().to_vec())
    };
    (0..steps as i32).map(step).collect()
}

fn agrees(spec: &impl Architecture, rows: usize, devices: usize, seeds: std::ops::Range<u64>, options: DeviceOptions) {
    let placed = shared(spec, rows, devices, 2, false);
    let expected = expected(spec, rows, 3);
    let mut bits: Option<Vec<u32>> = None;
    for seed in seeds {
        let mut machine = machine(&placed, spec, seed, options);
        let mut all = Vec::new();
        for (position, (logits, tokens)) in expected.iter().enumerate() {
            machine
                .step(&Cells::at(rows, position as i32).view())
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = machine.f32(LOGITS).unwrap();
            let error = relative(&found, logits);
            assert!(error < 2e-2, "seed {seed}: {error:.2e} of the logits");
            assert_eq!(&machine.i32("next_token").unwrap(), tokens, "seed {seed}");
            all.extend(found.into_iter().map(f32::to_bits));
        }
        let first = bits.get_or_insert_with(|| all.clone());
        assert!(*first == all, "seed {seed}: another order of the blocks, other bits");
    }
}

/// Four heads, of which each pair shares a kv head: with four devices a kv head is on two.
pub fn wide_enough() -> Llama {
    tiny().heads(4, 2)
}

#[test]
fn several_devices_give_the_logits_of_the_reference() {
    // One and two rows are sent as packets, three are released.
    agrees(&tiny(), 1, 2, 0..4, options());
    agrees(&tiny(), 2, 2, 10..12, options());
    agrees(&tiny(), 3, 2, 20..22, options());
    agrees(&normed(wide_enough()), 1, 2, 30..32, options());
    agrees(&wide_enough(), 1, 4, 40..42, options());
    agrees(&tiny(), 1, 2, 50..52, DeviceOptions { packets: false, stream_tokens: false, ..options() });
}

/// Each device normalises the sum of all parts.
#[test]
fn several_devices_give_the_logits_of_gemma_2() {
    agrees(&gemma2(), 1, 2, 60..62, options());
    agrees(&gemma2(), 3, 2, 70..71, options());
}

/// Each device has a part of every expert, and chooses for itself.
#[test]
fn several_devices_share_mixtures_of_experts() {
    for (seed, spec) in (80..).step_by(10).zip(small_mixtures(16)) {
        agrees(&spec, 1, 2, seed..seed + 1, options());
        agrees(&spec, 3, 2, seed + 1..seed + 2, options());
    }
}

const STEPS: usize = 5;

fn until(machine: &mut DeviceMachine, rows: usize, ends: &[&[u32]]) -> Vec<u32> {
    let mut seen = Vec::new();
    let each = &mut |tokens: &[u32]| {
        seen.extend_from_slice(tokens);
        ControlFlow::Continue(())
    };
    machine.run_until(&Cells::at(rows, 0).view(), STEPS, ends, each).unwrap_or_else(|error| panic!("{error}"));
    seen
}

#[test]
fn many_steps_of_a_launch_go_on_together_and_end_together() {
    for (rows, seed) in [(1, 0), (2, 100), (3, 200)] {
        let spec = least();
        let mut machine = machine(&shared(&spec, rows, 2, 2, false), &spec, seed, options());
        let mut alone = super::lab::machine(&spec, rows, 2, seed, options());
        let right = until(&mut alone, rows, &[]);
        assert_eq!(until(&mut machine, rows, &[]), right, "{rows} rows");
        let ids: Vec<[u32; 1]> = (0..rows).map(|row| [right[rows + row]]).collect();
        let ends: Vec<&[u32]> = ids.iter().map(|ids| &ids[..]).collect();
        assert_eq!(until(&mut machine, rows, &ends), until(&mut alone, rows, &ends), "{rows} rows that end");
        assert_eq!(until(&mut machine, rows, &[]), right, "{rows} rows, after a launch that ended");
    }
}

#[test]
fn tokens_are_drawn_as_on_one_device() {
    let spec = tiny();
    let rows = 2;
    let requests: Vec<Request> = (0..rows as u64)
        .map(|row| Request {
            temperature: 0.9,
            top_p: 0.95,
            top_k: u32::MAX,
            seed: 3 + row,
            row: row as u32,
            ..Request::default()
        })
        .collect();
    let mut several = machine(&shared(&spec, rows, 2, 2, true), &spec, 7, options());
    let mut alone = super::lab::load(super::lab::sampling(&spec, rows, 2), &spec, 7, options());
    several.set_requests(&requests).unwrap();
    alone.set_requests(&requests).unwrap();
    assert_eq!(until(&mut several, rows, &[]), until(&mut alone, rows, &[]));
}

/// A device whose blocks stop anywhere: an error that names a block or a counter, on all devices,
/// and the next launch is as if nothing had been.
#[test]
fn a_device_that_stops_is_an_error_on_all() {
    let spec = least();
    let placed = shared(&spec, 1, 2, 2, false);
    let impatient = DeviceOptions { polls: 1 << 11, ..options() };
    for seed in 0..2 {
        let mut machine = machine(&placed, &spec, 1000 * seed, impatient);
        let right = until(&mut machine, 1, &[]);
        let device = seed as usize % 2;
        let own = |queue: usize| queue / 2 == device;
        let longest = placed.queues().iter().map(Vec::len).max().unwrap_or(0);
        // Whether a task that runs waits for one that does not: no task waits for the choice of the
        // next token.
        let missed = |after: usize| {
            let queues = || placed.queues().iter().enumerate();
            let runs = |queue: usize, at: usize| !own(queue) || at < after;
            let tasks = || queues().flat_map(|(number, queue)| queue.iter().enumerate().map(move |at| (number, at)));
            let of = |run: bool| {
                let those = tasks().filter(move |&(queue, (at, _))| runs(queue, at) == run);
                those.map(|(_, (_, task))| &placed.tasks[task.index()])
            };
            let silent: Vec<_> = of(false).flat_map(|task| &task.signals).collect();
            of(true).flat_map(|task| &task.waits).any(|wait| silent.contains(&&wait.counter))
        };
        // Of the two devices, each stops at every other place.
        for after in (0..longest).filter(|&after| missed(after)).skip(device).step_by(2) {
            let after = after as u32;
            assert!(machine.inject(DeviceFault::Leaves { device, after }).unwrap());
            let ended = machine.run(&Cells::at(1, 0).view(), 2);
            let error = ended.expect_err(&format!("device {device} stops after {after} tasks"));
            let named =
                matches!(error, LaunchError::Stuck { .. } | LaunchError::Blocks { .. } | LaunchError::Device(_));
            assert!(named, "device {device} stops after {after} tasks: {error}");
            machine.mend().unwrap();
            assert_eq!(until(&mut machine, 1, &[]), right, "after device {device}, {after} tasks");
        }
    }
}

#[test]
fn an_abort_ends_all_devices() {
    let spec = least();
    let mut machine = machine(&shared(&spec, 1, 2, 2, false), &spec, 5, options());
    let right = until(&mut machine, 1, &[]);
    machine.abort_handle().abort();
    let error = machine.run(&Cells::at(1, 0).view(), STEPS).unwrap_err();
    assert!(matches!(error, LaunchError::Aborted { .. }), "{error}");
    machine.abort_handle().clear();
    assert_eq!(until(&mut machine, 1, &[]), right);
}

#[test]
fn a_program_wants_as_many_devices_as_it_is_for() {
    let spec = least();
    let placed = shared(&spec, 1, 2, 2, false);
    let one = peers(0, 1, 2);
    let refused =
        DeviceMachine::load_on(placed, &weights(&spec), &one, options(), &mut |_, _| ()).map(drop).unwrap_err();
    assert!(matches!(refused, LoadError::Devices { wanted: 2, found: 1 }), "{refused}");
}
