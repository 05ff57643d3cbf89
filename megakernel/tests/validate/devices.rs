//! Several devices: what lies and runs where.

use insta::assert_snapshot;
use tilewright_megakernel::program::{DeviceId, Program};

use super::twins::{CELL, H, Y, among, assert_valid, valid};

/// The program on two devices of one SM; the first runs everything, the second nothing.
fn on_two(p: &mut Program) {
    (p.devices, p.target.sms) = (2, 1);
    let queues = p.queues.as_mut().unwrap();
    let mut first: Vec<_> = queues.drain(..).flatten().collect();
    first.sort_unstable();
    *queues = vec![first, vec![]];
    for buffer in p.buffers.iter_mut().filter(|buffer| buffer.kind.is_writable()) {
        buffer.device = Some(DeviceId(0));
    }
}

fn with_two(change: impl FnOnce(&mut Program)) -> impl FnOnce(&mut Program) {
    |p| {
        on_two(p);
        change(p);
    }
}

#[test]
fn a_program_may_leave_a_device_idle() {
    let mut p = valid();
    on_two(&mut p);
    assert_valid(&p);
}

#[test]
fn devices_exist_and_hold_what_is_written() {
    assert_snapshot!(among("DeviceCount", |p| p.devices = 0), @"");
    assert_snapshot!(among("DeviceCount", |p| p.devices = 65), @"");
    assert_snapshot!(among("NoDevice", |p| p.buffers[Y.index()].device = Some(DeviceId(1))), @"");
    assert_snapshot!(among("NoDevice", with_two(|p| p.tasks[0].device = DeviceId(2))), @"");
    assert_snapshot!(among("DeviceNeeded", with_two(|p| p.buffers[H.index()].device = None)), @"");
    assert_snapshot!(among("ArenaDevices", with_two(|p| p.buffers[H.index()].arena = Some(0))), @"");
}

#[test]
fn a_task_runs_on_its_device_and_reaches_its_memory() {
    assert_snapshot!(among("QueueDevice", with_two(|p| p.tasks[0].device = DeviceId(1))), @"");
    assert_snapshot!(among("OtherDevice", with_two(|p| p.buffers[H.index()].device = Some(DeviceId(1)))), @"");
    assert_snapshot!(among("OtherDevice", with_two(|p| p.buffers[CELL.index()].device = Some(DeviceId(1)))), @"");
}
