//! The peaks of a device, measured in the same call as the rows: read bandwidth and matrix
//! throughput.
//!
//! Both kernels compute results that are checked: sums of the bytes read, and products of signs,
//! which are exact.

use half::bf16;
use thiserror::Error;
use tilewright_codegen::build::{Builder, block, record};
use tilewright_codegen::device::{Device, Stream};
use tilewright_codegen::ir::attr::{ProxyFence, SpecialReg};
use tilewright_codegen::ir::{Arch, Kernel};
use tilewright_codegen::verify::verify;
use tilewright_kernels::mma::{AtomLayout, TiledMma, Wgmma};
use tilewright_kernels::tile::LayoutTensor;
use tilewright_layout::typed::{KMajor, OperandTile};

use super::timing::replayed;
use crate::cli::Failure;

/// Bytes per second and operations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Bytes per second of a plain read of a large buffer.
    pub read: f64,
    /// Operations per second of bf16 `wgmma`, operands in shared memory; `None` if the device has
    /// no `wgmma`.
    pub matrix: Option<f64>,
}

/// The sizes of the read and multiply workloads.
#[derive(Clone, Copy, Debug)]
pub struct PeakSizes {
    /// Bytes of the buffer that is read, at most.
    pub bytes: u64,
    /// Tiles that a block multiplies, 1024 at most: sums stay exact.
    pub rounds: u32,
    /// Replays that are timed.
    pub replays: usize,
}

impl PeakSizes {
    /// Sizes for several milliseconds of each on a large GPU.
    pub const FULL: PeakSizes = PeakSizes { bytes: 4 << 30, rounds: 1000, replays: 10 };
}

#[derive(Debug, Error)]
enum PeakError {
    #[error("the probe of {what} gave {found} instead of {expected}; the device computes wrong results")]
    Wrong { what: &'static str, found: f64, expected: f64 },
}

/// Threads of a reading block, and 16-byte vectors in flight per thread.
const READERS: u32 = 512;
const VECTORS: u32 = 8;
/// Reading blocks per multiprocessor.
const BLOCKS: u32 = 4;
/// The value of every byte of the buffer.
const BYTE: u8 = 1;

/// Records a kernel in which each thread reads eight vectors `rounds` times and stores the sum of
/// their words.
fn read(arch: Arch) -> Kernel {
    record("read_peak", arch, block(READERS), |k| {
        let rounds = k.param::<u32>("rounds");
        let x = k.global::<u32>("x");
        let out = k.global::<u32>("out");
        let thread = k.block_id() * READERS + k.tid();
        let stride = k.special(SpecialReg::NctaidX) * READERS;
        let sum = k.var(0u32);
        k.for_(0, rounds, |round| {
            let first = round * VECTORS * stride + thread;
            let loaded: Vec<_> = (0..VECTORS).map(|i| x.at((first + stride * i) * 4).load_vec::<4>()).collect();
            loaded.into_iter().flatten().for_each(|word| sum.set(sum.get() + word));
        });
        out.at(thread).store(sum);
    })
}

/// The operands of a multiplying block: two warpgroups, each 64 × 256 over K of 64.
type A = OperandTile<KMajor, 16, 128, 64>;
type B = OperandTile<KMajor, 16, 256, 64>;
const DEPTH: u32 = 64;
const EXTENTS: [u32; 2] = [128, 256];
const MULTIPLIERS: u32 = 256;

/// 1 or −1, pseudorandom.
fn sign(operand: u32, row: u32, column: u32) -> f32 {
    let number = (operand * 256 + row) * DEPTH + column;
    if mixed(number) & 0x8000 == 0 { 1.0 } else { -1.0 }
}

const MIX: [u32; 2] = [0x9e37_79b1, 0x85eb_ca6b];

fn mixed(number: u32) -> u32 {
    let first = number.wrapping_mul(MIX[0]);
    (first ^ first >> 15).wrapping_mul(MIX[1])
}

/// Records a kernel that multiplies the same tiles `rounds` times and stores each thread's total.
fn matrix() -> Kernel {
    record("matrix_peak", Arch::Sm90a, block(MULTIPLIERS), |k: &Builder| {
        let rounds = k.param::<u32>("rounds");
        let out = k.global::<f32>("out");
        let a = LayoutTensor::<bf16, A, _>::shared(k, "a");
        let b = LayoutTensor::<bf16, B, _>::shared(k, "b");
        for (operand, rows) in (0..).zip(EXTENTS) {
            k.for_step(k.tid(), k.lit(rows * DEPTH), MULTIPLIERS, |number| {
                let first = (number + operand * 256 * DEPTH) * MIX[0];
                let plus = (((first ^ first >> 15) * MIX[1]) & 0x8000u32).eq(0);
                let value = plus.select(k.lit(bf16::ONE), k.lit(bf16::NEG_ONE));
                let at = [(number / DEPTH).into(), (number % DEPTH).into()];
                if operand == 0 { a.at(at).store(value) } else { b.at(at).store(value) }
            });
        }
        k.fence_proxy_async(ProxyFence::Shared);
        k.barrier();
        let product = TiledMma::<Wgmma<bf16>, A, B, AtomLayout<2, 1>>::new(k);
        product.clear();
        k.for_(0, rounds, |_| {
            product.issue(a, b, true);
            product.wait_group(1);
        });
        product.wait_group(0);
        let sums = product.sums();
        let total = (0..sums.registers().len()).map(|i| sums.get(i)).reduce(|a, b| a + b);
        total.into_iter().for_each(|total| out.at(k.block_id() * MULTIPLIERS + k.tid()).store(total));
    })
}

/// Measures both on an idle device.
pub fn measure(device: &Device, sizes: PeakSizes) -> Result<Peaks, Failure> {
    let stream = device.stream()?;
    let arch = device.properties().arch().unwrap_or(Arch::Sm80);
    let read = read_rate(device, &stream, arch, sizes)?;
    let matrix = (arch == Arch::Sm90a).then(|| matrix_rate(device, &stream, sizes)).transpose()?;
    Ok(Peaks { read, matrix })
}

fn read_rate(device: &Device, stream: &Stream, arch: Arch, sizes: PeakSizes) -> Result<f64, Failure> {
    let blocks = device.properties().sms * BLOCKS;
    // Words of one round of all threads.
    let round = u64::from(blocks * READERS * VECTORS * 4);
    let rounds = (sizes.bytes.min(device.free_bytes()? / 2) / 4 / round).clamp(1, u64::from(u32::MAX) / round);
    let x = device.buffer::<u32>((round * rounds) as usize)?;
    stream.fill(&x, BYTE)?;
    let out = device.buffer::<u32>((blocks * READERS) as usize)?;
    stream.poison(&out, 0xff)?;
    let kernel = device.load(&verify(read(arch))?)?;
    let work = kernel.work(blocks, &[(rounds as u32).into(), (&x).into(), (&out).into()])?;
    let us = replayed(device, stream, &[work], sizes.replays)?;
    let expected = u32::from_ne_bytes([BYTE; 4]).wrapping_mul(rounds as u32 * VECTORS * 4);
    if let Some(&wrong) = stream.read(&out)?.iter().find(|sum| **sum != expected) {
        let found = wrong.into();
        let expected = expected.into();
        return Err(PeakError::Wrong { what: "reads", found, expected }.into());
    }
    Ok((round * rounds * 4) as f64 / us * 1e6)
}

fn matrix_rate(device: &Device, stream: &Stream, sizes: PeakSizes) -> Result<f64, Failure> {
    let blocks = device.properties().sms;
    let out = device.buffer::<f32>((blocks * MULTIPLIERS) as usize)?;
    stream.poison(&out, 0xff)?;
    let kernel = device.load(&verify(matrix())?)?;
    let work = kernel.work(blocks, &[sizes.rounds.into(), (&out).into()])?;
    let us = replayed(device, stream, &[work], sizes.replays)?;
    // The sum of a product's elements equals the sum of products of the operands' column sums.
    let sum = |operand: u32, column: u32| {
        (0..EXTENTS[operand as usize]).map(|row| f64::from(sign(operand, row, column))).sum::<f64>()
    };
    let expected = (0..DEPTH).map(|column| sum(0, column) * sum(1, column)).sum::<f64>() * f64::from(sizes.rounds);
    for totals in stream.read(&out)?.chunks(MULTIPLIERS as usize) {
        let found: f64 = totals.iter().copied().map(f64::from).sum();
        if found != expected {
            return Err(PeakError::Wrong { what: "matrix instructions", found, expected }.into());
        }
    }
    let operations = 2.0 * f64::from(EXTENTS[0] * EXTENTS[1] * DEPTH) * f64::from(sizes.rounds * blocks);
    Ok(operations / us * 1e6)
}

#[cfg(test)]
mod tests {
    use tilewright_codegen::device::sim::{Options, Simulator};

    use super::*;

    #[test]
    fn what_the_probes_compute_is_right_under_several_interleavings() {
        for seed in 0..3 {
            let device = Simulator::new(Options { seed, sms: 2, ..Options::default() }).device();
            let peaks = measure(&device, PeakSizes { bytes: 1 << 20, rounds: 3, replays: 1 }).expect("runs");
            assert!(peaks.read > 0.0 && peaks.matrix.is_some_and(|rate| rate > 0.0), "seed {seed}: {peaks:?}");
        }
    }
}
