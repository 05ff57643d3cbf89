//! Numbers of a trial in a floating-point type that is drawn.

use half::{bf16, f16};
use tilewright_codegen::trial::{Bound, BufferId, Draw, Expected, Trial};

use crate::tile::Float;

/// Half the distance from 1 to the next f32: the relative error of an operation.
pub(crate) const UNIT: f64 = 1.0 / (1 << 24) as f64;

/// A type.
pub(crate) fn float(draw: &mut Draw) -> Float {
    [Float::F32, Float::F16, Float::Bf16][draw.between(0..=2) as usize]
}

/// Numbers from −`size` to `size` that the type holds exactly.
pub(crate) fn numbers(draw: &mut Draw, float: Float, count: u32, size: f64) -> Vec<f64> {
    (0..count).map(|_| rounded(draw.unit() * size, float)).collect()
}

/// The nearest number of the type.
pub(crate) fn rounded(value: f64, float: Float) -> f64 {
    match float {
        Float::F32 => f64::from(value as f32),
        Float::F16 => f16::from_f64(value).to_f64(),
        Float::Bf16 => bf16::from_f64(value).to_f64(),
    }
}

/// A buffer of the trial that the kernel reads.
pub(crate) fn input(trial: &mut Trial, name: &str, float: Float, values: &[f64]) -> BufferId {
    match float {
        Float::F32 => trial.input(name, &values.iter().map(|&v| v as f32).collect::<Vec<_>>()),
        Float::F16 => trial.input(name, &values.iter().map(|&v| f16::from_f64(v)).collect::<Vec<_>>()),
        Float::Bf16 => trial.input(name, &values.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<_>>()),
    }
}

/// Elements within `bound` of these values and then rounded to the type: half a unit in its last
/// place more.
pub(crate) fn near(float: Float, values: &[f64], bound: Bound) -> Expected {
    // Significant bits, and half the least number above 0.
    let (bits, least) = match float {
        Float::F32 => (24, 0.0),
        Float::F16 => (11, 2f64.powi(-25)),
        Float::Bf16 => (8, 0.0),
    };
    let roundoff = 2f64.powi(-bits);
    let absolute = bound.absolute * (1.0 + roundoff) + least;
    let bound = Bound { absolute, relative: (1.0 + bound.relative) * (1.0 + roundoff) - 1.0 };
    match float {
        Float::F32 => Expected::near::<f32>(values, bound),
        Float::F16 => Expected::near::<f16>(values, bound),
        Float::Bf16 => Expected::near::<bf16>(values, bound),
    }
}

/// A buffer that the kernel writes; what stands as a NaN here is between the rows, and left alone.
pub(crate) fn output(trial: &mut Trial, name: &str, float: Float, values: &[f64], bound: Bound) -> BufferId {
    let expected = near(float, values, bound);
    if !values.iter().any(|value| value.is_nan()) {
        return trial.output(name, expected);
    }
    match float {
        Float::F32 => trial.changed(name, &vec![f32::NAN; values.len()], expected),
        Float::F16 => trial.changed(name, &vec![f16::NAN; values.len()], expected),
        Float::Bf16 => trial.changed(name, &vec![bf16::NAN; values.len()], expected),
    }
}
