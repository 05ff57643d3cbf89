//! Barriers of simulated devices: every device passes each as often as it arrived, earlier writes
//! are visible after it, and no device waits for ever for one that does not come. Every
//! synchronising instruction removed or weakened is found out, and so are barriers that are left
//! out.

use std::convert::Infallible;
use std::sync::Arc;

use tilewright_codegen::build::{Builder, Global, Ptr, block, record};
use tilewright_codegen::device::backend::Work;
use tilewright_codegen::device::{Arg, Buffer, Device, DeviceError, Stream, launch_side_by_side, sim};
use tilewright_codegen::ir::attr::{LdOrder, Scope, StOrder};
use tilewright_codegen::ir::{Arch, Inst, Kernel, MemOp, Stmt, StmtKind};
use tilewright_codegen::sim::mutate::{Survey, under_seeds};
use tilewright_codegen::verify::{Verified, verify};
use tilewright_kernels::exchange::{
    BARRIER_GAVE_UP, BARRIER_LEFT, BARRIER_POLLS, BARRIER_WORDS, PartsShape, device_barrier, sum_parts,
    wait_for_devices,
};
use tilewright_kernels::tile::Float;

/// Polls that no barrier takes that all devices reach.
const PATIENT: u32 = 1 << 14;
/// Polls of a device that waits in vain.
const IMPATIENT: u32 = 20;

/// A device's words before the first barrier.
fn before(polls: u32) -> Vec<u32> {
    let mut words = vec![0; BARRIER_WORDS as usize];
    words[BARRIER_POLLS as usize] = polls;
    words
}

/// Devices, and their words.
struct Met {
    devices: Vec<Device>,
    streams: Vec<Stream>,
    words: Vec<Buffer<u32>>,
}

impl Met {
    fn new(seed: u64, count: u32, polls: u32) -> Met {
        let devices = sim::peers(&sim::Options { seed, ..sim::Options::default() }, count);
        let streams: Vec<Stream> = devices.iter().map(|device| device.stream().unwrap()).collect();
        let words = streams.iter().map(|stream| stream.buffer(&before(polls)).unwrap()).collect();
        Met { devices, streams, words }
    }

    /// The launch of a device: its number, the words of all, and what else there is.
    fn work(&self, kernel: &Verified, at: usize, others: &[Buffer<u32>]) -> Work {
        let buffers = self.words.iter().chain(others).map(Arg::peer);
        let args: Vec<Arg> = [(at as u32).into()].into_iter().chain(buffers).collect();
        self.devices[at].load(kernel).unwrap().work(1, &args).unwrap()
    }

    /// A barrier that all but one reach.
    fn hold(&self, absent: Option<usize>) {
        let kernel = verify(device_barrier(Arch::Sm90a, self.devices.len() as u32)).unwrap();
        let come = (0..self.devices.len()).filter(|&at| Some(at) != absent);
        let launches: Vec<_> = come.map(|at| (&self.streams[at], self.work(&kernel, at, &[]))).collect();
        launch_side_by_side(&launches).unwrap();
    }

    fn word(&self, at: usize, word: u32) -> u32 {
        self.streams[at].read(&self.words[at]).unwrap()[word as usize]
    }
}

#[test]
fn devices_pass_many_barriers() {
    for (seed, count) in [(0, 2u32), (1, 3), (2, 4), (3, 8)] {
        let met = Met::new(seed, count, PATIENT);
        (0..3).for_each(|_| met.hold(None));
        let mut expected = before(PATIENT);
        expected[BARRIER_LEFT as usize] = 3;
        for at in 0..count as usize {
            expected[..count as usize].fill(3);
            expected[at] = 0;
            assert_eq!(met.streams[at].read(&met.words[at]).unwrap(), expected, "seed {seed}, device {at} of {count}");
        }
    }
}

/// A waiting device records which device it gave up on, stops waiting, and still arrives at every
/// barrier.
#[test]
fn a_device_that_does_not_come_is_named_by_who_waits() {
    for (seed, count, absent) in [(4, 2, 1), (5, 2, 0), (6, 4, 2), (7, 8, 7)] {
        let met = Met::new(seed, count, IMPATIENT);
        met.hold(Some(absent));
        let waiting: Vec<usize> = (0..count as usize).filter(|&at| at != absent).collect();
        // The second barrier is not waited for: the number of polls would take for ever here.
        waiting.iter().for_each(|&at| {
            let mut words = met.streams[at].read(&met.words[at]).unwrap();
            words[BARRIER_POLLS as usize] = u32::MAX;
            met.streams[at].upload(&words, &met.words[at]).unwrap();
        });
        met.hold(Some(absent));
        for &at in &waiting {
            let words = [absent as u32, BARRIER_LEFT, BARRIER_GAVE_UP].map(|word| met.word(at, word));
            assert_eq!(words, [0, 2, 1 << absent], "device {at}, without {absent} of {count}");
            assert_eq!(met.word(absent, at as u32), 2, "device {at} comes to {absent}");
        }
    }
}

/// The fault of a kernel that [`rounds`] records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// No barrier before the others' numbers are read.
    NoBarrierBefore,
    /// No barrier before the numbers are written again.
    NoBarrierAfter,
    /// A device skips a barrier, and takes the next one for it.
    OneComesLess,
    /// Barriers are not counted: all have reached the second before it begins.
    NotCounted,
    /// Arrivals are released to the threads of the device that comes alone.
    ReleasedOnOneDevice,
    /// Arrivals are acquired from the threads of the device that waits alone.
    AcquiredOnOneDevice,
}

const ROUNDS: u32 = 3;

/// An exchange in one launch on each device, so that the simulator's clocks include barriers: each
/// device writes a number, all reach a barrier, each reads the numbers of all, all reach another
/// barrier. If a barrier is a launch, its end is the barrier of the warp.
fn rounds(devices: u32, planted: Planted) -> Kernel {
    let mut kernel = recorded(devices, planted);
    kernel.edit(&mut |block| {
        for Stmt { op, .. } in block {
            if let StmtKind::Inst(Inst::Mem(MemOp::St { order: order @ StOrder::Release(Scope::Sys), .. })) = op
                && planted == Planted::ReleasedOnOneDevice
            {
                *order = StOrder::Release(Scope::Gpu);
            }
            if let StmtKind::Inst(Inst::Mem(MemOp::Ld { order: order @ LdOrder::Acquire(Scope::Sys), .. })) = op
                && planted == Planted::AcquiredOnOneDevice
            {
                *order = LdOrder::Acquire(Scope::Gpu);
            }
        }
    });
    kernel
}

fn recorded(devices: u32, planted: Planted) -> Kernel {
    record("rounds", Arch::Sm90a, block(32), move |k: &Builder| {
        let rank = k.param::<u32>("rank");
        let all = |name: &str| -> Vec<Ptr<Global, u32>> {
            (0..devices).map(|at| k.global::<u32>(&format!("{name}{at}"))).collect()
        };
        let words = all("words");
        let numbers = all("numbers");
        let found = all("found");
        let of_this = |of: &[Ptr<'_, Global, u32>], what: &dyn Fn(Ptr<'_, Global, u32>)| {
            (0u32..).zip(of).for_each(|(at, &of)| k.when(rank.eq(at), || what(of)));
        };
        let barrier = |comes: bool| {
            if !comes {
                return k.sync_warp();
            }
            wait_for_devices(rank, &words);
            k.sync_warp();
            if planted == Planted::NotCounted {
                of_this(&words, &|mine| k.when(k.lane().eq(0), || mine.at(BARRIER_LEFT).store(0u32)));
                k.sync_warp();
            }
        };
        for round in 0..ROUNDS {
            // Another lane than those that release.
            of_this(&numbers, &|mine| k.when(k.lane().eq(31), || mine.store(rank * 100 + round)));
            if planted == Planted::OneComesLess && round == 1 {
                k.when(rank.ne(0), || wait_for_devices(rank, &words));
                k.sync_warp();
            } else {
                barrier(planted != Planted::NoBarrierBefore);
            }
            for (at, theirs) in (0u32..).zip(&numbers) {
                of_this(&found, &|mine| {
                    k.when(k.lane().eq(8 + at), || mine.at(round * devices + at).store(theirs.load()));
                });
            }
            // After the last round no device writes.
            if round + 1 < ROUNDS {
                barrier(planted != Planted::NoBarrierAfter);
            }
        }
    })
}

/// Rounds of some devices of all; what each of all found.
fn run(met: &Met, kernel: &Verified, come: std::ops::Range<usize>) -> Result<Vec<Vec<u32>>, DeviceError> {
    let count = met.devices.len();
    let each = |len: usize| -> Result<Vec<Buffer<u32>>, DeviceError> {
        met.streams.iter().map(|stream| stream.buffer(&vec![u32::MAX; len])).collect()
    };
    let found = each(ROUNDS as usize * count)?;
    let others: Vec<Buffer<u32>> = each(1)?.into_iter().chain(found.iter().cloned()).collect();
    let launches: Vec<_> = come.map(|at| (&met.streams[at], met.work(kernel, at, &others))).collect();
    launch_side_by_side(&launches)?;
    met.streams.iter().zip(&found).map(|(stream, found)| stream.read(found)).collect()
}

/// The fault of rounds in which all devices arrive and, for two devices, of rounds in which one
/// waits in vain.
fn wrong(kernel: &Verified, count: u32, seed: u64) -> Option<String> {
    let first = |error: DeviceError| error.to_string().lines().next().unwrap_or_default().to_owned();
    let met = Met::new(seed, count, PATIENT);
    let right: Vec<u32> = (0..ROUNDS).flat_map(|round| (0..count).map(move |at| at * 100 + round)).collect();
    match run(&met, kernel, 0..count as usize) {
        Err(error) => return Some(first(error)),
        Ok(found) if found.iter().any(|found| *found != right) => return Some("other numbers".into()),
        Ok(_) if (0..count as usize).any(|at| met.word(at, BARRIER_GAVE_UP) != 0) => {
            return Some("it gave one up that came".into());
        }
        Ok(_) => {}
    }
    if count > 2 {
        return None;
    }
    // What is read then is anything: of more devices they would read while others write.
    let met = Met::new(seed, count, IMPATIENT);
    match run(&met, kernel, 1..2) {
        Err(error) => Some(first(error)),
        Ok(_) => (met.word(1, BARRIER_GAVE_UP) != 1).then(|| "it does not say whom it gave up".into()),
    }
}

#[test]
fn mutants_of_a_barrier_are_found_out() {
    for (count, seeds) in [(2, 0..24), (3, 0..16)] {
        let judge = under_seeds(seeds, |kernel: &Arc<Verified>, seed| Ok::<_, Infallible>(wrong(kernel, count, seed)));
        let survey = Survey::of(&rounds(count, Planted::Nothing), &[], judge);
        survey.unwrap_or_else(|never| match never {}).expect_no_holes();
    }
}

#[test]
fn bugs_that_are_planted_are_found_out() {
    let all = [
        Planted::NoBarrierBefore,
        Planted::NoBarrierAfter,
        Planted::OneComesLess,
        Planted::NotCounted,
        Planted::ReleasedOnOneDevice,
        Planted::AcquiredOnOneDevice,
    ];
    for planted in all {
        for count in [2, 3] {
            let kernel = verify(rounds(count, planted)).unwrap();
            let found = (0..8).find_map(|seed| wrong(&kernel, count, seed));
            assert!(found.is_some(), "{planted:?} of {count} devices");
            println!("{planted:?} of {count} devices: {}", found.unwrap_or_default());
        }
    }
}

#[test]
fn shapes_that_make_no_sense_are_refused() {
    let refused = |kernel: Kernel, why: &str| {
        let errors = verify(kernel).expect_err("is refused").to_string();
        assert!(errors.contains(why), "{errors}");
    };
    refused(device_barrier(Arch::Sm90a, 9), "9 devices: a barrier takes 1 to 8");
    refused(device_barrier(Arch::Sm90a, 0), "0 devices: a barrier takes");
    let well = PartsShape { parts: 2, copies: 2, width: 64, strides: [64; 2], types: [Float::Bf16; 2], vector: 8 };
    assert!(verify(sum_parts(Arch::Sm90a, well)).is_ok());
    for (shape, why) in [
        (PartsShape { parts: 0, ..well }, "0 parts are added up"),
        (PartsShape { copies: 9, ..well }, "stored in 9 arrays"),
        (PartsShape { vector: 2, ..well }, "loads are of 2 elements of 2 bytes: take 1, or 8"),
        (PartsShape { types: [Float::Bf16, Float::F32], ..well }, "loads are of 8 elements of 4 bytes: take 1, or 4"),
        (PartsShape { strides: [64, 68], ..well }, "are no whole loads of 8"),
    ] {
        refused(sum_parts(Arch::Sm90a, shape), why);
    }
}
