//! The operands of a product at random, the oracle, and how far a result may be off.

use super::{GemmOutput, GemmProblem, GemmRefusal, HopperChoice, OperandLayout, PlannedLaunch, hopper_steps};
use crate::epilogue::{Epilogue, SumScale};
use crate::mma::{E4M3, E5M2, InputType};
use crate::naive;
use core::ops::Range;
use half::{bf16, f16};
use tilewright_codegen::trial::{Draw, TrialElement};
use tilewright_layout::swizzle::canonical::Major;

/// An input type that the host draws and reads.
pub trait Drawn: InputType<Stored: TrialElement> {
    /// The nearest number that memory holds; of NaN, what stands out most.
    const NEAREST: fn(f64) -> Self::Stored;
    /// The value of a stored element.
    const VALUE: fn(Self::Stored) -> f64;
    /// Numbers are drawn from minus this to this.
    const RANGE: f64;
    /// [`hopper_steps`] with results of bf16. As a function of its own it is compiled once, not in
    /// every crate that times it.
    const HOPPER_STEPS: fn(&GemmProblem, HopperChoice, u32) -> Result<Vec<PlannedLaunch>, GemmRefusal>;
}

macro_rules! drawn {
    ($($F:ty: $nearest:expr, $value:expr, $range:literal;)+) => { $(
        impl Drawn for $F {
            const NEAREST: fn(f64) -> Self::Stored = $nearest;
            const VALUE: fn(Self::Stored) -> f64 = $value;
            const RANGE: f64 = $range;
            const HOPPER_STEPS: fn(&GemmProblem, HopperChoice, u32) -> Result<Vec<PlannedLaunch>, GemmRefusal> = {
                fn steps(problem: &GemmProblem, choice: HopperChoice, multiprocessors: u32) -> Result<Vec<PlannedLaunch>, GemmRefusal> {
                    hopper_steps::<$F, bf16>(problem, choice, multiprocessors)
                }
                steps
            };
        }
    )+ };
}

drawn! {
    bf16: bf16::from_f64, bf16::to_f64, 1.0;
    f16: f16::from_f64, f16::to_f64, 1.0;
    E4M3: E4M3::nearest, E4M3::value, 448.0;
    E5M2: E5M2::nearest, E5M2::value, 1024.0;
    i8: |value| if value.is_nan() { i8::MIN } else { value.round() as i8 }, f64::from, 128.0;
}

/// A type of results that the host rounds.
pub trait Rounded: GemmOutput + TrialElement {
    /// The nearest number after rounding to f32, as the kernels do it.
    const ROUND: fn(f64) -> Self;
    /// The largest relative error of rounding.
    const UNIT: f64;
}

impl Rounded for bf16 {
    const ROUND: fn(f64) -> bf16 = |value| bf16::from_f32(value as f32);
    const UNIT: f64 = 1.0 / 256.0;
}

impl Rounded for f16 {
    const ROUND: fn(f64) -> f16 = |value| f16::from_f32(value as f32);
    const UNIT: f64 = 1.0 / 2048.0;
}

impl Rounded for f32 {
    const ROUND: fn(f64) -> f32 = |value| value as f32;
    const UNIT: f64 = 1.0 / 16_777_216.0;
}

/// The operands of a product.
#[derive(Clone, Debug)]
pub struct Data<F: Drawn, D> {
    /// The A operand.
    pub a: Vec<F::Stored>,
    /// The B operand.
    pub b: Vec<F::Stored>,
    /// The divisors of A and B: one, or one for each row.
    pub scales: [Vec<f32>; 2],
    /// A number per column of B.
    pub bias: Vec<D>,
    /// The residual, added last.
    pub residual: Vec<D>,
}

/// A value, and by how much a kernel's may be off.
pub type Near = (f64, f64);

impl<F: Drawn, D: Rounded> Data<F, D> {
    /// Random numbers within [`Drawn::RANGE`], scales that bring them to about 1; what lies between
    /// the lines of an operand is NaN where there is one, which no result may show.
    pub fn draw(problem: &GemmProblem, draw: &mut Draw) -> Data<F, D> {
        let [a, b, c] = problem.sizes();
        let mut fill = |operand: OperandLayout, rows: u32, len: usize| {
            let line = if operand.major == Major::K { problem.k } else { rows } as usize;
            // Few bits make few exponents: all of them shall come up.
            let power = if F::BITS == 8 { 3 } else { 1 };
            let drawn: Vec<f64> = (0..len).map(|_| draw.unit().powi(power) * F::RANGE).collect();
            let gap = |i: usize| i % operand.stride as usize >= line;
            drawn.into_iter().enumerate().map(|(i, v)| (F::NEAREST)(if gap(i) { f64::NAN } else { v })).collect()
        };
        let a = fill(problem.a, problem.m, a);
        let b = fill(problem.b, problem.b_rows(), b);
        let counts = match problem.epilogue.scale {
            Some(SumScale::Rows) => [problem.m, problem.b_rows()],
            Some(SumScale::Operands | SumScale::Norm) | None => [1, 1],
        };
        let mut scale = || ((1.5 + 0.5 * draw.unit()) / F::RANGE) as f32;
        let scales = counts.map(|count| (0..count).map(|_| scale()).collect());
        let bias = draw.floats(problem.b_rows() as usize, D::ROUND);
        let residual = draw.floats(c, D::ROUND);
        Data { a, b, scales, bias, residual }
    }

    /// The sums over `range` of the contraction in f64, rows of B's length.
    ///
    /// A product of two elements is exact. The tensor cores line the terms of a sum up with the
    /// largest and cut off what lies below [`InputType::CUT`] of it: a term each time for K of them
    /// and for the sum so far at each instruction's K, in any order, so that a sum is off by at
    /// most `(K + K/16 + 2)·CUT·Σ|aᵢbᵢ|` to first order. With two-level accumulation K there is
    /// that of a stage, and the sum of the stages in f32 adds `2⁻²⁴·Σ|aᵢbᵢ|` each.
    pub fn sums(&self, problem: &GemmProblem, range: Range<u32>) -> Vec<Near> {
        let at = |data: &[F::Stored], operand: OperandLayout, row: usize, k: usize| {
            let stride = operand.stride as usize;
            (F::VALUE)(data[if operand.major == Major::K { row * stride + k } else { k * stride + row }])
        };
        let start = range.start as usize;
        let depth = range.end - range.start;
        let (a, b) = (|m, k| at(&self.a, problem.a, m, start + k), |n, k| at(&self.b, problem.b, n, start + k));
        let extents = [problem.m, problem.b_rows(), depth].map(|extent| extent as usize);
        let sizes = naive::gemm(extents, |m, k| a(m, k).abs(), |n, k| b(n, k).abs());
        let cut = |depth: u32| (1.0625 * f64::from(depth) + 2.0) * F::CUT;
        let unit = match problem.two_level::<F>() {
            true => cut(depth.min(128)) + (f64::from(depth.div_ceil(128)) + 1.0) * 2f64.powi(-24),
            false => cut(depth),
        };
        naive::gemm(extents, a, b).into_iter().zip(sizes).map(|(sum, size)| (sum, unit * size)).collect()
    }

    /// The result, m × n, and by how much each element may be off.
    pub fn expected(&self, problem: &GemmProblem) -> Vec<Near> {
        self.finished(problem, &self.sums(problem, 0..problem.k))
    }

    /// The sums of each share of the contraction, whose steps are `step` long.
    pub fn shares(&self, problem: &GemmProblem, splits: u32, step: u32) -> Vec<Near> {
        let share = problem.k.div_ceil(step).div_ceil(splits) * step;
        (0..splits).flat_map(|s| self.sums(problem, s * share..((s + 1) * share).min(problem.k))).collect()
    }

    /// Applies the epilogue to sums and their errors.
    ///
    /// To the error of the sums come roundings in f32 with scale and bias, that of the functions
    /// ([`expected`](crate::epilogue::ResultFunctions::expected)), and the rounding of the result,
    /// [`Rounded::UNIT`] of its size.
    pub fn finished(&self, problem: &GemmProblem, sums: &[Near]) -> Vec<Near> {
        let columns = problem.n as usize;
        let width = problem.b_rows() as usize;
        let linear = |row: usize, column: usize| {
            let scale = f64::from(self.scale(problem, row, column));
            let bias = if problem.epilogue.bias { self.bias[column].value() } else { 0.0 };
            let (sum, error) = sums[row * width + column];
            [sum * scale + bias, error * scale + 2f64.powi(-22) * (sum.abs() * scale + bias.abs())]
        };
        (0..problem.m as usize * columns)
            .map(|i| {
                let row = i / columns;
                let column = i % columns;
                let up = problem.epilogue.gated.then(|| linear(row, column + columns));
                let [mut value, error] = problem.epilogue.functions.expected(linear(row, column), up);
                if problem.epilogue.residual {
                    value += self.residual[row * problem.c_stride as usize + column].value();
                }
                (value, error + D::UNIT * (value.abs() + error) + 2f64.powi(-24))
            })
            .collect()
    }

    /// The result bit for bit, where it is certain: sums of integers, multiplied by a scale at
    /// most.
    pub fn exactly(&self, problem: &GemmProblem) -> Option<Vec<D>> {
        let GemmProblem { epilogue, .. } = *problem;
        let scaled = Epilogue { scale: epilogue.scale, ..Epilogue::default() };
        if F::CUT > 0.0 || epilogue != scaled {
            return None;
        }
        let columns = problem.b_rows() as usize;
        let scale = |at: usize| self.scale(problem, at / columns, at % columns);
        let sums = self.sums(problem, 0..problem.k).into_iter().enumerate();
        // From s32 to f32, times the scale in f32, then to the result's type.
        Some(sums.map(|(at, (sum, _))| D::ROUND(f64::from(sum as f32 * scale(at)))).collect())
    }

    /// The factor of a sum.
    fn scale(&self, problem: &GemmProblem, row: usize, column: usize) -> f32 {
        let [a, b] = &self.scales;
        match problem.epilogue.scale {
            Some(SumScale::Rows) => a[row] * b[column],
            Some(SumScale::Operands) => a[0] * b[0],
            Some(SumScale::Norm) | None => 1.0,
        }
    }
}
