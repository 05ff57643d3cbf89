//! Bugs that are planted, and what finds each.

use tilewright_codegen::assemble::Ptxas;
use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::device::{DeviceError, sim};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::ptx;
use tilewright_codegen::trial::{Draw, Expected, Trial, survey};
use tilewright_codegen::verify::verify;
use tilewright_kernels::collective::{Block, DeviceWide, Item, LaneSource, Warp, ranked_key, unranked};

use crate::group::{Case, Group};
use crate::shared::cluster_trial;

const WARPS: u32 = 3;
const THREADS: u32 = 32 * WARPS;

/// A collective of a block's numbers, executed once for each of a number of rows.
type RowCollective = for<'k> fn(&'k Builder, Block<'k>, Val<'k, u32>) -> Val<'k, u32>;

/// The loop of such a collective: from a row to what its threads get.
type RowLoop = fn(&[u32]) -> Vec<u32>;

fn looped(again: bool, collective: RowCollective) -> Kernel {
    record("looped", Arch::Sm90a, block(THREADS), |k| {
        let group = if again { Block::new(k).in_loop() } else { Block::new(k) };
        let (x, out) = (k.global::<u32>("x"), k.global::<u32>("out"));
        k.for_(0u32, k.param::<u32>("rows"), |row| {
            let at = row * THREADS + k.tid();
            out.at(at).store(collective(k, group, x.at(at).load()));
        });
    })
}

fn looped_trial(again: bool, (collective, expected): (RowCollective, RowLoop)) -> Trial {
    let mut draw = Draw::new(7);
    let rows = 3;
    let x: Vec<u32> = (0..rows * THREADS).map(|_| draw.between(0..=50)).collect();
    let expected: Vec<u32> = x.chunks(THREADS as usize).flat_map(expected).collect();
    let mut trial = Trial::new(verify(looped(again, collective)).unwrap(), 1);
    let buffers = [trial.input("x", &x), trial.output("out", Expected::exact(&expected))];
    trial.pass(buffers[0]).pass(buffers[1]).pass(rows)
}

/// Each collective of a block, and its loop.
const LOOPED: [(RowCollective, RowLoop); 5] = [
    (|_, group, x| group.reduce(x, |a, b| a + b), |row| vec![row.iter().sum(); row.len()]),
    (
        |_, group, x| group.inclusive_scan(x, |a, b| a + b),
        |row| (0..row.len()).map(|i| row[..=i].iter().sum()).collect(),
    ),
    (
        |_, group, x| group.sort(x, |a, b| a.lt(b)),
        |row| {
            let mut row = row.to_vec();
            row.sort_unstable();
            row
        },
    ),
    (
        |k, group, x| unranked::<u32>(group.top_k(&[ranked_key(x, k.tid())], 32)).0,
        |row| {
            let mut row = row.to_vec();
            row.sort_unstable_by_key(|&x| std::cmp::Reverse(x));
            (0..WARPS).flat_map(|_| row[..32].to_vec()).collect()
        },
    ),
    (
        |_, group, x| group.histogram(51, |count| count(x)).at(x).load(),
        |row| row.iter().map(|x| row.iter().filter(|&y| x == y).count() as u32).collect(),
    ),
];

/// Removing or weakening any barrier is a fault or a wrong result.
#[test]
fn every_barrier_is_needed() {
    let surveyed = |trial: Trial| survey(&[trial], 0..10, &[]).unwrap().expect_no_holes();
    LOOPED.into_iter().for_each(|law| surveyed(looped_trial(true, law)));
    surveyed(cluster_trial(2, 2, 1, 1));
}

/// Launches of three blocks, the last tile of which is not whole.
fn device_wide() -> [Trial; 2] {
    let sums = DeviceWide { name: "sums", op: &|a, b| a + b, identity: 0u32 };
    let n = 9000u32;
    let x: Vec<u32> = (0..n).map(|i| i % 7).collect();
    let running: Vec<u32> = x.iter().scan(0, |sum, x| Some(*sum + x).inspect(|next| *sum = *next)).collect();
    let kernels = [sums.reduce(Arch::Sm90a), sums.inclusive_scan(Arch::Sm90a)];
    let [mut reduce, mut scan] = kernels.map(|kernel| Trial::new(verify(kernel).unwrap(), 3));
    let buffers = [
        reduce.input("x", &x),
        reduce.scratch::<u32>("partials", 3),
        reduce.changed("done", &[0u32], Expected::exact(&[0u32])),
        reduce.output("out", Expected::exact(&running[n as usize - 1..])),
    ];
    let reduce = buffers.into_iter().fold(reduce.pass(n), Trial::pass);
    let buffers = [
        scan.input("x", &x),
        scan.changed("state", &[0u64; 3], Expected::anything::<u64>(3)),
        scan.changed("turns", &[0u32; 3], Expected::exact(&[0u32, 0, 1])),
        scan.output("out", Expected::exact(&running)),
    ];
    [reduce, buffers.into_iter().fold(scan.pass(n), Trial::pass)]
}

/// Of the device-wide kernels too: barriers, orders of atomics.
#[test]
fn every_order_of_device_wide_collectives_is_needed() {
    for trial in device_wide() {
        let outcome = trial.run(&sim::open(0)).unwrap();
        assert!(outcome.is_right(), "{outcome}");
        survey(&[trial], 0..10, &[]).unwrap().expect_no_holes();
    }
}

/// The assembler takes each collective, without spills or local memory.
#[test]
fn collectives_assemble_without_spills() {
    let Some(ptxas) = Ptxas::find().unwrap() else { return };
    let looped = LOOPED.into_iter().map(|law| looped_trial(true, law));
    for trial in looped.chain([cluster_trial(2, 2, 1, 1)]) {
        let assembled = ptxas.assemble(Arch::Sm90a, &ptx::emit(trial.kernel())).unwrap();
        assert!(assembled.flaws().is_empty(), "{:?}", assembled.flaws());
    }
}

/// A block's collective in a loop, without the barrier that `in_loop` adds, is a race.
#[test]
fn a_missing_barrier_is_a_race() {
    for law in LOOPED {
        let trial = looped_trial(false, law);
        let found = (0..10).filter_map(|seed| trial.run(&sim::open(seed)).err()).find_map(|error| match error {
            DeviceError::Fault { report, .. } => Some(report),
            _ => None,
        });
        let report = found.expect("a fault");
        assert!(report.contains("race"), "{report}");
    }
}

/// A scan whose last distance is wrong gives other sums than the loop.
#[test]
fn a_wrong_shuffle_distance_is_found() {
    let case = Case::<u32>::new(Group::Warp(32), 1, 3);
    let scanned = |distances: [u32; 5]| {
        let kernel = case.kernel(|k, inputs| {
            distances.into_iter().fold(inputs.number, |sum, distance| {
                let below = sum.shuffle(LaneSource::Up(distance));
                k.lane().ge(distance).select(sum + below, sum)
            })
        });
        let mut sum = 0u32;
        let through: Vec<u32> = case
            .numbers
            .iter()
            .map(|&n| {
                sum = sum.wrapping_add(n);
                sum
            })
            .collect();
        case.trial(kernel, &through).run(&sim::open(0)).unwrap()
    };
    assert!(scanned([1, 2, 4, 8, 16]).is_right());
    assert!(!scanned([1, 2, 4, 8, 15]).is_right());
}

/// Groups that do not exist are errors that name the remedy.
#[test]
fn wrong_groups_are_refused() {
    let errors = |threads: u32, lanes: u32, count: u32| {
        let kernel = record("refused", Arch::Sm80, block(threads), |k| {
            let top = Warp::logical(k, lanes).top_k(&[k.lane().cast::<u64>()], count);
            k.global::<u64>("out").at(k.tid()).store(top);
        });
        verify(kernel).map(|_| ()).map_err(|errors| errors.to_string())
    };
    assert_eq!(errors(64, 8, 8), Ok(()));
    assert!(errors(40, 32, 1).unwrap_err().contains("the block has 40 threads: collectives need a multiple of 32"));
    assert!(errors(64, 12, 1).unwrap_err().contains("a logical warp of 12 lanes: take 1, 2, 4, 8, 16 or 32"));
    assert!(errors(64, 8, 9).unwrap_err().contains("the top 9 of 8 lanes: a lane has one; take fewer"));
}
