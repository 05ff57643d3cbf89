//! A task's first stages in registers while the consumers wait, and copied activations: the same
//! bits, and no launch hangs.

use tilewright_codegen::sample::Sample;
use tilewright_megakernel::ops::{Linear, Qkv};
use tilewright_megakernel::program::Op;
use tilewright_megakernel::vm::LaunchError;
use tilewright_megakernel::vm::device::{DeviceFault, DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::resident::StageOrder;

use super::lab::{Cells, bits, chain, least, machine, normed, options, tiny};

/// Strips of one stage and of several, stages of fewer bytes than others, groups of fewer strips
/// than are prefetched.
#[test]
fn no_bit_of_a_step_depends_on_prefetched_stages() {
    let wide = tiny().inner(288);
    let small =
        DeviceOptions { warps: 2, stage_bytes: 2048, ..options() }.with_thresholds(|limits| limits.sums_bytes = 128);
    let least_of = DeviceOptions { warps: 1, stage_bytes: 512, ..options() }.with_thresholds(|limits| {
        limits.stages = 2;
        limits.sums_bytes = 32;
    });
    for (spec, rows, sms, options) in [
        (tiny(), 1, 3, options()),
        (wide.clone(), 2, 2, small),
        (normed(wide), 1, 3, DeviceOptions { packets: false, ..small }),
        (least(), 1, 2, least_of),
        (tiny(), 3, 3, options().with_thresholds(|limits| limits.activation_rows = 4)),
        (tiny(), 8, 3, options().with_thresholds(|limits| limits.registers_beside_prefetch = 128)),
    ] {
        let with = |prefetch, seed| {
            let stage_order = if prefetch % 2 == 0 { StageOrder::InOrder } else { StageOrder::Stages };
            let options = DeviceOptions { prefetch_stages: prefetch, stage_order, ..options };
            bits(&mut machine(&spec, rows, sms, seed, options), rows)
        };
        let none = with(0, 1);
        for prefetch in 1..=4 {
            assert!(
                with(prefetch, 17 * u64::from(prefetch)) == none,
                "{prefetch} stages prefetched, {rows} rows on {sms} SMs"
            );
        }
    }
}

/// Tasks whose activations stay in registers or are streamed prefetch no weights.
#[test]
fn batches_prefetch_no_stages() {
    let with = |prefetch| {
        let streamed = DeviceOptions { activation_registers: 0, prefetch_stages: prefetch, ..options() }
            .with_thresholds(|limits| limits.activation_rows = 1);
        bits(&mut machine(&tiny(), 2, 3, 5, streamed), 2)
    };
    assert_eq!(with(3), with(0));
}

#[test]
fn launches_that_fail_end_with_prefetched_stages_and_the_next_runs() {
    for seed in Sample::one_of(2).of(&[0, 1000]) {
        let options = DeviceOptions { prefetch_stages: 3, polls: 1 << 13, ..options() };
        let mut machine = machine(&tiny(), 2, 3, seed, options);
        let run = |machine: &mut DeviceMachine| machine.run(&Cells::at(2, 0).view(), 3);
        let right = run(&mut machine).unwrap();
        let first = |what: fn(&Op) -> bool| machine.program().tasks.iter().find(|task| what(&task.op)).unwrap().id;
        let qkv = first(|op| op.is::<Qkv>());
        let linear = first(|op| op.is::<Linear>());
        for fault in [
            DeviceFault::Silent { task: qkv },
            DeviceFault::Opcode { task: linear, opcode: 77 },
            DeviceFault::Quits { block: 1, after: 1 },
        ] {
            assert!(machine.inject(fault).unwrap(), "{fault:?}");
            let error = run(&mut machine).unwrap_err();
            let stuck =
                matches!(error, LaunchError::Stuck { .. } | LaunchError::Blocks { .. } | LaunchError::Parts { .. });
            assert!(stuck || matches!(error, LaunchError::Opcode { opcode: 77, .. }), "{fault:?}: {}", chain(&error));
            machine.mend().unwrap();
            assert_eq!(run(&mut machine).unwrap(), right, "after {fault:?}");
        }
    }
}
