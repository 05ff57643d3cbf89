//! Histograms, loops over rows, consumer warps, clusters.

use proptest::prelude::*;
use tilewright_codegen::build::{block, record};
use tilewright_codegen::ir::attr::AtomOp;
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::trial::{Draw, Expected, Trial};
use tilewright_codegen::verify::verify;
use tilewright_kernels::collective::{Block, Cluster, Ranked, ranked_key, unranked};
use tilewright_kernels::warps::ConsumerWarps;

use crate::group::{device, right};

/// Counts, sums and maxima of `n` items by bin.
fn histograms(warps: u32, bins: u32) -> Kernel {
    record("histograms", Arch::Sm90a, block(warps * 32), |k| {
        let (n, x) = (k.param::<u32>("n"), k.global::<u32>("x"));
        let [counts, sums, maxima] = ["counts", "sums", "maxima"].map(|name| k.global::<u32>(name));
        let group = Block::new(k);
        let each = |item: &dyn Fn(_)| k.for_step(k.tid(), n, k.threads(), |i| item(x.at(i).load()));
        let of = [
            (counts, group.histogram(bins, |count| each(&|x| count(x % 64)))),
            (sums, group.histogram_by(AtomOp::Add, bins, 0u32, |put| each(&|x| put(x % 64, x)))),
            (maxima, group.histogram_by(AtomOp::Max, bins, 7u32, |put| each(&|x| put(x % 64, x)))),
        ];
        for (out, table) in of {
            k.for_step(k.tid(), bins, k.threads(), |bin| out.at(bin).store(table.at(bin).load()));
        }
    })
}

fn histogram_trial(warps: u32, bins: u32, n: u32, seed: u64) -> Trial {
    let mut draw = Draw::new(seed);
    let x: Vec<u32> = (0..n.max(1)).map(|_| draw.between(0..=1000)).collect();
    let of = |bin: u32| x[..n as usize].iter().copied().filter(move |x| x % 64 == bin);
    let table = |f: &dyn Fn(u32) -> u32| Expected::exact(&(0..bins).map(f).collect::<Vec<u32>>());
    let mut trial = Trial::new(verify(histograms(warps, bins)).unwrap(), 1)
        .note(format!("{warps} warps, {bins} bins, {n} items, seed {seed}"));
    let buffers = [
        trial.input("x", &x),
        trial.output("counts", table(&|bin| of(bin).count() as u32)),
        trial.output("sums", table(&|bin| of(bin).sum())),
        trial.output("maxima", table(&|bin| of(bin).fold(7, u32::max))),
    ];
    buffers.into_iter().fold(trial.pass(n), Trial::pass)
}

/// Sums, first sorted number and argmax of rows, in a loop.
fn rows(warps: u32) -> Kernel {
    record("rows", Arch::Sm90a, block(warps * 32), |k| {
        let rows = k.param::<u32>("rows");
        let x = k.global::<f32>("x");
        let [sums, least, argmax, second] = ["sums", "least", "argmax", "second"].map(|name| k.global::<u32>(name));
        let group = Block::new(k).in_loop();
        k.for_(0u32, rows, |row| {
            let value = x.at(row * k.threads() + k.tid()).load();
            let running = group.inclusive_scan(value, |a, b| a + b);
            let sum = group.reduce(value, |a, b| a + b);
            let sorted = group.sort(f32::rank(value), |a, b| a.lt(b));
            let (_, index) = group.argmax(value, k.tid());
            let (_, runner_up) = unranked::<f32>(group.top_k(&[ranked_key(value, k.tid())], 2));
            let counts = group.histogram(2, |count| count(value.gt(0.0).as_number()));
            let above = counts.at(1).load();
            k.when(k.tid().eq(0), || {
                sums.at(row).store(sum.bits::<u32>());
                least.at(row).store(sorted);
                argmax.at(row).store(index);
            });
            k.when(k.tid().eq(1), || second.at(row).store(runner_up * 4096 + above));
            k.when(k.tid().eq(k.threads() - 1) & running.ne(sum), || k.trap());
        });
    })
}

fn row_trial(kernel: Kernel, count: u32, seed: u64) -> Trial {
    let width = kernel.launch.threads[0] as usize;
    let mut draw = Draw::new(seed);
    let x = draw.integers(count as usize * width, 40, |v| v as f32);
    let of = |f: &dyn Fn(&[f32]) -> u32| Expected::exact(&x.chunks(width).map(f).collect::<Vec<u32>>());
    let best = |row: &[f32]| {
        let mut indexes: Vec<usize> = (0..row.len()).collect();
        indexes.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        [indexes[0], indexes[1]]
    };
    let rank = |value: f32| (value + 0.0).to_bits() ^ if value < 0.0 { u32::MAX } else { 1 << 31 };
    let mut trial = Trial::new(verify(kernel).unwrap(), 1).note(format!("{count} rows of {width}, seed {seed}"));
    let buffers = [
        trial.input("x", &x),
        trial.output("sums", of(&|row| row.iter().sum::<f32>().to_bits())),
        trial.output("least", of(&|row| rank(row.iter().copied().fold(f32::MAX, f32::min)))),
        trial.output("argmax", of(&|row| best(row)[0] as u32)),
        trial.output("second", of(&|row| best(row)[1] as u32 * 4096 + row.iter().filter(|&&x| x > 0.0).count() as u32)),
    ];
    buffers.into_iter().fold(trial.pass(count), Trial::pass)
}

/// Sum and largest of the numbers of each cluster, twice: for two planes of numbers.
fn clusters(warps: u32, blocks: u32) -> Kernel {
    record("clusters", Arch::Sm90a, block(warps * 32).cluster(blocks), |k| {
        let [x, sums, largest] = ["x", "sums", "largest"].map(|name| k.global::<f32>(name));
        k.for_(0u32, 2u32, |plane| {
            let at = (plane * k.blocks() + k.block_id()) * k.threads() + k.tid();
            let x = x.at(at).load();
            let all = Cluster::new(k).reduce((x, x), |a, b| (a.0 + b.0, a.1.max(b.1)));
            sums.at(at).store(all.0);
            largest.at(at).store(all.1);
        });
    })
}

pub fn cluster_trial(warps: u32, blocks: u32, count: u32, seed: u64) -> Trial {
    let size = (warps * 32 * blocks) as usize;
    let x = Draw::new(seed).integers(2 * size * count as usize, 100, |v| v as f32);
    let of = |f: fn(&[f32]) -> f32| {
        Expected::exact(&x.chunks(size).flat_map(|part| vec![f(part); size]).collect::<Vec<f32>>())
    };
    let mut trial = Trial::new(verify(clusters(warps, blocks)).unwrap(), count * blocks)
        .note(format!("{count} clusters of {blocks} blocks of {warps} warps, seed {seed}"));
    let buffers = [
        trial.input("x", &x),
        trial.output("sums", of(|part| part.iter().sum())),
        trial.output("largest", of(|part| part.iter().copied().fold(f32::MIN, f32::max))),
    ];
    buffers.into_iter().fold(trial, Trial::pass)
}

fn run(trial: &Trial, seed: u64) -> Result<(), TestCaseError> {
    right(&trial.run(&device(seed)).map_err(|error| TestCaseError::fail(error.to_string()))?)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn histograms_count_by_bin(warps in 1u32..=4, bins in 1u32..=64, n in 0u32..400, seed: u64) {
        run(&histogram_trial(warps, bins, n, seed), seed)?;
    }

    #[test]
    fn collectives_repeat_in_a_loop(warps in 1u32..=4, count in 1u32..4, seed: u64) {
        run(&row_trial(rows(warps), count, seed), seed)?;
    }

    #[test]
    fn clusters_reduce(warps in 1u32..=4, blocks in 0u32..4, count in 1u32..3, seed: u64) {
        run(&cluster_trial(warps, 1 << blocks, count, seed), seed)?;
    }
}

#[test]
fn consumer_warps_reduce_while_another_warp_works() {
    let kernel = record("consumers", Arch::Sm90a, block(96), |k| {
        let out = k.global::<u32>("out");
        let consumers = || {
            let total = Block::consumers(ConsumerWarps::new(k, 2)).reduce(k.tid(), |a, b| a + b);
            out.at(k.tid()).store(total);
        };
        k.if_else(k.warp().lt(2), consumers, || out.at(k.tid()).store(1u32));
    });
    let mut trial = Trial::new(verify(kernel).unwrap(), 1);
    let out = trial.output("out", Expected::exact(&[vec![2016u32; 64], vec![1; 32]].concat()));
    let trial = trial.pass(out);
    (0..5).for_each(|seed| run(&trial, seed).unwrap());
}
