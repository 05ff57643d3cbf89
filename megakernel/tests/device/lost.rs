//! A device that is lost in mid-flight, at random moments: an error that names it, never a hang, never a wrong token.
//!
//! `TILEWRIGHT_LONG` in the environment: 200 moments instead of two dozen, and four devices among them.

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

/// A program whose devices are lost.
struct Subject {
    spec: ModelSpec,
    placed: Placed,
    rows: usize,
    options: DeviceOptions,
    right: Vec<u32>,
    /// Steps of the simulator, more than a launch takes.
    longest: u64,
}

impl Subject {
    fn new(spec: ModelSpec, rows: usize, devices: usize, options: DeviceOptions) -> Subject {
        let placed = shared(&spec, rows, devices, 2, false);
        let options = DeviceOptions { polls: 1 << 11, ..options };
        let mut subject = Subject { spec, placed, rows, options, right: Vec::new(), longest: 1 << 10 };
        subject.right = subject.run(&mut subject.machine(0, None)).expect("nobody is lost");
        while subject.run(&mut subject.machine(0, Some(Loss { device: 0, step: subject.longest }))).is_err() {
            subject.longest *= 2;
        }
        subject
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
}

#[test]
fn a_device_lost_at_any_moment_is_an_error_that_names_it() {
    let plain = DeviceOptions { packets: false, stream_tokens: false, ..options() };
    let long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let mut subjects = vec![
        Subject::new(least(), 1, 2, options()),
        Subject::new(least(), 3, 2, options()),
        Subject::new(least(), 1, 2, plain),
    ];
    subjects.extend(long.then(|| Subject::new(wide_enough(), 1, 4, options())));
    let (mut rng, mut lost, mut deaf) = (Rng::new(19), 0, 0);
    let moments = if long { 200 } else { 24 };
    for seed in 1.. {
        let subject = &subjects[seed as usize % subjects.len()];
        let devices = subject.placed.devices;
        let loss = Loss { device: rng.below(devices) as u32, step: rng.below(subject.longest as usize) as u64 };
        let mut machine = subject.machine(seed, Some(loss));
        let named = |result: Result<Vec<u32>, LaunchError>| match result {
            // Its moment would have come behind the launch's end.
            Ok(tokens) => {
                assert_eq!(tokens, subject.right, "{loss:?}, seed {seed}");
                None
            }
            Err(LaunchError::OneOf { device, devices: all, ended, source }) => {
                assert!(matches!(*source, DeviceError::Lost { .. }), "{loss:?}, seed {seed}: {source}");
                assert_eq!((device, all), (loss.device as usize, devices), "{loss:?}, seed {seed}");
                Some(ended)
            }
            Err(error) => panic!("{loss:?}, seed {seed}: {error}"),
        };
        let Some(ended) = named(subject.run(&mut machine)) else { continue };
        lost += 1;
        deaf += usize::from(!ended);
        // Nothing runs on this machine any more, and that is said at once.
        assert!(subject.run(&mut machine).is_err(), "{loss:?}, seed {seed}");
        if lost == moments {
            break;
        }
    }
    println!("{lost} losses, of which {deaf} left another device waiting for packets");
}
