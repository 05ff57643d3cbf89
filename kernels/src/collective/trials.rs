//! Random buffers for the device-wide reduction and scan, against loops.

use tilewright_codegen::build::Val;
use tilewright_codegen::ir::{Arch, Kernel, Needs};
use tilewright_codegen::trial::{Draw, Expected, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::device_wide::DeviceWide;
use crate::shipped_entry::ShippedEntry;

/// The kernels of this module.
pub fn shipped() -> Vec<Box<dyn Shipped>> {
    let entry =
        |name, record, draw| Box::new(ShippedEntry { name, needs: Needs::Sm80, record, draw }) as Box<dyn Shipped>;
    vec![
        entry("device_reduce", |arch| SUM.reduce(arch), reduce_trial),
        entry("device_scan", |arch| SUM.inclusive_scan(arch), scan_trial),
    ]
}

/// Sums of f32; of small integers they are exact in any order.
const SUM: DeviceWide<'static, f32> = DeviceWide { name: "device_sum", op: &|a, b| a + b, identity: 0.0 };
/// Largest.
const MAX: DeviceWide<'static, i32> = DeviceWide { name: "device_max", op: &|a, b| a.max(b), identity: i32::MIN };
/// The last element that is not zero: does not commute.
const LAST: DeviceWide<'static, u32> = DeviceWide { name: "device_last", op: &last, identity: 0 };

fn last<'k>(a: Val<'k, u32>, b: Val<'k, u32>) -> Val<'k, u32> {
    b.eq(0).select::<u32>(a, b)
}

/// A number of elements: none, a few, or some tiles.
fn count(draw: &mut Draw) -> u32 {
    let most = [1, 200, 8193, 18_000][draw.between(0..=3) as usize];
    draw.between(0..=most)
}

fn reduce_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let n = count(draw);
    let blocks = draw.between(1..=5);
    let trial = |kernel: Kernel| Ok(Trial::new(verify(kernel)?, blocks).note(format!("{n} in {blocks} blocks")));
    let x = draw.integers(n.max(1) as usize, 8, |value| value as f32);
    let of = |len: u32| &x[..len as usize];
    let (mut trial, x, partials, out) = if seed.is_multiple_of(2) {
        let mut trial = trial(SUM.reduce(arch))?;
        let handles = (trial.input("x", &x), trial.scratch::<f32>("partials", blocks as usize));
        let out = trial.output("out", Expected::exact(&[of(n).iter().sum::<f32>()]));
        (trial, handles.0, handles.1, out)
    } else {
        let x: Vec<i32> = x.iter().map(|&x| x as i32).collect();
        let mut trial = trial(MAX.reduce(arch))?;
        let handles = (trial.input("x", &x), trial.scratch::<i32>("partials", blocks as usize));
        let largest = x[..n as usize].iter().copied().max().unwrap_or(i32::MIN);
        let out = trial.output("out", Expected::exact(&[largest]));
        (trial, handles.0, handles.1, out)
    };
    let done = trial.changed("done", &[0u32], Expected::exact(&[0u32]));
    Ok(trial.pass(n).pass(x).pass(partials).pass(done).pass(out))
}

fn scan_trial(arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
    let draw = &mut Draw::new(seed);
    let n = count(draw);
    let tiles = DeviceWide::<f32>::tiles(n);
    // Words of the launch before, and of none: their flags are of earlier epochs.
    let epoch = [0, draw.between(1..=9), u32::MAX / 2][draw.between(0..=2) as usize];
    let stale = |draw: &mut Draw| u64::from(epoch.wrapping_mul(2).wrapping_sub(draw.between(0..=1))) << 32;
    let state: Vec<u64> = (0..tiles).map(|_| if epoch == 0 { 0 } else { stale(draw) | 7 }).collect();
    let numbers = draw.integers(n.max(1) as usize, 8, |value| value as f32);
    let kernel = if seed.is_multiple_of(2) { SUM.inclusive_scan(arch) } else { LAST.inclusive_scan(arch) };
    let mut trial = Trial::new(verify(kernel)?, tiles).note(format!("{n}, epoch {epoch}"));
    let [x, out] = if seed.is_multiple_of(2) {
        let sums = numbers[..n as usize].iter().scan(0.0, |sum, x| {
            *sum += x;
            Some(*sum)
        });
        let x = trial.input("x", &numbers);
        [x, trial.output("out", Expected::exact(&sums.collect::<Vec<f32>>()))]
    } else {
        let x: Vec<u32> = numbers.iter().map(|&x| x.max(0.0) as u32).collect();
        let latest = x[..n as usize].iter().scan(0, |latest, &x| {
            *latest = if x == 0 { *latest } else { x };
            Some(*latest)
        });
        let out = trial.output("out", Expected::exact(&latest.collect::<Vec<u32>>()));
        [trial.input("x", &x), out]
    };
    let state = trial.changed("state", &state, Expected::anything::<u64>(tiles as usize));
    let turns = trial.changed("turns", &[0, 0, epoch], Expected::exact(&[0, 0, epoch.wrapping_add(1)]));
    Ok(trial.pass(n).pass(x).pass(state).pass(turns).pass(out))
}
