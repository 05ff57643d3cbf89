//! The interface of devices: over a back end that records what reaches it, over the simulator, and
//! at a start without a GPU.

#[path = "../../examples/device_smoke/both/mod.rs"]
mod both;
mod peers;
mod recorder;
mod simulated;

use proptest::prelude::*;
use recorder::{device, device_with};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tilewright_codegen::device::{
    Arg, Device, DeviceError, Kernel, Properties, PtxSource, Signature, TensorShape, Work, cuda,
};
use tilewright_codegen::ir::{Arch, LaunchBounds, Param, ParamKind, Space, Ty};
use tilewright_layout::DType;

fn signature(kinds: &[(&str, ParamKind)]) -> Signature {
    Signature {
        name: "kernel".into(),
        arch: Arch::Sm90a,
        launch: LaunchBounds { threads: [128, 1, 1], cluster: [1, 1, 1], min_blocks: None, cooperative: false },
        params: kinds.iter().map(|&(name, kind)| Param { name: name.into(), kind, elements: Vec::new() }).collect(),
        dynamic_shared: 0,
        early: false,
    }
}

fn load(device: &Device, signature: Signature) -> Result<Kernel, DeviceError> {
    device.load(&PtxSource::new(signature, ""))
}

const POINTER: ParamKind = ParamKind::Value(Ty::Ptr(Space::Global));

#[test]
fn a_device_that_is_not_there_is_an_error_with_what_to_do() {
    match cuda::count() {
        Ok(count) => {
            assert_eq!(cuda::open(count).expect_err("one too many"), DeviceError::NoDevice { ordinal: count, count })
        }
        Err(error) => {
            assert_eq!(cuda::open(0).expect_err("there is no driver"), error);
            if matches!(error, DeviceError::NoDriver { .. }) {
                insta::assert_snapshot!(error, @"no CUDA driver was found: libcuda.so.1 cannot be loaded; install the NVIDIA driver (it carries libcuda.so.1), or choose a device that needs none");
            }
        }
    }
}

#[test]
fn arguments_lie_where_the_kernel_reads_them() {
    let (device, record) = device();
    let stream = device.stream().unwrap();
    let kinds = [
        ("n", ParamKind::Value(Ty::U16)),
        ("x", POINTER),
        ("a", ParamKind::Value(Ty::F32)),
        ("table", ParamKind::Bytes { bytes: 6, align: 2 }),
        ("map", ParamKind::TensorMap),
        ("k", ParamKind::Value(Ty::S32)),
    ];
    let kernel = load(&device, signature(&kinds)).unwrap();
    let x = stream.buffer(&[0f32; 64]).unwrap();
    let map = device.tensor_map(&x, TensorShape::row_major(DType::F32, [8, 8], [4, 4])).unwrap();
    let args = [
        7u16.into(),
        (&x.slice(4..64).unwrap()).into(),
        0.5f32.into(),
        Arg::Bytes(b"struct"),
        (&map).into(),
        (-2i32).into(),
    ];
    kernel.launch(&stream, [3, 2], &args).unwrap();
    let launches = record.launches.lock().unwrap();
    assert_eq!(launches.len(), 1);
    assert_eq!(launches[0].grid, [3, 2, 1]);
    let params = &launches[0].params;
    assert_eq!(params.len(), 64 + 128 + 4);
    assert_eq!(params[..2], 7u16.to_le_bytes());
    assert_eq!(params[8..16], (x.address() + 16).to_le_bytes());
    assert_eq!(params[16..20], 0.5f32.to_le_bytes());
    assert_eq!(&params[20..26], b"struct");
    assert_eq!(params[64..72], x.address().to_le_bytes());
    assert!(params[72..192].iter().all(|&b| b == 0xee));
    assert_eq!(params[192..196], (-2i32).to_le_bytes());
    assert!(params[2..8].iter().chain(&params[26..64]).all(|&b| b == 0), "gaps are zero");
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let (device, _) = device();
    let kernel = load(&device, signature(&[("n", ParamKind::Value(Ty::U32)), ("x", POINTER)])).unwrap();
    let bytes = load(&device, signature(&[("table", ParamKind::Bytes { bytes: 6, align: 2 })])).unwrap();
    let (other, _) = recorder::device();
    let foreign = other.buffer::<f32>(1).unwrap();
    let errors = [
        kernel.work(1, &[1u32.into()]),
        kernel.work(1, &[1i32.into(), Arg::null()]),
        kernel.work(1, &[1u32.into(), 8u64.into()]),
        kernel.work(1, &[1u32.into(), (&foreign).into()]),
        bytes.work(1, &[Arg::Bytes(&[0; 8])]),
    ];
    let text = errors.map(|e| e.expect_err("it does not fit").to_string()).join("\n");
    insta::assert_snapshot!(text, @"
    kernel `kernel` has 2 parameters, and the launch gives 1
    argument 0 of kernel `kernel`: `n` is a scalar of type u32, and the launch gives a scalar of type s32
    argument 1 of kernel `kernel`: `x` is a pointer to global memory, and the launch gives a scalar of type u64
    a pointer of another device was given to recorder
    argument 0 of kernel `kernel`: `table` is a structure of 6 bytes, and the launch gives a structure of 8 bytes
    ");
    kernel.work(1, &[1u32.into(), Arg::null()]).expect("this fits");
}

#[test]
fn grids_that_cannot_run_are_refused() {
    let (device, _) = device();
    let mut clustered = signature(&[]);
    clustered.launch.cluster = [2, 1, 1];
    let clustered = load(&device, clustered).unwrap();
    let mut cooperative = signature(&[]);
    cooperative.launch.cooperative = true;
    let cooperative = load(&device, cooperative).unwrap();
    let errors = [
        clustered.work(0, &[]),
        clustered.work([2, 65_536], &[]),
        clustered.work(u32::MAX, &[]),
        clustered.work(3, &[]),
        cooperative.work([3, 3], &[]),
    ];
    let text = errors.map(|e| e.expect_err("it cannot run").to_string()).join("\n");
    insta::assert_snapshot!(text, @"
    kernel `kernel` cannot be launched on a grid of [0, 1, 1] blocks: axis x is empty
    kernel `kernel` cannot be launched on a grid of [2, 65536, 1] blocks: axis y has 65535 blocks at most
    kernel `kernel` cannot be launched on a grid of [4294967295, 1, 1] blocks: axis x has 2147483647 blocks at most
    kernel `kernel` cannot be launched on a grid of [3, 1, 1] blocks: axis x is not a multiple of the cluster's 2
    kernel `kernel` is launched cooperatively on 9 blocks, and only 8 are resident at once (2 on each of 4 multiprocessors); launch fewer blocks, or use fewer registers, less shared memory or fewer threads
    ");
    clustered.work([4, 65_535], &[]).expect("two clusters wide");
    cooperative.work([4, 2], &[]).expect("all resident");
}

#[test]
fn kernels_that_the_device_cannot_hold_are_refused() {
    let spoil = |change: fn(&mut Signature, &mut Properties)| {
        let mut figures = device().0.properties().clone();
        let mut signature = signature(&[]);
        change(&mut signature, &mut figures);
        load(&device_with(figures).0, signature).expect_err("it cannot be held").to_string()
    };
    let text = [
        spoil(|kernel, _| kernel.arch = Arch::Sm100a),
        spoil(|_, device| device.capability = (12, 0)),
        spoil(|_, device| device.capability = (7, 5)),
        spoil(|_, device| device.capability = (8, 6)),
        spoil(|kernel, _| kernel.launch.threads = [1024, 2, 1]),
        spoil(|kernel, _| kernel.dynamic_shared = 232_449),
        spoil(|kernel, _| {
            kernel.params = vec![Param {
                name: "all".into(),
                kind: ParamKind::Bytes { bytes: 4097, align: 1 },
                elements: Vec::new(),
            }];
        }),
        spoil(|kernel, device| (kernel.launch.cooperative, device.cooperative) = (true, false)),
    ]
    .join("\n");
    insta::assert_snapshot!(text, @"
    kernel `kernel` is for sm_100a, which recorder (compute capability 9.0) does not run; record it for sm_90a
    kernel `kernel` is for sm_90a, which recorder (compute capability 12.0) does not run; record it for sm_120
    kernel `kernel` is for sm_90a, which recorder (compute capability 7.5) does not run
    kernel `kernel` is for sm_90a, which recorder (compute capability 8.6) does not run; record it for sm_80
    kernel `kernel` needs 2048 threads per block, and recorder grants 1024
    kernel `kernel` needs 232449 bytes of shared memory per block, and recorder grants 232448
    kernel `kernel` needs 4097 bytes of parameters, and recorder grants 4096
    kernel `kernel` is launched cooperatively, which recorder does not support
    ");
    load(&device().0, signature(&[])).expect("unspoilt");
}

#[test]
fn memory_is_freed_with_its_last_user() {
    let (device, record) = device();
    let stream = device.stream().unwrap();
    let live = || record.live.load(Ordering::Relaxed);
    let whole = stream.buffer(&[1u32, 2, 3, 4]).unwrap();
    let half = whole.slice(2..4).unwrap();
    drop(whole);
    assert_eq!((live(), stream.read(&half).unwrap()), (1, vec![3, 4]));

    let kernel = load(&device, signature(&[("x", POINTER)])).unwrap();
    let work = [Work::fill(&half, 0xff), kernel.work(1, &[(&half).into()]).unwrap()];
    let graph = device.graph(&work).unwrap();
    drop((half, work));
    assert_eq!(live(), 1, "the graph keeps what it uses");
    graph.launch(&stream).unwrap();
    graph.launch(&stream).unwrap();
    assert_eq!(record.launches.lock().unwrap().len(), 2);
    drop(graph);
    assert_eq!(live(), 0);
}

/// The memory contract of docs/device.md for the memory that host and device share: whatever may
/// still use it keeps it, in safe code, whichever handle is dropped first.
#[test]
fn host_memory_that_a_device_may_use_outlives_its_owner() {
    let (device, record) = device();
    let stream = device.stream().unwrap();
    let live = || record.live_host.load(Ordering::Relaxed);
    let kernel = load(&device, signature(&[("x", POINTER)])).unwrap();

    // Mapped words: work, graphs and clones keep them; the last one frees them.
    let words = device.mapped::<u32>(4).unwrap();
    let clone = words.clone();
    let work = kernel.work(1, &[(&words).into()]).unwrap();
    drop(words);
    assert_eq!((live(), clone.load(0)), (1, Ok(0)), "the clone keeps the words");
    drop(clone);
    assert_eq!(live(), 1, "work that is not submitted yet keeps the words");
    let graph = device.graph(std::slice::from_ref(&work)).unwrap();
    drop(work);
    graph.launch(&stream).unwrap();
    assert_eq!(live(), 1, "the graph keeps the words");
    drop(graph);
    assert_eq!(live(), 0);

    // A device that reaches the words of another keeps them as well.
    let (peer, _) = recorder::device();
    let on_peer = load(&peer, signature(&[("x", POINTER)])).unwrap();
    let words = device.mapped::<u64>(1).unwrap();
    let work = on_peer.work(1, &[Arg::peer_mapped(&words)]).unwrap();
    drop(words);
    assert_eq!(live(), 1, "work of the peer keeps the words");
    drop(work);
    assert_eq!(live(), 0);

    // Pinned memory: a queued copy owns it, and the memory comes back from the copy alone.
    let pinned = device.pinned::<u32>(4).unwrap();
    let buffer = device.buffer::<u32>(4).unwrap();
    let pending = stream.upload_pinned(pinned, &buffer).unwrap();
    assert_eq!(live(), 1, "the copy keeps the memory");
    let pinned = pending.wait().unwrap();
    assert_eq!((live(), pinned.len()), (1, 4));
    drop(stream.download_pinned(&buffer, pinned).unwrap());
    assert_eq!(live(), 0, "a dropped copy frees the memory");
}

#[test]
fn parts_outside_a_buffer_and_parts_of_the_wrong_size_are_errors() {
    let (device, _) = device();
    let stream = device.stream().unwrap();
    let buffer = device.buffer::<u32>(5).unwrap();
    let beyond = std::ops::Range { start: 4, end: 6 };
    let backwards = std::ops::Range { start: 3, end: 2 };
    assert_eq!(buffer.slice(beyond).err(), Some(DeviceError::Range { start: 4, end: 6, len: 5 }));
    assert_eq!(buffer.slice(backwards).err(), Some(DeviceError::Range { start: 3, end: 2, len: 5 }));
    assert_eq!(buffer.cast::<u64>().err(), Some(DeviceError::Length { from: 5, to: 2 }));
    assert!(matches!(buffer.slice(1..5).unwrap().cast::<u64>(), Err(DeviceError::Range { .. })));
    assert_eq!(stream.upload(&[0; 4], &buffer), Err(DeviceError::Length { from: 4, to: 5 }));
    assert_eq!(stream.download(&buffer, &mut [0; 6]), Err(DeviceError::Length { from: 5, to: 6 }));
    assert!(matches!(device.buffer::<u64>(usize::MAX).err(), Some(DeviceError::OutOfMemory { asked: u64::MAX, .. })));
}

#[test]
fn tensor_maps_stay_inside_their_buffer() {
    let (device, _) = device();
    let buffer = device.buffer::<f32>(64).unwrap();
    let shape = TensorShape::row_major(DType::F32, [8, 8], [4, 4]);
    device.tensor_map(&buffer, shape.clone()).expect("it fits");
    let errors = [
        device.tensor_map(&buffer.slice(0..63).unwrap(), shape.clone()),
        device.tensor_map(&buffer.slice(1..64).unwrap(), TensorShape::row_major(DType::F32, [4, 4], [4, 4])),
        device.tensor_map(&recorder::device().0.buffer::<f32>(64).unwrap(), shape),
    ];
    insta::assert_snapshot!(errors.map(|e| e.expect_err("it does not fit").to_string()).join("\n"), @"
    a tensor map of 256 bytes on a buffer of 252 bytes
    a tensor map starts at a multiple of 16 bytes
    a buffer of another device was given to recorder
    ");
}

#[test]
fn mapped_words_are_seen_at_once_and_bounded() {
    let (device, _) = device();
    let tokens = device.mapped::<u64>(3).unwrap();
    let same = tokens.clone();
    tokens.store(2, u64::MAX).unwrap();
    assert_eq!((same.load(2), same.load(0)), (Ok(u64::MAX), Ok(0)));
    assert_eq!(same.load(3), Err(DeviceError::Range { start: 3, end: 4, len: 3 }));
    let flags = device.mapped::<u32>(0).unwrap();
    assert!(flags.is_empty() && flags.store(0, 1).is_err());
}

#[test]
fn events_measure_what_lies_between_them() {
    let (device, _) = device();
    let stream = device.stream().unwrap();
    let other = recorder::device().0.stream().unwrap();
    let kernel = load(&device, signature(&[])).unwrap();
    let before = stream.record().unwrap();
    let work = kernel.work(1, &[]).unwrap();
    (0..3).for_each(|_| stream.submit(&work).unwrap());
    let after = stream.record().unwrap();
    assert_eq!(after.since(&before), Ok(Duration::from_micros(3)));
    assert!(matches!(other.wait_for(&after), Err(DeviceError::Foreign { what: "event", .. })));
}

proptest! {
    #[test]
    fn what_is_copied_in_by_any_way_comes_out_by_any_way(elements in proptest::collection::vec(any::<u16>(), 0..300)) {
        let (device, _) = device();
        let stream = device.stream().unwrap();
        let plain = stream.buffer(&elements).unwrap();
        let mut pinned = device.pinned::<u16>(elements.len()).unwrap();
        prop_assert!(pinned.iter().all(|&x| x == 0));
        pinned.copy_from_slice(&elements);
        let by_pinned = device.buffer::<u16>(elements.len()).unwrap();
        let mut pinned = stream.upload_pinned(pinned, &by_pinned).unwrap().wait().unwrap();
        prop_assert_eq!(&pinned[..], &elements[..]);
        pinned.fill(0);
        let copy = device.buffer::<u16>(elements.len()).unwrap();
        stream.copy(&by_pinned, &copy).unwrap();
        let back = stream.download_pinned(&copy, pinned).unwrap().wait().unwrap();
        prop_assert_eq!(&back[..], &elements[..]);
        prop_assert_eq!(stream.read(&plain).unwrap(), elements);
    }
}
