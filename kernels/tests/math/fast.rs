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
            |x, _, e| if x > 0.5 && x < 2.0 { 2f64.powi(-22) } else { e.abs() * 2f64.powf(-21.4) },
            |x, _| x.abs() >= LEAST || x == 0.0;
        tanh, |x, _| x.tanh(), |_, _, e| e.abs() * 2f64.powi(-11), |_, _| true;
        erf, |x, _| table::erf(x), |_, _, _| 2f64.powf(-19.5), |_, _| true;
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
        bound: |x, y, e| e * 2f64.powf(-21.9) * (1.0 + y.abs() * x.log2().abs().max(1.0)),
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

/// A function as the host computes it in f32, with its first and its second kind of instruction off
/// by their documented errors in a direction each.
type Model = fn(f64, f64, [f64; 2]) -> f64;

fn f32_of(value: f64) -> f64 {
    f64::from(value as f32)
}

/// `ex2.approx`: 2.06 ulp.
fn ex2(x: f64, direction: f64) -> f64 {
    x.exp2() * (1.0 + direction * 2.06 * 2f64.powi(-23))
}

/// `lg2.approx`: 2⁻²², absolute from 0.5 to 2, relative elsewhere.
fn lg2(x: f64, direction: f64) -> f64 {
    let log = x.log2();
    log + direction * 2f64.powi(-22) * if x > 0.5 && x < 2.0 { 1.0 } else { log.abs() }
}

/// `rcp.approx`: 1 ulp.
fn rcp(x: f64, direction: f64) -> f64 {
    1.0 / x * (1.0 + direction * 2f64.powi(-23))
}

const LOG2_E: f64 = std::f32::consts::LOG2_E as f64;

fn erf_model(x: f64, [first, second]: [f64; 2]) -> f64 {
    let t = rcp(f32_of(x.abs() * f64::from(0.327_591_1f32) + 1.0), first);
    let coefficients = [1.061_405_4f32, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6];
    let sum = coefficients.iter().fold(0.0, |sum, &c| f32_of(sum * t + f64::from(c)));
    let gauss = ex2(f32_of(f32_of(x * x) * -LOG2_E), second);
    f32_of(1.0 - f32_of(sum * t) * gauss).copysign(x)
}

const MODELS: [(&str, Model); 6] = [
    ("exp", |x, _, [first, _]| ex2(f32_of(x * LOG2_E), first)),
    ("log", |x, _, [first, _]| f32_of(f32_of(lg2(x, first)) * f64::from(std::f32::consts::LN_2))),
    ("sigmoid", |x, _, [first, second]| rcp(f32_of(ex2(f32_of(x * -LOG2_E), first) + 1.0), second)),
    ("erf", |x, _, directions| erf_model(x, directions)),
    ("gelu", |x, _, directions| {
        let erf = erf_model(f32_of(x * f64::from(std::f32::consts::FRAC_1_SQRT_2)), directions);
        f32_of(0.5 * x * erf + 0.5 * x)
    }),
    ("pow", |x, y, [first, second]| ex2(f32_of(f32_of(lg2(x, first)) * y), second)),
];

/// The simulator cannot show the errors of a GPU's instructions: the host adds the largest.
#[test]
fn bounds_contain_the_documented_errors() {
    let x = arguments();
    for (name, model) in MODELS {
        let function = functions().into_iter().find(|function| function.name == name).expect("a function");
        let cases = x.iter().enumerate().map(|(at, &x)| (f64::from(x), (at % 1000) as f64 / 50.0 - 10.0));
        let mut worst = 0.0f64;
        for (x, y) in cases.filter(|&(x, y)| x.abs() >= LEAST && x.is_finite() && (function.of)(x, y)) {
            let exact = (function.exact)(x, y);
            // Beyond the range of f32 the model has no meaning.
            if !exact.is_finite() || exact.abs() > f64::from(f32::MAX) / 4.0 {
                continue;
            }
            let bound = (function.bound)(x, y, exact) + LEAST;
            for directions in [[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]] {
                let error = (model(x, y, directions) - exact).abs() / bound;
                assert!(error <= 1.0, "{name}({x:e}, {y}), {directions:?}: {error} of its bound");
                worst = worst.max(error);
            }
        }
        println!("{name}: {worst:.3} of its bound");
    }
}
