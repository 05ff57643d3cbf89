//! Barriers of devices between launches: one that is lost or does not arrive while others wait is
//! named, the next step is as if nothing had been, and a barrier that is left out is seen.

use std::ops::Range;

use tilewright_codegen::device::sim::{self, Options};
use tilewright_codegen::device::{Device, DeviceError};
use tilewright_codegen::sim::Loss;
use tilewright_graph::models::Llama;
use tilewright_megakernel::testing::Rng;
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::graph::{Exchange, GraphFault, GraphPeers, Launch, LaunchArg, LaunchMemory, Scratch};

use super::devices::{PAGES_OF, exchanging, peers, peers_by, planned, small, wide};
use super::lab::{Rows, prompt};

const ROWS: usize = 17;

/// A model that two devices share, and one for four.
fn spec(devices: usize) -> Llama {
    let spec = if devices == 2 { small(32) } else { wide(32) };
    spec.layers(1)
}

/// A prompt of rows of every device's share.
fn rows() -> Rows {
    let mut rows = Rows::default();
    rows.add(&prompt(ROWS, 1), 0, &PAGES_OF[0]);
    rows
}

fn on(seed: u64, count: usize, loss: Option<(u64, Loss)>) -> Vec<Device> {
    sim::peers(&Options { seed, sms: 4, loss, ..Options::default() }, count as u32)
}

/// The bits of the logits of a step.
fn step(machine: &mut GraphPeers) -> Result<Vec<u32>, LaunchError> {
    let rows = rows();
    let mut all = Vec::new();
    let each = &mut |_: usize, logits: &[f32]| all.extend(logits.iter().map(|x| x.to_bits()));
    machine.step(&rows.view(), &rows.active(), each)?;
    Ok(all)
}

/// Barriers of a step.
fn barriers(machine: &GraphPeers) -> Range<usize> {
    let plan = machine.plan();
    0..plan.launches.iter().filter(|launch| plan.is_barrier(launch)).count()
}

/// Two for the embedding's sum: after the parts, and after what is stored on all; one for each sum
/// of a layer in one shot.
#[test]
fn a_device_that_does_not_come_is_named_and_the_next_step_is_well() {
    for count in [2, 4] {
        let mut machine = peers(&on(0, count, None), &spec(count), ROWS, false);
        let right = step(&mut machine).unwrap();
        assert_eq!(barriers(&machine), 0..4);
        for barrier in barriers(&machine) {
            let absent = (barrier + 1) % count;
            machine.inject(GraphFault::Stays { device: absent, barrier });
            let error = step(&mut machine).unwrap_err();
            let LaunchError::Absent { device, devices, waiting, .. } = error else { panic!("{barrier}: {error}") };
            assert!(waiting != absent && waiting < count, "{barrier}: dev{waiting} waited");
            assert_eq!((device, devices), (absent, count), "{barrier}");
            machine.mend();
            assert!(step(&mut machine).unwrap() == right, "after barrier {barrier}");
        }
    }
}

/// Devices run one after the other between two barriers, each time another first: a device that
/// reads what a peer has not stored yet has other logits.
#[test]
fn a_barrier_that_is_left_out_is_seen() {
    for exchange in [Exchange::OneShot, Exchange::TwoShot] {
        let machine = || peers_by(exchange, &on(1, 2, None), &spec(2), ROWS, false);
        let mut whole = machine();
        let right = step(&mut whole).unwrap();
        // In two shots the last is for what is launched after the step, which begins here when all
        // of it has ended.
        for barrier in barriers(&whole).rev().skip(usize::from(exchange == Exchange::TwoShot)) {
            // In a new machine, whose memory has nothing of a step before.
            let mut machine = machine();
            machine.inject(GraphFault::NoBarrier { barrier });
            assert!(step(&mut machine).unwrap() != right, "{exchange:?}: barrier {barrier} is for nothing");
        }
    }
}

/// In two shots, what a device touches of a peer's memory it touches between two barriers in which
/// the peer does nothing else with it: parts are read and sums are stored by launches that stand
/// alone between two barriers.
#[test]
fn a_peer_s_memory_is_touched_between_barriers_alone() {
    let step = planned(&spec(4), [ROWS, 4], true);
    for device in 0..4 {
        let plan = exchanging(&step, device, Exchange::TwoShot).unwrap();
        let peers = |launch: &Launch| {
            let of_peer = |arg: &LaunchArg| match arg {
                LaunchArg::Pointer(LaunchMemory::Of { device: of, .. }) => *of as usize != device,
                LaunchArg::Pointer(_) | LaunchArg::Map(..) | LaunchArg::Number(_) | LaunchArg::Factor(_) => false,
            };
            launch.args.iter().any(of_peer)
        };
        let between: Vec<&[Launch]> = plan.launches.split(|launch| plan.is_barrier(launch)).collect();
        assert!(between.iter().all(|launches| launches.len() == 1 || !launches.iter().any(peers)), "device {device}");
        assert_eq!(between.iter().filter(|launches| launches.iter().any(peers)).count(), 3, "device {device}");
        // A share of the rows of each device's sum is this device's alone.
        let stored = |launch: &Launch| {
            launch.args.iter().find_map(|arg| match arg {
                LaunchArg::Pointer(LaunchMemory::Of { scratch: Scratch::Normed, first, .. }) => Some(*first),
                LaunchArg::Pointer(_) | LaunchArg::Map(..) | LaunchArg::Number(_) | LaunchArg::Factor(_) => None,
            })
        };
        let first = (ROWS * device / 4 * 64 * 2) as u64;
        assert!(plan.launches.iter().filter_map(stored).all(|found| found == first), "device {device}");
        let choice = &plan.choice.as_ref().unwrap().launches;
        let barrier = choice.iter().position(|launch| plan.is_barrier(launch)).unwrap();
        assert!(choice[..barrier].iter().all(|launch| !peers(launch)));
        assert_eq!(choice.len() > barrier + 1, device == 0, "the first device chooses");
    }
}

/// A device may be lost in any launch, with others waiting at a barrier or not. The error names it,
/// then and from then on, and the memory of the others is freed.
#[test]
fn a_device_that_is_lost_at_any_launch_is_named() {
    let mut rng = Rng::new(7);
    for count in [2, 4] {
        let mut met = 0;
        let mut alone = 0;
        for trial in 0..60 {
            let launch = trial % 20;
            // Launches of one device lose that one, whichever it is; of those side by side any.
            let loss = Loss { device: rng.below(count) as u32, step: rng.below(60) as u64 };
            let devices = on(trial, count, Some((launch, loss)));
            let free = devices[0].free_bytes().unwrap();
            let mut machine = peers(&devices, &spec(count), ROWS, false);
            let Err(first) = step(&mut machine) else { continue };
            let named = |error: LaunchError| match error {
                LaunchError::OneOf { device, devices, ended: true, source } => {
                    assert!(matches!(*source, DeviceError::Lost { .. }), "launch {launch}, {loss:?}: {source}");
                    assert_eq!(devices, count);
                    device
                }
                error => panic!("launch {launch}, {loss:?}: {error}"),
            };
            let lost = named(first);
            assert!(loss.device == 0 || lost == loss.device as usize, "launch {launch}, {loss:?}: dev{lost}");
            assert_eq!(named(step(&mut machine).unwrap_err()), lost, "launch {launch}, {loss:?}");
            *if loss.device == 0 { &mut alone } else { &mut met } += 1;
            drop(machine);
            assert_eq!(devices[0].free_bytes().unwrap(), free, "launch {launch}: the others' memory");
        }
        println!("{count} devices: {met} lost in a barrier, {alone} in a launch of their own or the first");
        assert!(met > 1 && alone > 1);
    }
}

#[test]
fn an_abort_ends_devices_at_a_barrier_before_a_step() {
    let mut machine = peers(&on(2, 2, None), &spec(2), ROWS, false);
    let right = step(&mut machine).unwrap();
    let handle = tilewright_megakernel::vm::AbortHandle::default();
    machine.listen_to(&handle);
    handle.abort();
    let error = step(&mut machine).unwrap_err();
    assert!(matches!(error, LaunchError::Aborted { steps: 0 }), "{error}");
    assert!(step(&mut machine).unwrap() == right);
}
