//! The simulator as a device: the checks of every device, and what is its own: faults, seeds,
//! memory that remembers.

use super::both::CHECKS;
use std::sync::Arc;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::device::sim::{Options, Simulator, open};
use tilewright_codegen::device::{Device, DeviceError, Kernel, KernelSource, PtxSource, TensorShape};
use tilewright_codegen::ir::attr::Scope;
use tilewright_codegen::ir::{Arch, LaunchBounds};
use tilewright_codegen::sim::HostOrder;
use tilewright_codegen::verify::verify;
use tilewright_layout::DType;

/// A machine of few multiprocessors, so that a full grid of it is small.
fn small(seed: u64) -> Simulator {
    Simulator::new(Options { seed, sms: 2, ..Options::default() })
}

fn load(device: &Device, launch: LaunchBounds, build: impl Fn(&Builder)) -> Kernel {
    device.load(&verify(record("kernel", Arch::Sm90a, launch, build)).expect("it verifies")).expect("it loads")
}

/// Thread 0 adds one to the first word of x.
fn increment(k: &Builder) {
    let x = k.global::<u32>("x");
    k.when(k.tid().eq(0), || x.store(x.load() + 1));
}

#[test]
fn it_does_what_every_device_must() {
    for (name, check) in CHECKS {
        for seed in 0..3 {
            if let Err(error) = check(&small(seed).device()) {
                panic!("{name}, seed {seed}: {error}");
            }
        }
    }
}

#[test]
fn ptx_written_by_hand_is_refused() {
    let kernel = verify(record("add", Arch::Sm90a, block(32), increment)).expect("it verifies");
    let by_hand = PtxSource::new(kernel.signature(), kernel.ptx());
    let error = open(0).load(&by_hand).expect_err("there is no kernel in it").to_string();
    insta::assert_snapshot!(error, @"kernel `add` is PTX written by hand, which simulated H100 does not run; record it with the builder");
}

#[test]
fn a_fault_carries_its_report_and_the_device_goes_on() {
    let device = open(40);
    let stream = device.stream().unwrap();
    let kernel = load(&device, block(32), increment);
    let word = stream.buffer(&[1u32]).unwrap();
    let fresh = device.buffer::<u32>(1).unwrap();
    kernel.launch(&stream, 1, &[(&word).into()]).unwrap();
    let Err(DeviceError::Fault { kernel: name, seed, report }) = kernel.launch(&stream, 1, &[(&fresh).into()]) else {
        panic!("what it reads was never written")
    };
    assert_eq!((name.as_str(), seed), ("kernel", 41), "the second launch of seed 40");
    assert!(report.contains("uninitialised") && report.contains("(x)") && report.contains("simulated.rs"), "{report}");
    kernel.launch(&stream, 1, &[(&word).into()]).unwrap();
    assert_eq!(stream.read(&word).unwrap(), [3]);
}

#[test]
fn what_was_written_is_known_from_launch_to_launch() {
    let device = open(0);
    let stream = device.stream().unwrap();
    let kernel = load(&device, block(32), |k| k.global::<u32>("y").at(k.tid()).store(k.tid()));
    let y = device.buffer::<u32>(33).unwrap();
    let copy = stream.buffer(&[0u32; 33]).unwrap();
    let unwritten = |buffer: &str, offset| Err(DeviceError::Unwritten { buffer: buffer.into(), offset });
    kernel.launch(&stream, 1, &[(&y).into()]).unwrap();
    assert_eq!(stream.read(&y), unwritten("y", 128));
    assert_eq!(stream.read(&y.slice(0..32).unwrap()).unwrap().len(), 32);
    stream.copy(&y, &copy).unwrap();
    assert!(matches!(stream.read(&copy), Err(DeviceError::Unwritten { offset: 128, .. })), "a copy copies that too");
    stream.fill(&y.slice(32..33).unwrap(), 0).unwrap();
    assert_eq!(stream.read(&y).unwrap()[31..], [31, 0]);
    stream.poison(&y.slice(1..2).unwrap(), 0xff).unwrap();
    assert_eq!(stream.read(&y), unwritten("y", 4));
}

#[test]
fn freed_memory_is_out_of_bounds() {
    let device = open(0);
    let stream = device.stream().unwrap();
    let kernel = load(&device, block(32), |k| {
        let x = k.param::<u64>("address").to_global::<u32>();
        k.when(k.tid().eq(0), || x.store(x.load() + 1));
    });
    let first = stream.buffer(&[1u32]).unwrap();
    let _last = stream.buffer(&[1u32]).unwrap();
    let address = first.address();
    drop(first);
    let error = kernel.launch(&stream, 1, &[address.into()]);
    assert!(matches!(&error, Err(DeviceError::Fault { report, .. }) if report.contains("out of bounds")), "{error:?}");
    let before = device.free_bytes().unwrap();
    drop(device.buffer::<u8>(1000).unwrap());
    assert_eq!(device.free_bytes().unwrap(), before);
}

#[test]
fn residency_is_by_threads_and_shared_memory() {
    let device = small(0).device();
    let resident = |launch, build: fn(&Builder)| load(&device, launch, build).resident_blocks();
    assert_eq!(resident(block(1024), increment), 2 * 2);
    assert_eq!(resident(block(32), increment), 2 * 32);
    assert_eq!(
        resident(block(32), |k| {
            k.shared::<u32>("pool", 25_000);
        }),
        2 * 2
    );
    assert_eq!(resident(block(1024).cluster(4), increment), 4);
}

#[test]
fn a_kernel_that_waits_for_the_host_is_told_so() {
    let device = open(0);
    let stream = device.stream().unwrap();
    let words = device.mapped::<u32>(2).unwrap();
    let kernel = load(&device, block(32), |k| {
        let words = k.global::<u32>("words");
        k.when(k.tid().eq(0), || {
            words.at(1).store_release(42u32, Scope::Sys);
            k.loop_(|| k.break_if(words.load_acquire(Scope::Sys).eq(1)));
        });
    });
    let error = kernel.launch(&stream, 1, &[(&words).into()]);
    assert!(matches!(&error, Err(DeviceError::Fault { report, .. }) if report.contains("deadlock")), "{error:?}");
    assert_eq!(words.load(1), Ok(42), "what it wrote before is seen");
    words.store(0, 1).unwrap();
    kernel.launch(&stream, 1, &[(&words).into()]).expect("it finds what it waits for");
}

#[test]
fn what_a_host_would_miss_that_looks_meanwhile_is_told() {
    let host = HostOrder::new("words", 0, Arc::new(|seen| 4..4 + 4 * seen));
    let device = Simulator::new(Options { host: Some(host), ..Options::default() }).device();
    let stream = device.stream().unwrap();
    let words = device.mapped::<u32>(2).unwrap();
    let tell: fn(&Builder, bool) = |k, releases| {
        let words = k.global::<u32>("words");
        k.when(k.tid().eq(0), || {
            words.at(1).store_relaxed(42u32, Scope::Sys);
            if releases { words.store_release(1u32, Scope::Sys) } else { words.store_relaxed(1u32, Scope::Sys) }
        });
    };
    load(&device, block(32), move |k| tell(k, true)).launch(&stream, 1, &[(&words).into()]).expect("it is ordered");
    let error = load(&device, block(32), move |k| tell(k, false)).launch(&stream, 1, &[(&words).into()]);
    let told = |report: &str| report.starts_with("order for the host");
    assert!(matches!(&error, Err(DeviceError::Fault { report, .. }) if told(report)), "{error:?}");
}

#[test]
fn counters_are_of_the_last_launch() {
    let simulator = small(0);
    let device = simulator.device();
    assert!(simulator.last_launch().is_none());
    let stream = device.stream().unwrap();
    let word = stream.buffer(&[1u32]).unwrap();
    load(&device, block(32), increment).launch(&stream, 1, &[(&word).into()]).unwrap();
    let counters = simulator.last_launch().expect("it ran");
    assert_eq!((counters.sectors(), counters.conflicts()), (2, 0), "a load and a store");
}

#[test]
fn tensor_maps_of_every_width_are_encoded() {
    let device = open(0);
    let buffer = device.buffer::<f64>(64).unwrap();
    for dtype in DType::ALL {
        let shape = TensorShape::row_major(dtype, [4, 16], [4, 16]);
        device.tensor_map(&buffer, shape).unwrap_or_else(|error| panic!("{dtype}: {error}"));
    }
}
