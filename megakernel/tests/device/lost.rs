//! A device that is lost in mid-flight, at random moments: an error that names it, never a hang, never a wrong token.
//!
//! `TILEWRIGHT_LONG` in the environment: 200 moments on 2, 3, 4 and 8 devices instead of two dozen on 2.

use std::ops::ControlFlow;
use std::time::Duration;

use tilewright_codegen::device::DeviceError;
use tilewright_codegen::device::sim::{self, Options};
use tilewright_codegen::sim::Loss;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::testing::Rng;
use tilewright_megakernel::validate::Placed;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions, LaunchError};

use super::devices::{shared, wide_enough};
use super::lab::{Cells, least, options, weights};

const STEPS: usize = 2;
/// Looks of a wait before it is reported: more than a launch of so many devices takes in which all is well, under the seeds of these tests. With
/// fewer a device that is slow is reported as late, and the launch is over before another is lost.
fn polls(devices: usize) -> u32 {
    if devices == 2 { 1 << 11 } else { 1 << 13 }
}

/// A program whose devices are lost.
struct Subject {
    spec: ModelSpec,
    placed: Placed,
    rows: usize,
    options: DeviceOptions,
    right: Vec<u32>,
    /// Steps of the simulator, about as many as a launch takes.
    longest: u64,
}

impl Subject {
    fn new(spec: ModelSpec, rows: usize, devices: usize, options: DeviceOptions) -> Subject {
        let placed = shared(&spec, rows, devices, 2, false);
        let options = DeviceOptions { polls: polls(devices), ..options };
        let mut subject = Subject { spec, placed, rows, options, right: Vec::new(), longest: 1 << 15 };
        subject.right = subject.run(&mut subject.machine(0, None)).expect("nobody is lost");
        subject
    }

    /// The same, of which is known how long its launches are.
    fn timed(mut self) -> Subject {
        let is_over = |step: u64| self.run(&mut self.machine(0, Some(Loss { device: 0, step }))).is_ok();
        let mut longest = self.longest;
        while !is_over(longest) {
            longest *= 2;
        }
        // To an eighth of its length, so that few moments come behind the end.
        for part in [4, 8] {
            let shorter = longest - longest / part;
            longest = if is_over(shorter) { shorter } else { longest };
        }
        self.longest = longest;
        self
    }

    /// A machine, one device of which is lost in its first launch.
    fn machine(&self, seed: u64, loss: Option<Loss>) -> DeviceMachine {
        let sms = self.placed.target.sms as u32;
        let simulated = Options { seed, sms, loss: loss.map(|loss| (0, loss)), ..Options::default() };
        let devices = sim::peers(&simulated, self.placed.devices as u32);
        let (placed, weights) = (self.placed.clone(), weights(&self.spec));
        let mut machine = DeviceMachine::load_on(placed, &weights, &devices, self.options, &mut |_, _| ()).unwrap();
        // Where others wait for the lost one, the host waits so long for their end.
        machine.set_patience(Duration::from_millis(5));
        machine
    }

    fn run(&self, machine: &mut DeviceMachine) -> Result<Vec<u32>, LaunchError> {
        let mut seen = Vec::new();
        let each = &mut |tokens: &[u32]| {
            seen.extend_from_slice(tokens);
            ControlFlow::Continue(())
        };
        let ended = machine.run_until(&Cells::at(self.rows, 0).view(), STEPS, &[], each);
        assert!(self.right.is_empty() || self.right.starts_with(&seen), "tokens {seen:?} of {:?}", self.right);
        ended.map(|_| seen)
    }

    /// Loses a device at a moment; whether the others ended, or nothing where the launch was over by then.
    fn lose(&self, seed: u64, loss: Loss) -> Option<bool> {
        let devices = self.placed.devices;
        let what = || format!("{loss:?} of {devices}, seed {seed}");
        let mut machine = self.machine(seed, Some(loss));
        let mut named = || match self.run(&mut machine) {
            // Its moment would have come behind the launch's end.
            Ok(tokens) => {
                assert_eq!(tokens, self.right, "{}", what());
                None
            }
            Err(LaunchError::OneOf { device, devices: all, ended, source }) => {
                assert!(matches!(*source, DeviceError::Lost { .. }), "{}: {source}", what());
                assert_eq!((device, all), (loss.device as usize, devices), "{}", what());
                Some(ended)
            }
            Err(error) => panic!("{}: {error}", what()),
        };
        let ended = named()?;
        // Nothing runs on this machine any more, and that is said at once, with the device's name.
        assert!(named().is_some(), "{}", what());
        Some(ended)
    }
}

/// A model that three devices can share.
fn of_three() -> ModelSpec {
    ModelSpec { heads: 3, intermediate: 48, vocab: 48, ..least() }
}

/// A model that eight devices can share: a kv head is on four of them.
fn of_eight() -> ModelSpec {
    ModelSpec { heads: 8, kv_heads: 2, intermediate: 128, vocab: 64, ..least() }
}

#[test]
fn a_device_lost_at_any_moment_is_an_error_that_names_it() {
    let plain = DeviceOptions { packets: false, stream_tokens: false, ..options() };
    let long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let on_two = [(1, options()), (3, options()), (1, plain)];
    let mut subjects: Vec<Subject> =
        on_two.into_iter().map(|(rows, options)| Subject::new(least(), rows, 2, options).timed()).collect();
    if long {
        let of = [(of_three(), 3), (wide_enough(), 4), (of_eight(), 8)];
        subjects.extend(of.map(|(spec, devices)| Subject::new(spec, 1, devices, options()).timed()));
    }
    let mut rng = Rng::new(19);
    // Losses, and those that left another device waiting, by devices.
    let mut seen = [[0usize; 2]; 9];
    let moments = if long { 200 } else { 24 };
    for seed in 1.. {
        let subject = &subjects[seed as usize % subjects.len()];
        let devices = subject.placed.devices;
        let loss = Loss { device: rng.below(devices) as u32, step: rng.below(subject.longest as usize) as u64 };
        let Some(ended) = subject.lose(seed, loss) else { continue };
        seen[devices][0] += 1;
        seen[devices][1] += usize::from(!ended);
        let losses: usize = seen.iter().map(|[lost, _]| lost).sum();
        if losses.is_multiple_of(20) {
            println!("{losses} of {moments} losses are named");
        }
        if losses == moments {
            break;
        }
    }
    for (devices, [lost, deaf]) in seen.iter().enumerate().filter(|(_, [lost, _])| *lost > 0) {
        println!("{devices} devices: {lost} losses, of which {deaf} left another device waiting for packets");
    }
}

/// Seed 115 of the long run, when a wait was reported behind 2048 looks: a device was slow, the launch ended with a report of the counter that it
/// waited for, and the moment of the loss never came. A watchdog that outlasts the launch leaves the loss to be named.
#[test]
fn a_device_lost_late_in_a_slow_launch_is_named_115() {
    let (seed, loss) = (115, Loss { device: 1, step: 1_992_828 });
    let mut subject = Subject::new(wide_enough(), 1, 4, options());
    let ended = subject.lose(seed, loss);
    subject.options.polls = 1 << 11;
    let well = subject.run(&mut subject.machine(seed, None));
    assert!(matches!(well, Err(LaunchError::Stuck { .. })), "nobody is lost, and a device is too slow: {well:?}");
    println!("the moment {}", if ended.is_some() { "came" } else { "came behind the launch's end" });
}
