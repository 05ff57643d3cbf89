//! The accurate functions: within a number of ulp everywhere.

use half::{bf16, f16};
use tilewright_kernels::math;

use crate::table::{self, F32, Function, Narrow, arguments, results, ulp, worst};

/// An accurate function: its name, its device functions of each type, its exact value, and its
/// bound in ulp or, for some, relative to |x|.
struct Accurate {
    name: &'static str,
    f32: Function<f32>,
    f16: Function<f16>,
    bf16: Function<bf16>,
    exact: fn(f64, f64) -> f64,
    bound: Bound,
}

enum Bound {
    Ulps(f64),
    OfArgument(f64),
}

macro_rules! accurate {
    ($($name:ident $bound:expr, $exact:expr;)+) => {
        [$(Accurate {
            name: stringify!($name),
            f32: |x, _| math::$name(x),
            f16: |x, _| math::$name(x),
            bf16: |x, _| math::$name(x),
            exact: $exact,
            bound: $bound,
        }),+]
    };
}

fn functions() -> Vec<Accurate> {
    let of_one = accurate! {
        exp Bound::Ulps(1.0), |x, _| x.exp();
        log Bound::Ulps(1.0), |x, _| x.ln();
        tanh Bound::Ulps(2.0), |x, _| x.tanh();
        erf Bound::Ulps(1.5), |x, _| table::erf(x);
        sin Bound::Ulps(2.0), |x, _| x.sin();
        cos Bound::Ulps(2.0), |x, _| x.cos();
        rsqrt Bound::Ulps(1.5), |x, _| 1.0 / x.sqrt();
        sigmoid Bound::Ulps(2.5), |x, _| table::sigmoid(x);
        silu Bound::Ulps(3.0), |x, _| table::silu(x);
        gelu Bound::OfArgument(2f64.powi(-23)), |x, _| table::gelu(x);
        gelu_tanh Bound::OfArgument(2f64.powi(-22)), |x, _| table::gelu_tanh(x);
    };
    let pow = Accurate {
        name: "pow",
        f32: |x, y| math::pow(x, y),
        f16: |x, y| math::pow(x, y),
        bf16: |x, y| math::pow(x, y),
        exact: f64::powf,
        bound: Bound::Ulps(2.0),
    };
    of_one.into_iter().chain([pow]).collect()
}

impl Accurate {
    /// The bound at an argument, of f32.
    fn bound(&self, x: f64, exact: f64) -> f64 {
        match self.bound {
            Bound::Ulps(ulps) => ulps * ulp(F32, exact),
            Bound::OfArgument(part) => (part * x.abs()).max(ulp(F32, 0.0)),
        }
    }

    fn narrow<T: Narrow>(&self, function: Function<T>, y: &[T]) {
        let x = T::all();
        let y: Vec<T> = y.iter().copied().cycle().take(x.len()).collect();
        let found = results(function, &x, &y);
        // One rounding to the type, of what f32 has.
        let bound = |x: f64, _, exact: f64| 0.5 * ulp(T::FORMAT, exact) + self.bound(x, exact);
        let (error, x, found) = worst(T::FORMAT, [&x, &y, &found], self.exact, bound);
        assert!(error <= 1.0, "{} of {:?}({x:e}) = {found:e}: {error} of its bound", self.name, T::DTYPE);
    }
}

/// Second arguments for [`math::pow`], one for each of the first.
fn exponents(x: &[f32]) -> Vec<f32> {
    let near = |at: usize, x: f32| match at % 5 {
        0 => (at % 23) as f32 - 11.0,
        1 => ((at % 1000) as f32 - 500.0) / 64.0,
        // Results over the whole range.
        2 | 3 => ((at % 2001) as f32 / 1000.0 - 1.0) * 126.0 / x.abs().log2(),
        _ => f32::from_bits((at as u32).wrapping_mul(0x9e37_79b9)),
    };
    x.iter().enumerate().map(|(at, &x)| near(at, x)).collect()
}

#[test]
fn f32_within_their_ulps() {
    let x = arguments();
    let y = exponents(&x);
    for function in functions() {
        let found = results(function.f32, &x, &y);
        let bound = |x: f64, _, exact: f64| function.bound(x, exact);
        let (error, x, value) = worst(F32, [&x, &y, &found], function.exact, bound);
        let unit = match function.bound {
            Bound::Ulps(ulps) => format!("{:.3} ulp", error * ulps),
            Bound::OfArgument(part) => format!("|x| * 2^{:.2}", (error * part).log2()),
        };
        println!("{}: {unit} at {x:e}", function.name);
        assert!(error <= 1.0, "{}({x:e}) = {value:e}: {unit}", function.name);
    }
}

#[test]
fn all_f16_and_bf16() {
    for function in functions() {
        function.narrow::<f16>(function.f16, &[0.5, -2.0, 3.0, 1.25, -0.75, 17.0].map(f16::from_f32));
        function.narrow::<bf16>(function.bf16, &[0.5, -2.0, 3.0, 1.25, -0.75, 17.0].map(bf16::from_f32));
    }
}

#[test]
fn functions_assemble_without_spills() {
    functions().iter().for_each(|function| table::assembles(function.name, function.f32));
}

/// What the simulator computes is what a GPU computes.
#[test]
fn no_instruction_is_approximate() {
    for function in functions() {
        let text = table::text(function.f32);
        assert!(text.contains("fma.rn") || text.contains("sqrt.rn"), "{}", function.name);
        assert!(!text.contains("approx"), "{} has an approximate instruction", function.name);
    }
}
