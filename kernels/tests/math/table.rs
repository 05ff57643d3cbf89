//! What the tests share: arguments, functions of a device as tables, exact values.

use half::{bf16, f16};
use tilewright_codegen::assemble::Ptxas;
use tilewright_codegen::build::{Val, block, record};
use tilewright_codegen::device::{self, Device, sim};
use tilewright_codegen::ir::Arch;
use tilewright_codegen::ptx;
use tilewright_codegen::sample::Sample;
use tilewright_codegen::trial::{Draw, TrialElement};
use tilewright_codegen::verify::{Verified, verify};
use tilewright_kernels::math::MathFloat;

/// A function of a device.
pub type Function<T> = for<'k> fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>;

fn device() -> Device {
    let named = std::env::var("TILEWRIGHT_DEVICE").ok();
    named.map_or_else(|| sim::open(0), |name| device::open(&name).unwrap_or_else(|error| panic!("{name}: {error}")))
}

/// The kernel of a function: `n`, `x`, `y`, `out`.
fn kernel<T: Argument>(function: Function<T>) -> Verified {
    let kernel = record("function", Arch::Sm90a, block(256), |k| {
        let n = k.param::<u32>("n");
        let [x, y, out] = ["x", "y", "out"].map(|name| k.global::<T>(name));
        let at = k.block_id() * 256 + k.tid();
        k.when(at.lt(n), || out.at(at).store(function(x.at(at).load(), y.at(at).load())));
    });
    verify(kernel).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The PTX of a function.
pub fn text(function: Function<f32>) -> String {
    ptx::emit(&kernel(function))
}

/// Assembles a function, where there is an assembler: without spills or local memory.
pub fn assembles(name: &str, function: Function<f32>) {
    let Some(ptxas) = Ptxas::find().unwrap_or_else(|error| panic!("{error}")) else { return };
    let assembled = ptxas.assemble(Arch::Sm90a, &text(function));
    let assembled = assembled.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(assembled.flaws().is_empty(), "{name}: {:?}", assembled.flaws());
}

/// A function's results at arguments of `T`.
pub fn results<T: Argument>(function: Function<T>, x: &[T], y: &[T]) -> Vec<T> {
    let kernel = kernel(function);
    let device = device();
    let stream = device.stream().unwrap();
    let [x, y] = [x, y].map(|values| stream.buffer(values).unwrap());
    let out = device.buffer::<T>(x.len()).unwrap();
    let n = x.len() as u32;
    let launch = device.load(&kernel).unwrap();
    launch.launch(&stream, n.div_ceil(256), &[n.into(), (&x).into(), (&y).into(), (&out).into()]).unwrap();
    stream.read(&out).unwrap()
}

/// A type of arguments.
pub trait Argument: TrialElement + MathFloat {}

impl<T: TrialElement + MathFloat> Argument for T {}

/// A type whose every value is an argument.
pub trait Narrow: Argument {
    /// Bits of the mantissa, the hidden one included, and the exponent of the least normal number.
    const FORMAT: (i32, i32);

    fn all() -> Vec<Self>;
}

impl Narrow for f16 {
    const FORMAT: (i32, i32) = (11, -14);

    fn all() -> Vec<f16> {
        (0..=u16::MAX).map(f16::from_bits).collect()
    }
}

impl Narrow for bf16 {
    const FORMAT: (i32, i32) = (8, -126);

    fn all() -> Vec<bf16> {
        (0..=u16::MAX).map(bf16::from_bits).collect()
    }
}

pub const F32: (i32, i32) = (24, -126);

/// The part of 10⁶ arguments that this run takes: all bits alike, and as many from −16 to 16, and
/// near 1, where functions bend.
pub fn arguments() -> Vec<f32> {
    let sample = Sample::one_of(16);
    let number = |at: usize| {
        let mut draw = Draw::new(at as u64);
        match at % 4 {
            0 | 1 => f32::from_bits(draw.bits() as u32),
            2 => (draw.unit() * 16.0) as f32,
            _ => (draw.unit() * 128.0).exp2() as f32 * if draw.bits() & 1 == 0 { 1.0 } else { -1.0 },
        }
    };
    (0..1_000_000).filter(|&at| sample.has_spread(at)).map(number).collect()
}

/// The distance of neighbours of a format at a value.
pub fn ulp((bits, least): (i32, i32), value: f64) -> f64 {
    let exponent = value.abs().log2().floor().max(f64::from(least));
    // The logarithm of a number just below a power of two may be rounded up to it.
    let exponent = if exponent.exp2() > value.abs() { (exponent - 1.0).max(f64::from(least)) } else { exponent };
    (exponent - f64::from(bits - 1)).exp2()
}

/// Whether a result is at the end of a format's range that the exact value is beyond, by half an
/// ulp and more.
pub fn overflows((bits, least): (i32, i32), exact: f64) -> bool {
    let most = f64::from(2 - least - 1).exp2();
    exact.abs() >= most - (f64::from(1 - least - bits)).exp2()
}

/// erf by the series that has no cancellation.
pub fn erf(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 6.5 {
        return if x.is_nan() { x } else { x.signum() };
    }
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// GELU; its value at −∞ is 0.
pub fn gelu(x: f64) -> f64 {
    if x < -40.0 { -0.0 } else { 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) }
}

pub fn gelu_tanh(x: f64) -> f64 {
    let slope = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    if x < -40.0 { -0.0 } else { x * sigmoid(slope * (x + 0.044715 * x.powi(3))) }
}

pub fn silu(x: f64) -> f64 {
    if x < -700.0 { -0.0 } else { x * sigmoid(x) }
}

/// The largest error of results over its bound, and where it is; NaN, infinities and what is beyond
/// the format must agree.
pub fn worst<T: TrialElement>(
    format: (i32, i32),
    [x, y, found]: [&[T]; 3],
    exact: impl Fn(f64, f64) -> f64,
    bound: impl Fn(f64, f64, f64) -> f64,
) -> (f64, f64, f64) {
    let mut worst = (0.0, 0.0, 0.0);
    for ((&x, &y), &found) in x.iter().zip(y).zip(found) {
        let (x, y, found) = (x.value(), y.value(), found.value());
        let exact = exact(x, y);
        let agree = (found.is_nan() && exact.is_nan()) || found == exact;
        // A value beyond the range may be rounded to its end or to an infinity.
        let beyond = overflows(format, exact.abs() + bound(x, y, exact)) && found.is_infinite() && found * exact > 0.0;
        let error = if agree || beyond { 0.0 } else { (found - exact).abs() / bound(x, y, exact) };
        if error.is_nan() || error > worst.0 {
            worst = (if error.is_nan() { f64::INFINITY } else { error }, x, found);
        }
    }
    worst
}
