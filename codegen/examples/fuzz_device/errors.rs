//! The largest error of rows flagged `Approx`, of one operand each, over every number of a type.

use crate::kit::approx;
use std::sync::Mutex;
use tilewright_codegen::build::{Val, block, record};
use tilewright_codegen::device::{Device, DeviceError};
use tilewright_codegen::ir::{Arch, Ty};
use tilewright_codegen::verify::verify;

/// Numbers of a launch.
const AT_ONCE: u32 = 1 << 26;

/// Threads of a block.
const THREADS: u32 = 256;

/// A row and a type, and the row on bits in the low end of a word.
type Function = (&'static str, Ty, for<'k> fn(Val<'k, u32>) -> Val<'k, u32>);

/// A macro, since every operand has another type.
macro_rules! on_bits {
    ($Bits:ty, $T:ty, $method:ident) => {
        |word| word.cast::<$Bits>().bits::<$T>().$method().bits::<$Bits>().cast::<u32>()
    };
}

const FUNCTIONS: [Function; 12] = [
    ("ex2.approx", Ty::F16, on_bits!(u16, half::f16, ex2)),
    ("ex2.approx", Ty::BF16, on_bits!(u16, half::bf16, ex2)),
    ("tanh.approx", Ty::F16, on_bits!(u16, half::f16, tanh)),
    ("tanh.approx", Ty::BF16, on_bits!(u16, half::bf16, tanh)),
    ("ex2.approx", Ty::F32, on_bits!(u32, f32, ex2)),
    ("rsqrt.approx", Ty::F32, on_bits!(u32, f32, rsqrt)),
    ("lg2.approx", Ty::F32, on_bits!(u32, f32, lg2)),
    ("tanh.approx", Ty::F32, on_bits!(u32, f32, tanh)),
    ("sin.approx", Ty::F32, on_bits!(u32, f32, sin)),
    ("cos.approx", Ty::F32, on_bits!(u32, f32, cos)),
    ("sqrt.approx", Ty::F32, on_bits!(u32, f32, sqrt_approx)),
    ("rcp.approx", Ty::F32, on_bits!(u32, f32, recip_approx)),
];

/// The largest error seen: over the bound, of which operand, which result.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    error: f64,
    operand: u32,
    found: u32,
}

/// Prints each row's largest error over its bound; whether all lie within.
pub fn measure(device: &Device) -> Result<bool, String> {
    let mut all = true;
    for (row, ty, function) in FUNCTIONS {
        let worst = largest(device, row, ty, function)?;
        all &= worst.error <= 1.0;
        println!(
            "{row:14} {ty:5} largest error {:.5} of the bound, of {:#x}, which gives {:#x}",
            worst.error, worst.operand, worst.found
        );
    }
    Ok(all)
}

fn largest(
    device: &Device,
    row: &str,
    ty: Ty,
    function: for<'k> fn(Val<'k, u32>) -> Val<'k, u32>,
) -> Result<Worst, String> {
    let kernel = record("errors", Arch::Sm90a, block(THREADS), |k| {
        let first = k.param::<u32>("first");
        let out = k.global::<u32>("out");
        let i = k.block_id() * THREADS + k.tid();
        out.at(i).store(function(first + i));
    });
    let kernel = verify(kernel).map_err(|errors| errors.to_string())?;
    let said = |error: DeviceError| error.to_string();
    let kernel = device.load(&kernel).map_err(said)?;
    let stream = device.stream().map_err(said)?;
    let count = if ty.bits() == 16 { 1 << 16 } else { AT_ONCE };
    let out = device.buffer::<u32>(count as usize).map_err(said)?;
    let mut worst = Worst::default();
    for launch in 0..(1u64 << ty.bits()) / u64::from(count) {
        let first = launch as u32 * count;
        kernel.launch(&stream, count / THREADS, &[first.into(), (&out).into()]).map_err(said)?;
        let found = stream.read(&out).map_err(said)?;
        let here = worst_of(row, ty, first, &found);
        worst = if here.error > worst.error { here } else { worst };
    }
    Ok(worst)
}

fn worst_of(row: &str, ty: Ty, first: u32, found: &[u32]) -> Worst {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let part = found.len().div_ceil(cores);
    let worst = Mutex::new(Worst::default());
    std::thread::scope(|scope| {
        for (number, found) in (0..).zip(found.chunks(part)) {
            let worst = &worst;
            scope.spawn(move || {
                let mut here = Worst::default();
                for (i, &found) in (0..).zip(found) {
                    let operand = first + number * part as u32 + i;
                    let error = approx::error(row, ty, &[operand.into()], found.into());
                    if error > here.error {
                        here = Worst { error, operand, found };
                    }
                }
                let mut worst = worst.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                *worst = if here.error > worst.error { here } else { *worst };
            });
        }
    });
    worst.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
