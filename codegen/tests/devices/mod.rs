//! The devices that tests of results run on: simulators under seeds, or the one that
//! `TILEWRIGHT_DEVICE` names.

use tilewright_codegen::device::{Device, Name, sim};
use tilewright_codegen::trial::Trial;

/// The device that `TILEWRIGHT_DEVICE` names.
pub fn named() -> Option<Device> {
    let name: Name = std::env::var("TILEWRIGHT_DEVICE").ok()?.parse().unwrap_or_else(|error| panic!("{error}"));
    Some(name.open().unwrap_or_else(|error| panic!("{error}")))
}

/// The named device, or simulators of `seeds` seeds.
pub fn devices(seeds: u64) -> Vec<Device> {
    named().map_or_else(|| (0..seeds).map(sim::open).collect(), |device| vec![device])
}

/// Runs a trial, which must come out right.
pub fn right(trial: &Trial, devices: &[Device]) {
    for device in devices {
        let outcome = trial.run(device).unwrap_or_else(|error| panic!("{}: {error}", trial.particulars()));
        assert!(outcome.is_right(), "{outcome}");
    }
}
