//! Rules on devices: how many there are, and what lies or runs on which. One function per rule;
//! which task may reach which device's memory is said where its footprint is known (`regions`).

use super::kind::Kind;
use super::place::Location;
use super::report::Report;
use crate::program::{Buffer, DeviceId, MAX_DEVICES, Program};

/// Checks the tables' devices.
pub(super) fn check(program: &Program, report: &mut Report) {
    let devices = program.devices;
    if !(1..=MAX_DEVICES).contains(&devices) {
        report.error(Location::Program, Kind::DeviceCount { found: devices, most: MAX_DEVICES });
    }
    for (index, buffer) in program.buffers.iter().enumerate() {
        let kinds = [missing(buffer.device, devices), needed(buffer, devices), arena(buffer, devices)];
        for kind in kinds.into_iter().flatten() {
            report.error(Location::buffer(index, buffer), kind);
        }
    }
    for (index, task) in program.tasks.iter().enumerate() {
        if let Some(kind) = missing(Some(task.device), devices) {
            report.error(Location::task(index, task), kind);
        }
    }
}

fn missing(device: Option<DeviceId>, devices: usize) -> Option<Kind> {
    let device = device.filter(|device| device.index() >= devices.max(1))?;
    Some(Kind::NoDevice { device, devices })
}

/// A buffer that each device has for itself is the same on all: no task writes it.
fn needed(buffer: &Buffer, devices: usize) -> Option<Kind> {
    let nowhere = devices > 1 && buffer.device.is_none() && buffer.kind.is_writable();
    nowhere.then_some(Kind::DeviceNeeded { kind: buffer.kind, devices })
}

fn arena(buffer: &Buffer, devices: usize) -> Option<Kind> {
    (devices > 1 && buffer.arena.is_some()).then_some(Kind::ArenaDevices { devices })
}
