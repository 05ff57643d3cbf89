//! Values that no random argument meets: signs of zeros, infinities, and the table of `pow`.

use tilewright_kernels::math;

use crate::table::{Function, results};

const INF: f32 = f32::INFINITY;

fn check(name: &str, function: Function<f32>, cases: &[(f32, f32, f32)]) {
    let [x, y, expected]: [Vec<f32>; 3] =
        [cases.iter().map(|c| c.0).collect(), cases.iter().map(|c| c.1).collect(), cases.iter().map(|c| c.2).collect()];
    for ((case, found), expected) in cases.iter().zip(results(function, &x, &y)).zip(expected) {
        let same = found.to_bits() == expected.to_bits() || (found.is_nan() && expected.is_nan());
        assert!(same, "{name}({}, {}) = {found}, expected {expected}", case.0, case.1);
    }
}

#[test]
fn powers_are_those_of_c() {
    let nan = f32::NAN;
    let cases = [
        (nan, 0.0, 1.0),
        (INF, -0.0, 1.0),
        (1.0, nan, 1.0),
        (1.0, -INF, 1.0),
        (-1.0, INF, 1.0),
        (-1.0, -INF, 1.0),
        (nan, 1.0, nan),
        (2.0, nan, nan),
        (-8.0, 1.0 / 3.0, nan),
        (-2.0, 3.0, -8.0),
        (-2.0, 4.0, 16.0),
        (0.0, -1.0, INF),
        (-0.0, -1.0, -INF),
        (-0.0, -2.0, INF),
        (0.0, 2.5, 0.0),
        (-0.0, 3.0, -0.0),
        (-0.0, 2.0, 0.0),
        (-0.0, 0.5, 0.0),
        (0.5, INF, 0.0),
        (0.5, -INF, INF),
        (2.0, INF, INF),
        (-2.0, -INF, 0.0),
        (INF, 0.5, INF),
        (INF, -0.5, 0.0),
        (-INF, 3.0, -INF),
        (-INF, 2.0, INF),
        (-INF, -3.0, -0.0),
        (-INF, 0.5, INF),
        (10.0, 50.0, INF),
        (10.0, -60.0, 0.0),
        (-10.0, 51.0, -INF),
        (2.0, -149.0, f32::from_bits(1)),
        (0.0, INF, 0.0),
        (0.0, -INF, INF),
        (2.0, 127.0, 1.701_411_8e38),
        (-1.0, 16_777_217.0, 1.0),
        (-1.0, 8_388_609.0, -1.0),
    ];
    check("pow", |x, y| math::pow(x, y), &cases);
    let expected = |x: f32, y: f32| f64::from(x).powf(f64::from(y)) as f32;
    for (x, y, value) in cases {
        assert!(value.is_nan() && expected(x, y).is_nan() || value.to_bits() == expected(x, y).to_bits(), "{x} {y}");
    }
}

#[test]
fn zeros_keep_their_sign_and_infinities_their_limits() {
    let odd = [(0.0, 0.0, 0.0), (-0.0, 0.0, -0.0)];
    check("sin", |x, _| math::sin(x), &[odd[0], odd[1], (INF, 0.0, f32::NAN), (-INF, 0.0, f32::NAN)]);
    check("cos", |x, _| math::cos(x), &[(0.0, 0.0, 1.0), (-0.0, 0.0, 1.0), (INF, 0.0, f32::NAN)]);
    check("tanh", |x, _| math::tanh(x), &[odd[0], odd[1], (INF, 0.0, 1.0), (-INF, 0.0, -1.0)]);
    check("erf", |x, _| math::erf(x), &[odd[0], odd[1], (INF, 0.0, 1.0), (-INF, 0.0, -1.0)]);
    check("exp", |x, _| math::exp(x), &[(-0.0, 0.0, 1.0), (INF, 0.0, INF), (-INF, 0.0, 0.0), (89.0, 0.0, INF)]);
    check("log", |x, _| math::log(x), &[(-0.0, 0.0, -INF), (1.0, 0.0, 0.0), (INF, 0.0, INF), (-1.0, 0.0, f32::NAN)]);
    check(
        "rsqrt",
        |x, _| math::rsqrt(x),
        &[(0.0, 0.0, INF), (-0.0, 0.0, -INF), (INF, 0.0, 0.0), (-1.0, 0.0, f32::NAN)],
    );
    check("sigmoid", |x, _| math::sigmoid(x), &[(INF, 0.0, 1.0), (-INF, 0.0, 0.0), (0.0, 0.0, 0.5)]);
    let gated = [(INF, 0.0, INF), (-INF, 0.0, -0.0), (0.0, 0.0, 0.0), (-0.0, 0.0, -0.0), (f32::NAN, 0.0, f32::NAN)];
    check("silu", |x, _| math::silu(x), &gated);
    check("gelu", |x, _| math::gelu(x), &gated);
    check("gelu_tanh", |x, _| math::gelu_tanh(x), &gated);
}
