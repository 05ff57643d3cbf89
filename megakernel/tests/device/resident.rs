//! Machines of one model share weights and KV pools.

use std::sync::Arc;

use tilewright_codegen::device::DeviceError;
use tilewright_codegen::device::sim::{Options, Simulator};
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::vm::StepCells;
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::resident::DeviceWeights;
use tilewright_megakernel::vm::{LaunchError, LoadError};

use super::lab::{Cells, PAGES, chain, device, least, machine, normed, options, placed, relative, tiny, weights};

/// A prompt fed by a machine of four rows, then a token by one of one row, against one row all
/// along.
#[test]
fn a_prompt_fed_by_many_rows_is_continued_by_one() {
    let spec = tiny();
    let mut shared = DeviceWeights::new(device(3, 3), Arc::new(weights(&spec)));
    let mut sent = 0;
    let mut wide = shared.machine(placed(&spec, 4, 3), None, options(), &mut |done, _| sent = done).unwrap();
    assert_eq!((sent, shared.bytes()), (shared.bytes(), wide.plan().packed_bytes));
    let kv = wide.kv().clone();
    let none = &mut |_, _| panic!("the weights are on the device already");
    let mut narrow = shared.machine(placed(&spec, 1, 3), Some(&kv), options(), none).unwrap();
    assert_eq!(shared.bytes(), narrow.plan().packed_bytes);

    let tokens = [11, 3, 77, 150];
    let page_table: Vec<i32> = (0..4).flat_map(|_| 4..4 + PAGES as i32).collect();
    wide.step(&StepCells { tokens: &tokens, positions: &[0, 1, 2, 3], page_table: &page_table }).unwrap();
    let one = |token: i32, position: i32| (vec![token], vec![position]);
    let (token, position) = one(42, 4);
    let cells = StepCells { tokens: &token, positions: &position, page_table: &page_table[..PAGES] };
    narrow.step(&cells).unwrap();
    let found = narrow.f32_row(LOGITS, 0).unwrap();

    let mut alone = machine(&spec, 1, 3, 9, options());
    for (position, token) in tokens.into_iter().chain([42]).enumerate() {
        let (token, position) = one(token, position as i32);
        alone.step(&StepCells { tokens: &token, positions: &position, page_table: &page_table[..PAGES] }).unwrap();
    }
    let error = relative(&found, &alone.f32_row(LOGITS, 0).unwrap());
    assert!(error < 1e-3, "{error}");
}

#[test]
fn pools_of_another_model_are_refused() {
    let spec = tiny();
    let mut shared = DeviceWeights::new(device(0, 2), Arc::new(weights(&spec)));
    let other = machine(&normed(least()), 1, 2, 0, options());
    let error = shared.machine(placed(&spec, 1, 2), Some(other.kv()), options(), &mut |_, _| ()).err().unwrap();
    assert!(matches!(error, LoadError::Kv(_)), "{}", chain(&error));
}

#[test]
fn another_cut_of_stages_has_packed_weights_of_its_own() {
    let spec = least();
    let mut shared = DeviceWeights::new(device(0, 2), Arc::new(weights(&spec)));
    let cut = DeviceOptions { warps: 2, stage_bytes: 1024, ..options() };
    shared.machine(placed(&spec, 1, 2), None, options(), &mut |_, _| ()).unwrap();
    let one = shared.bytes();
    let mut machine = shared.machine(placed(&spec, 1, 2), None, cut, &mut |_, _| ()).unwrap();
    assert!(shared.bytes() > one);
    machine.step(&Cells::at(1, 0).view()).unwrap();
}

#[test]
fn a_model_that_does_not_fit_the_device_is_refused_before_anything_is_sent() {
    let spec = tiny();
    let small = Simulator::new(Options { sms: 2, memory_bytes: 100_000, ..Options::default() }).device();
    let none = &mut |_, _| panic!("nothing is sent");
    let error = DeviceMachine::load(placed(&spec, 1, 2), &weights(&spec), &small, options(), none).err().unwrap();
    assert!(matches!(error, LoadError::Memory { free: 100_000, .. }));
    assert!(error.to_string().contains("use a shorter context"), "{error}");
    let more = LoadError::Sms { wanted: 3, found: 2 };
    let error = DeviceMachine::load(placed(&spec, 1, 3), &weights(&spec), &small, options(), none).err().unwrap();
    assert_eq!(error.to_string(), more.to_string());
}

/// An error of a device reaches the caller, with its remedy.
#[test]
fn a_lost_device_and_a_refused_launch_say_what_to_do() {
    let lost = DeviceError::Lost { call: "cuStreamQuery", code: 719, name: "CUDA_ERROR_LAUNCH_FAILED".into() };
    let text = chain(&LaunchError::from(lost));
    assert!(
        text.starts_with("the device failed: the device was lost") && text.ends_with("restart the program"),
        "{text}"
    );
    let kernel = "megakernel".into();
    let needed = 132;
    let resident = 114;
    let per_sm = 1;
    let sms = 114;
    let text = chain(&LaunchError::from(DeviceError::Occupancy { kernel, needed, resident, per_sm, sms }));
    assert!(text.contains("launch fewer blocks"), "{text}");
    let text = chain(&LoadError::from(DeviceError::OutOfMemory { asked: 96 << 30, free: 80 << 30 }));
    assert!(text.contains("96.0 GiB were asked for"), "{text}");
}
