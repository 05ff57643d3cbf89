//! Trials of the kernels: problems at random, the oracle in f64, how far a result may be off.

use super::plan::{Argument, Buffer, Choice, Step, WarpChoice, hopper_step, reduce_step, warp_step};
use super::{Config, Epilogue, Operand, Output, Problem, Shape, WarpShape};
use crate::mma::Factor;
use crate::naive;
use core::ops::Range;
use half::{bf16, f16};
use tilewright_codegen::ir::{Arch, Kernel, Needs};
use tilewright_codegen::trial::{Bound, Draw, Element, Expected, Shipped, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::view::Along;

/// A type of factors and of the result.
pub trait Number: Factor<Stored = Self, Sum = f32> + Output + Element {
    /// The nearest number.
    const ROUND: fn(f64) -> Self;
    /// The largest relative error of rounding.
    const UNIT: f64;
}

impl Number for bf16 {
    const ROUND: fn(f64) -> bf16 = bf16::from_f64;
    const UNIT: f64 = 1.0 / 256.0;
}

impl Number for f16 {
    const ROUND: fn(f64) -> f16 = f16::from_f64;
    const UNIT: f64 = 1.0 / 2048.0;
}

/// The operands of a product.
#[derive(Clone, Debug)]
pub struct Data<N> {
    /// The left factor.
    pub a: Vec<N>,
    /// The right factor.
    pub b: Vec<N>,
    /// A number per column of B.
    pub bias: Vec<N>,
    /// What is added last.
    pub residual: Vec<N>,
}

impl<N: Number> Data<N> {
    /// Random numbers from -1 to 1; what lies between the lines of a factor is NaN, which no result may show.
    pub fn draw(problem: &Problem, draw: &mut Draw) -> Data<N> {
        let [a, b, c] = problem.sizes();
        let mut fill = |operand: Operand, rows: u32, len: usize| {
            let line = if operand.major == Major::K { problem.k } else { rows } as usize;
            let drawn: Vec<N> = draw.floats(len, N::ROUND);
            let gap = |i: usize| i % operand.stride as usize >= line;
            drawn.into_iter().enumerate().map(|(i, v)| if gap(i) { N::ROUND(f64::NAN) } else { v }).collect()
        };
        let (a, b) = (fill(problem.a, problem.m, a), fill(problem.b, problem.b_rows(), b));
        let (bias, residual) = (draw.floats(problem.b_rows() as usize, N::ROUND), draw.floats(c, N::ROUND));
        Data { a, b, bias, residual }
    }

    /// The sums over `range` of the contraction in f64, rows of B's length, and by how much a kernel's may be off.
    ///
    /// Products of 16-bit floats are exact in f32. A sum of K of them in f32, in any order, is off by at most `K·u·Σ|aᵢbᵢ|`
    /// to first order; u is 2⁻²⁴ where f32 rounds to nearest, and 2⁻²³ in the tensor cores, which cut off.
    fn sums(&self, problem: &Problem, range: Range<u32>) -> Vec<(f64, f64)> {
        let at = |data: &[N], operand: Operand, row: usize, k: usize| {
            let stride = operand.stride as usize;
            data[if operand.major == Major::K { row * stride + k } else { k * stride + row }].value()
        };
        let start = range.start as usize;
        let (a, b) = (|m, k| at(&self.a, problem.a, m, start + k), |n, k| at(&self.b, problem.b, n, start + k));
        let extents = [problem.m, problem.b_rows(), range.end - range.start].map(|extent| extent as usize);
        let sizes = naive::gemm(extents, |m, k| a(m, k).abs(), |n, k| b(n, k).abs());
        let unit = 2f64.powi(-23) * (f64::from(range.end - range.start) + 2.0);
        naive::gemm(extents, a, b).into_iter().zip(sizes).map(|(sum, size)| (sum, unit * size)).collect()
    }

    /// The result, m × n, and by how much each element may be off.
    ///
    /// To the error of the sums come a rounding in f32 with the bias, a gate, which passes on the error of both its sums
    /// (|silu'| is below 1.1, and the kernel's silu is off by 2⁻²⁰ of its value), and the rounding of the result, [`Number::UNIT`]
    /// of its size.
    pub fn expected(&self, problem: &Problem) -> Vec<(f64, f64)> {
        self.finished(problem, &self.sums(problem, 0..problem.k))
    }

    /// The sums of each share of the contraction, whose steps are `step` long.
    fn shares(&self, problem: &Problem, splits: u32, step: u32) -> Vec<(f64, f64)> {
        let share = problem.k.div_ceil(step).div_ceil(splits) * step;
        (0..splits).flat_map(|s| self.sums(problem, s * share..((s + 1) * share).min(problem.k))).collect()
    }

    /// What the epilogue makes of sums and their errors.
    fn finished(&self, problem: &Problem, sums: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let (columns, width) = (problem.n as usize, problem.b_rows() as usize);
        let linear = |row: usize, column: usize| {
            let bias = if problem.epilogue.bias { self.bias[column].value() } else { 0.0 };
            let (sum, error) = sums[row * width + column];
            (sum + bias, error + 2f64.powi(-23) * (sum.abs() + bias.abs()))
        };
        (0..problem.m as usize * columns)
            .map(|i| {
                let (row, column) = (i / columns, i % columns);
                let (mut value, mut error) = linear(row, column);
                if problem.epilogue.gated {
                    let (factor, factor_error) = linear(row, column + columns);
                    let silu = value / (1.0 + (-value).exp());
                    error = 1.1 * error * (factor.abs() + factor_error)
                        + factor_error * silu.abs()
                        + (silu * factor).abs() * 2f64.powi(-20);
                    value = silu * factor;
                }
                if problem.epilogue.residual {
                    value += self.residual[row * problem.c_stride as usize + column].value();
                }
                (value, error + N::UNIT * (value.abs() + error) + 2f64.powi(-24))
            })
            .collect()
    }
}

/// A kernel of the room as a library ships it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedGemm {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hopper,
    Warps,
    Reduce,
}

impl ShippedGemm {
    /// The kernels.
    pub const ALL: [ShippedGemm; 3] = [
        ShippedGemm { name: "gemm", kind: Kind::Hopper },
        ShippedGemm { name: "gemm_warps", kind: Kind::Warps },
        ShippedGemm { name: "gemm_reduce", kind: Kind::Reduce },
    ];

    /// A problem that the kernel computes, and the launch that does it.
    fn case<N: Number>(self, arch: Arch, draw: &mut Draw) -> (Problem, Step, u32, u32) {
        loop {
            let problem = self.problem(draw);
            let (stages, group, most) = (draw.between(2..=4), draw.between(1..=3), draw.between(1..=4));
            let splits = |step: u32| {
                let steps = problem.k.div_ceil(step);
                (1..=most.min(steps)).rev().find(|n| (n - 1) * steps.div_ceil(*n) < steps).unwrap_or(1)
            };
            let pick = |draw: &mut Draw, count: usize| draw.between(0..=count as u32 - 1) as usize;
            let step = match self.kind {
                Kind::Hopper => {
                    let shape = Shape::ALL[pick(draw, Shape::ALL.len())];
                    let along = [Along::Rows, Along::Columns][pick(draw, 2)];
                    let config = Config { stages, cluster: draw.between(1..=2), along, group };
                    let splits = if problem.epilogue == Epilogue::default() { splits(shape.tile()[2]) } else { 1 };
                    hopper_step::<N, N>(&problem, Choice { shape, config, splits }, 6)
                        .map(|step| (step, splits, shape.tile()[2]))
                }
                Kind::Warps => {
                    let shape = WarpShape::ALL[pick(draw, WarpShape::ALL.len())];
                    let splits = if problem.epilogue == Epilogue::default() { splits(64) } else { 1 };
                    let choice = WarpChoice { shape, stages, group, splits, arch, aligned: [8, 8] };
                    warp_step::<N, N>(&problem, choice).map(|step| (step, splits, shape.tile()[2]))
                }
                Kind::Reduce => reduce_step::<N>(&problem, most, arch).map(|step| (step, most, 1)),
            };
            // A gate does not go with every order and tile: another problem, then.
            if let Ok((step, splits, tile_k)) = step {
                return (problem, step, splits, tile_k);
            }
        }
    }

    fn problem(self, draw: &mut Draw) -> Problem {
        let mut extent = |most: u32| match draw.between(0..=3) {
            0 => draw.between(1..=9),
            1 => 16 * draw.between(1..=most / 16),
            _ => draw.between(1..=most),
        };
        let (m, n, k) = (extent(300), extent(300), extent(320));
        let mut flag = || draw.between(0..=1) == 1;
        let epilogue = Epilogue { bias: flag(), gated: flag() && self.kind != Kind::Warps, residual: flag() };
        let epilogue = if flag() { epilogue } else { Epilogue::default() };
        let majors = [0; 2].map(|_| if flag() { Major::K } else { Major::Mn });
        let problem = Problem::new(m, n, k).epilogue(epilogue).orders(majors[0], majors[1]);
        let multiple = if self.kind == Kind::Warps { draw.between(1..=8) } else { 8 };
        let apart = |operand: Operand| Operand { stride: operand.stride.next_multiple_of(multiple), ..operand };
        Problem { a: apart(problem.a), b: apart(problem.b), ..problem }
    }

    fn trial<N: Number>(self, arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
        let mut draw = Draw::new(seed);
        let (problem, step, splits, tile_k) = self.case::<N>(arch, &mut draw);
        let data = Data::<N>::draw(&problem, &mut draw);
        let mut trial = Trial::new(verify(step.kernel)?, step.grid).note(format!("{problem:?}, {splits} shares"));
        let len = splits as usize * problem.m as usize * problem.b_rows() as usize;
        let shares: Vec<f32> = draw.floats(len, |v| v as f32);
        let near = |values: Vec<(f64, f64)>, relative: f64| {
            let absolute = values.iter().map(|(value, bound)| bound - relative * value.abs()).fold(0.0, f64::max);
            (values.into_iter().map(|(value, _)| value).collect::<Vec<f64>>(), Bound { absolute, relative })
        };
        for argument in step.arguments {
            let (buffer, shape) = match argument {
                Argument::Number(number) => {
                    trial = trial.pass(number);
                    continue;
                }
                Argument::Pointer(buffer) => (buffer, None),
                Argument::Map(buffer, shape) => (buffer, Some(shape)),
            };
            let id = match (buffer, self.kind) {
                (Buffer::A, _) => trial.input("a", &data.a),
                (Buffer::B, _) => trial.input("b", &data.b),
                (Buffer::Bias, _) => trial.input("bias", &data.bias),
                (Buffer::Residual, _) => trial.input("residual", &data.residual),
                (Buffer::Partials, Kind::Reduce) => trial.input("partials", &shares),
                (Buffer::Partials, _) => {
                    let (values, bound) = near(data.shares(&problem, splits, tile_k), 0.0);
                    trial.output("partials", Expected::near::<f32>(&values, bound))
                }
                (Buffer::C, Kind::Reduce) => {
                    let (values, bound) = near(data.finished(&problem, &added(&shares, splits)), N::UNIT);
                    trial.output("c", Expected::near::<N>(&values, bound))
                }
                (Buffer::C, _) => {
                    let (values, bound) = near(data.expected(&problem), N::UNIT);
                    trial.output("c", Expected::near::<N>(&values, bound))
                }
            };
            trial = match shape {
                Some(shape) => trial.map(id, shape),
                None => trial.pass(id),
            };
        }
        Ok(trial)
    }
}

/// Shares added up, and by how much f32 may be off.
fn added(shares: &[f32], splits: u32) -> Vec<(f64, f64)> {
    let plane = shares.len() / splits as usize;
    let sum = |i: usize, f: fn(f64) -> f64| shares[i..].iter().step_by(plane).map(|&v| f(v.into())).sum::<f64>();
    (0..plane).map(|i| (sum(i, |v| v), 2f64.powi(-24) * f64::from(splits) * sum(i, f64::abs))).collect()
}

impl Shipped for ShippedGemm {
    fn name(&self) -> &str {
        self.name
    }

    fn needs(&self) -> Needs {
        if self.kind == Kind::Hopper { Needs::Sm90a } else { Needs::Sm80 }
    }

    fn record(&self, arch: Arch) -> Kernel {
        self.case::<bf16>(arch, &mut Draw::new(0)).1.kernel
    }

    fn draw(&self, arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
        if seed.is_multiple_of(2) { self.trial::<bf16>(arch, seed) } else { self.trial::<f16>(arch, seed) }
    }
}
