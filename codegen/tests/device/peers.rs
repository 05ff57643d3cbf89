//! Devices that reach each other's memory: packets that carry their own arrival, on simulated
//! devices, or on the GPUs that `TILEWRIGHT_PEERS` names (`cuda:0-1`), where a round's time is
//! printed.

use half::bf16;
use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::device::{
    Arg, Collective, Device, DeviceError, Kernel, Summed, Work, launch_side_by_side, open_peers, sim,
};
use tilewright_codegen::ir::{Arch, Kernel as Recorded, attr::Scope};
use tilewright_codegen::verify::{Verified, verify};

/// Threads of a block.
const THREADS: u32 = 128;

/// Each of `devices` devices sends a packet for each of its threads to every other in each round,
/// and waits for those of the round from all: `inbox` is u64 `[2, devices, threads]`, a word of
/// data below the number of the round. The sums of what came are in `out`.
fn exchange(devices: u32) -> Recorded {
    record("exchange", Arch::Sm90a, block(THREADS).cooperative(), |k| body(k, devices))
}

fn body(k: &Builder, devices: u32) {
    let inboxes: Vec<_> = (0..devices).map(|device| k.global::<u64>(&format!("inbox{device}"))).collect();
    let inbox = k.global::<u64>("inbox");
    let out = k.global::<u32>("out");
    let rank = k.param::<u32>("rank");
    let rounds = k.param::<u32>("rounds");
    let before = k.param::<u32>("before");
    let thread = k.block_id() * THREADS + k.tid();
    let threads = k.blocks() * THREADS;
    let sum = k.var(0u32);
    k.for_(0u32, rounds, |round| {
        let tag = before + round + 1;
        let place = [tag, thread, threads];
        let data = value(rank, tag, thread);
        for (device, inbox) in inboxes.iter().enumerate() {
            k.when(rank.ne(device as u32), || {
                inbox.at(slot(rank, place, devices)).store_relaxed(k.join::<u64>(data, tag), Scope::Sys)
            });
        }
        k.for_(0u32, devices, |from| {
            k.when(from.ne(rank), || {
                let word = k.var(0u64);
                k.loop_(|| {
                    word.set(inbox.at(slot(from, place, devices)).load_relaxed(Scope::Sys));
                    k.break_if(word.get().split().1.eq(tag));
                });
                sum.set(sum.get() + word.get().split().0);
            });
        });
        // A packet of the round after the next goes to this slot: its sender has seen this block's
        // packets of the next round.
    });
    out.at(thread).store(sum.get());
}

/// The place of a sender's packet.
fn slot<'k>(from: Val<'k, u32>, [tag, thread, threads]: [Val<'k, u32>; 3], devices: u32) -> Val<'k, u32> {
    ((tag % 2) * devices + from) * threads + thread
}

/// The number that a device sends in a round.
fn value<'k>(rank: Val<'k, u32>, tag: Val<'k, u32>, thread: Val<'k, u32>) -> Val<'k, u32> {
    (rank + 1) * 1000 + tag * 7 + thread
}

/// Runs `rounds` rounds, twice, on all devices; seconds of the second launch, by events of the
/// first device.
fn run(devices: &[Device], kernel: &Verified, blocks: u32, rounds: u32) -> Result<f64, DeviceError> {
    let count = devices.len();
    let threads = (blocks * THREADS) as usize;
    let streams = devices.iter().map(Device::stream).collect::<Result<Vec<_>, _>>()?;
    let kernels: Vec<Kernel> = devices.iter().map(|device| device.load(kernel)).collect::<Result<_, _>>()?;
    let inboxes = streams.iter().map(|s| s.buffer(&vec![0u64; 2 * count * threads])).collect::<Result<Vec<_>, _>>()?;
    let outs = devices.iter().map(|device| device.buffer::<u32>(threads)).collect::<Result<Vec<_>, _>>()?;
    let mut seconds = 0.0;
    for launch in 0..2 {
        let before = launch * rounds;
        let work = |rank: usize| {
            let mut args: Vec<Arg> = inboxes.iter().map(Arg::peer).collect();
            args.extend([(&inboxes[rank]).into(), (&outs[rank]).into()]);
            args.extend([rank as u32, rounds, before].map(Into::into));
            Ok((&streams[rank], kernels[rank].work(blocks, &args)?))
        };
        let launches = (0..count).map(work).collect::<Result<Vec<_>, DeviceError>>()?;
        let began = streams[0].record()?;
        launch_side_by_side(&launches)?;
        let ended = streams[0].record()?;
        streams.iter().try_for_each(|stream| stream.wait())?;
        seconds = ended.since(&began)?.as_secs_f64();
        for (rank, (stream, out)) in streams.iter().zip(&outs).enumerate() {
            for (thread, found) in stream.read(out)?.into_iter().enumerate() {
                let of = |from: u32, tag: u32| (from + 1) * 1000 + tag * 7 + thread as u32;
                let others = (0..count as u32).filter(|&from| from as usize != rank);
                let all = others.flat_map(|from| (before + 1..=before + rounds).map(move |tag| of(from, tag)));
                assert_eq!(found, all.fold(0u32, u32::wrapping_add), "device {rank}, thread {thread}");
            }
        }
    }
    Ok(seconds)
}

#[test]
fn packets_arrive_at_every_peer() {
    for count in [2, 3] {
        let kernel = verify(exchange(count)).expect("it verifies");
        for seed in 0..20 {
            let devices = sim::peers(&sim::Options { seed, sms: 2, ..sim::Options::default() }, count);
            run(&devices, &kernel, 1, 4).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}

#[test]
fn gpus_reach_each_other() {
    let Ok(name) = std::env::var("TILEWRIGHT_PEERS") else { return };
    let devices = open_peers(&name).unwrap_or_else(|error| panic!("{error}"));
    let kernel = verify(exchange(devices.len() as u32)).expect("it verifies");
    println!("{} devices, {}", devices.len(), devices[0].properties().name);
    for blocks in [1, 4, 16, 64, 128] {
        let rounds = 2000;
        let times: Vec<f64> =
            (0..3).map(|_| run(&devices, &kernel, blocks, rounds).unwrap_or_else(|e| panic!("{e}"))).collect();
        let best = times.into_iter().fold(f64::INFINITY, f64::min) / f64::from(rounds) * 1e6;
        println!("{:7} bytes to each peer, {blocks:3} blocks: {best:.2} us a round", blocks * THREADS * 4);
    }
}

#[test]
fn what_differs_does_not_run_side_by_side() {
    let devices = sim::peers(&sim::Options::default(), 2);
    let streams = [devices[0].stream().unwrap(), devices[1].stream().unwrap()];
    let kernel = |device: &Device, number: u32| {
        let build = |k: &Builder| {
            let x = k.global::<u32>("x");
            k.when(k.tid().eq(0), || x.store(number));
        };
        device.load(&verify(record("kernel", Arch::Sm90a, block(32), build)).expect("it verifies")).expect("it loads")
    };
    let x = streams[0].buffer(&[0u32]).unwrap();
    let refused = |other: u32, grid: u32| {
        let works = [kernel(&devices[0], 1), kernel(&devices[1], other)];
        let work = |at: usize, grid: u32| works[at].work(grid, &[Arg::peer(&x)]).unwrap();
        launch_side_by_side(&[(&streams[0], work(0, 1)), (&streams[1], work(1, grid))]).unwrap_err().to_string()
    };
    insta::assert_snapshot!(refused(2, 1), @"kernel `kernel` cannot run side by side: another device runs another kernel; the simulator runs one on all");
    insta::assert_snapshot!(refused(1, 2), @"kernel `kernel` cannot run side by side: a grid has another shape than the first");
}

/// The summands of some devices: small numbers, so that a sum in another order has other bits
/// somewhere.
fn parts(count: usize, elements: usize) -> Vec<Vec<f32>> {
    let number = |device: usize, at: usize| ((at * 7919 + device * 104_729) % 2003) as f32 / 1001.0 - 1.0;
    (0..count).map(|device| (0..elements).map(|at| number(device, at)).collect()).collect()
}

/// NCCL's sums on the GPUs that are named, between launches in graphs: the same bits on all, the
/// right numbers, again and again.
fn nccl_adds_up<T: Summed + PartialEq + std::fmt::Debug>(devices: &[Device], round: fn(f32) -> T, widen: fn(T) -> f32) {
    let nccl = Collective::open(devices).unwrap_or_else(|error| panic!("{error}"));
    let streams: Vec<_> = devices.iter().map(|device| device.stream().unwrap()).collect();
    for elements in [1, 1000, 2 << 20, 8 << 20] {
        let parts: Vec<Vec<T>> =
            parts(devices.len(), elements).iter().map(|part| part.iter().map(|&x| round(x)).collect()).collect();
        let from: Vec<_> = streams.iter().zip(&parts).map(|(stream, part)| stream.buffer(part).unwrap()).collect();
        let to: Vec<_> = devices.iter().map(|device| device.buffer::<T>(elements).unwrap()).collect();
        // What is there before is worth nothing.
        let again = 16;
        let sums = 2 * 16;
        let work = |at: usize| -> Vec<Work> {
            let sum = || nccl.sum(&from[at], &to[at]).unwrap();
            (0..again).flat_map(|_| [Work::fill(&to[at], 0xff), sum(), sum()]).collect()
        };
        let work: Vec<Vec<Work>> = (0..devices.len()).map(work).collect();
        let graphs = nccl.graphs(&work).unwrap_or_else(|error| panic!("{error}"));
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let began = streams[0].record().unwrap();
            graphs.iter().zip(&streams).for_each(|(graph, stream)| graph.launch(stream).unwrap());
            let ended = streams[0].record().unwrap();
            streams.iter().for_each(|stream| stream.wait().unwrap());
            best = best.min(ended.since(&began).unwrap().as_secs_f64() / f64::from(sums) * 1e6);
        }
        let found: Vec<Vec<T>> = streams.iter().zip(&to).map(|(stream, to)| stream.read(to).unwrap()).collect();
        assert!(found.iter().all(|sum| *sum == found[0]), "{elements} elements: devices have other bits");
        let unit = widen(round(1.0 + 1.0 / 300.0)) - 1.0;
        let limit = if unit == 0.0 { 2e-2 } else { 1e-5 };
        for at in 0..elements {
            let (sum, parts): (f32, Vec<f32>) =
                (widen(found[0][at]), parts.iter().map(|part| widen(part[at])).collect());
            let expected: f32 = parts.iter().sum();
            assert!(
                (sum - expected).abs() <= limit * devices.len() as f32,
                "element {at} of {elements}: {sum}, {expected}"
            );
        }
        println!("NCCL, {} devices, {:9} bytes: {best:.1} us a sum", devices.len(), elements * size_of::<T>());
    }
}

#[test]
fn gpus_add_up_by_nccl() {
    let Ok(name) = std::env::var("TILEWRIGHT_PEERS") else { return };
    let devices = open_peers(&name).unwrap_or_else(|error| panic!("{error}"));
    nccl_adds_up::<bf16>(&devices, bf16::from_f32, bf16::to_f32);
    nccl_adds_up::<f32>(&devices, |x| x, |x| x);
}

/// Devices that would not add up together are refused before anything is recorded.
#[test]
fn simulated_devices_have_no_nccl() {
    let devices = sim::peers(&sim::Options::default(), 2);
    let error = Collective::open(&devices).unwrap_err().to_string();
    assert!(error.ends_with("has no NCCL, which is for NVIDIA GPUs; exchange by the library's own kernels"), "{error}");
    let none = Collective::open(&[]).unwrap_err();
    assert!(matches!(none, DeviceError::NoCollective { .. }), "{none}");
}
