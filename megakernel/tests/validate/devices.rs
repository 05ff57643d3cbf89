//! Several devices: what lies and runs where.

use insta::assert_snapshot;
use tilewright_megakernel::program::{DeviceId, Program};

use super::twins::{H, W, Y, among, assert_valid, valid};

/// The program on two devices of one SM; the first runs everything, the second nothing.
fn on_two(p: &mut Program) {
    (p.devices, p.target.sms) = (2, 1);
    let queues = p.queues.as_mut().unwrap();
    let mut first: Vec<_> = queues.drain(..).flatten().collect();
    first.sort_unstable();
    *queues = vec![first, vec![]];
    for buffer in p.buffers.iter_mut().filter(|buffer| buffer.kind.is_writable()) {
        (buffer.device, buffer.arena) = (Some(DeviceId(0)), None);
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
    assert_snapshot!(among("DeviceCount", |p| p.devices = 0), @"program: runs on 0 devices, a program has from 1 to 64; set `devices`");
    assert_snapshot!(among("DeviceCount", |p| p.devices = 65), @"program: runs on 65 devices, a program has from 1 to 64; set `devices`");
    assert_snapshot!(among("NoDevice", |p| p.buffers[Y.index()].device = Some(DeviceId(1))), @"buffer b3 `y`: lies or runs on dev1, the program has dev0 to dev0; name one of them");
    assert_snapshot!(among("NoDevice", with_two(|p| p.tasks[0].device = DeviceId(2))), @"task t0 `left`: lies or runs on dev2, the program has dev0 to dev1; name one of them");
    assert_snapshot!(among("DeviceNeeded", with_two(|p| p.buffers[H.index()].device = None)), @"buffer b2 `h`: a buffer of kind activation on every device, what tasks write lies on one of 2; name it");
    assert_snapshot!(among("ArenaDevices", with_two(|p| p.buffers[H.index()].arena = Some(0))), @"buffer b2 `h`: an arena offset in a program of 2 devices, which have no common arena; remove the offset");
}

#[test]
fn a_task_runs_on_its_device_and_reaches_its_memory() {
    assert_snapshot!(among("QueueDevice", with_two(|p| p.tasks[0].device = DeviceId(1))), @"task t0 `left`: queued on sm0 and meant for dev1, which has other SMs; schedule the program again");
    assert_snapshot!(among("OtherDevice", with_two(|p| p.buffers[H.index()].device = Some(DeviceId(1)))), @r#"
task t0 `left`: the write of b2 on dev1 by a task on dev0; store with an op that sends
task t1 `right`: the write of b2 on dev1 by a task on dev0; store with an op that sends
task t2 `sum`: the read of b2 on dev1 by a task on dev0; read what its own device has, and let a task there send it
"#);
    assert_snapshot!(among("OtherDevice", with_two(|p| p.buffers[W.index()].device = Some(DeviceId(1)))), @r#"
task t0 `left`: the read of b1 on dev1 by a task on dev0; read what its own device has, and let a task there send it
task t1 `right`: the read of b1 on dev1 by a task on dev0; read what its own device has, and let a task there send it
"#);
}
