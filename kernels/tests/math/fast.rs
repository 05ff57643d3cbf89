//! The fast functions: within the bounds that contain the documented errors of the instructions.
//! The simulator's instructions are rounded to nearest, and use a part of the bounds only.

use half::{bf16, f16};
use tilewright_kernels::activation::Activation;
use tilewright_kernels::math::fast;

use crate::table::{self, F32, Function, Narrow, arguments, results, ulp, worst};

struct Fast {
    name: &'static str,
    f32: Function<f32>,
    f16: Function<f16>,
    bf16: Function<bf16>,
    exact: fn(f64, f64) -> f64,
    /// The bound at x, y and the exact value.
    bound: fn(f64, f64, f64) -> f64,
    /// The arguments for which there is a bound.
    of: fn(f64, f64) -> bool,
}

/// What is flushed to zero, and the error of a bounded exponent.
const LEAST: f64 = f32::MIN_POSITIVE as f64;

fn exp_error(x: f64) -> f64 {
    2f64.powf(-21.9) + x.abs() * 2f64.powf(-23.6)
}

macro_rules! fast {
    ($($name:ident, $exact:expr, $bound:expr, $of:expr;)+) => {
        [$(Fast {
            name: stringify!($name),
            f32: |x, _| fast::$name(x),
            f16: |x, _| fast::$name(x),
            bf16: |x, _| fast::$name(x),
            exact: $exact,
            bound: $bound,
            of: $of,
        }),+]
    };
}

fn functions() -> Vec<Fast> {
    let of_one = fast! {
        exp, |x, _| x.exp(), |x, _, e| e * exp_error(x), |_, _| true;
        log, |x, _| x.ln(),
            |x, _, e| if x > 0.5 && x < 2.0 { 2f64.powi(-22) } else { e.abs() * 2f64.powf(-21.5) },
            |x, _| x.abs() >= LEAST || x == 0.0;
        tanh, |x, _| x.tanh(), |_, _, e| e.abs() * 2f64.powi(-11), |_, _| true;
        erf, |x, _| table::erf(x), |_, _, _| 2f64.powi(-20), |_, _| true;
        sin, |x, _| x.sin(), |_, _, _| 2f64.powf(-20.5), |x, _| x.abs() <= std::f64::consts::TAU;
        cos, |x, _| x.cos(), |_, _, _| 2f64.powf(-20.4), |x, _| x.abs() <= std::f64::consts::TAU;
        rsqrt, |x, _| 1.0 / x.sqrt(), |_, _, e| e.abs() * 2f64.powf(-22.9), |x, _| x.abs() >= LEAST || x == 0.0;
        sigmoid, |x, _| table::sigmoid(x),
            |x, _, e| e * (2f64.powi(-21) + x.abs() * 2f64.powf(-23.6)) + LEAST, |_, _| true;
        silu, |x, _| table::silu(x), |x, _, _| Activation::Silu.error(x) + LEAST * x.abs(), |x, _| x.is_finite();
        gelu, |x, _| table::gelu(x), |x, _, _| 2f64.powi(-20) * x.abs(), |x, _| x.is_finite();
        gelu_tanh, |x, _| table::gelu_tanh(x),
            |x, _, _| Activation::GeluTanh.error(x) + LEAST * x.abs(), |x, _| x.is_finite();
    };
    let pow = Fast {
        name: "pow",
        f32: |x, y| fast::pow(x, y),
        f16: |x, y| fast::pow(x, y),
        bf16: |x, y| fast::pow(x, y),
        exact: f64::powf,
        bound: |x, y, e| e * (2f64.powf(-21.9) + 2f64.powi(-22) * y.abs() * x.log2().abs().max(1.0)),
        of: |x, y| x >= LEAST && x.is_finite() && y.is_finite(),
    };
    of_one.into_iter().chain([pow]).collect()
}

impl Fast {
    fn worst<T: table::Argument>(
        &self,
        function: Function<T>,
        x: &[T],
        y: &[T],
        format: (i32, i32),
    ) -> (f64, f64, f64) {
        let inside = |(x, y): &(&T, &T)| (self.of)(x.value(), y.value());
        let (x, y): (Vec<T>, Vec<T>) = x.iter().zip(y.iter().cycle()).filter(inside).unzip();
        let found = results(function, &x, &y);
        let half = if format == F32 { 0.0 } else { 0.5 };
        let bound = |x: f64, y: f64, exact: f64| (self.bound)(x, y, exact) + LEAST + half * ulp(format, exact);
        worst(format, [&x, &y, &found], self.exact, bound)
    }
}

#[test]
fn f32_within_their_bounds() {
    let x = arguments();
    let y: Vec<f32> = (0..x.len()).map(|at| (at % 1000) as f32 / 50.0 - 10.0).collect();
    for function in functions() {
        let (error, x, value) = function.worst(function.f32, &x, &y, F32);
        println!("{}: {error:.3} of its bound, at {x:e}", function.name);
        assert!(error <= 1.0, "{}({x:e}) = {value:e}: {error} of its bound", function.name);
    }
}

#[test]
fn all_f16_and_bf16() {
    for function in functions() {
        let y = [0.5, -2.0, 3.0, 1.25, -0.75, 17.0];
        let halves = function.worst(function.f16, &f16::all(), &y.map(f16::from_f64), f16::FORMAT);
        let brains = function.worst(function.bf16, &bf16::all(), &y.map(bf16::from_f64), bf16::FORMAT);
        for (error, x, found) in [halves, brains] {
            assert!(error <= 1.0, "{}({x:e}) = {found:e}: {error} of its bound", function.name);
        }
    }
}

#[test]
fn functions_assemble_without_spills() {
    functions().iter().for_each(|function| table::assembles(function.name, function.f32));
}
