//! Products in the simulator: inputs, the oracle in f64, the bound, and the launches of a plan on a device.

use half::{bf16, f16};
use tilewright_codegen::device::{Arg, Buffer, Device, DeviceError, TensorMap, sim};
use tilewright_codegen::trial::{Draw, Element};
use tilewright_codegen::verify::{Verified, verify};
use tilewright_kernels::gemm::{self, Argument, Operand, Output, Problem, Step};
use tilewright_kernels::mma::Factor;
use tilewright_kernels::naive;
use tilewright_layout::swizzle::canonical::Major;

/// A type of factors and results.
pub trait Number: Factor<Stored = Self, Sum = f32> + Output + Element {
    const ROUND: fn(f64) -> Self;
    /// Half of the distance of neighbouring numbers near 1.
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
pub struct Data<N> {
    pub a: Vec<N>,
    pub b: Vec<N>,
    pub bias: Vec<N>,
    pub residual: Vec<N>,
}

impl<N: Number> Data<N> {
    /// Random numbers from -1 to 1; what lies between the lines of a matrix is NaN, which no result may show.
    pub fn draw(problem: &Problem, seed: u64) -> Data<N> {
        let mut draw = Draw::new(seed);
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

    /// The result, and by how much each element may be off.
    ///
    /// Products of 16-bit floats are exact in f32. A sum of K of them in f32, in any order, is off by at most `K·2⁻²⁴·Σ|aᵢbᵢ|`
    /// to first order; the tensor cores truncate where f32 rounds, which doubles the unit. The result is rounded once,
    /// by `UNIT` of its size. A gate passes on the error of both its sums: |silu'| is below 1.1, and `silu` and `ex2` are
    /// off by 2⁻²⁰ of their value.
    pub fn expected(&self, problem: &Problem) -> Vec<(f64, f64)> {
        let at = |data: &[N], operand: Operand, row: usize, k: usize| {
            let stride = operand.stride as usize;
            data[if operand.major == Major::K { row * stride + k } else { k * stride + row }].value()
        };
        let (a, b) = (|m, k| at(&self.a, problem.a, m, k), |n, k| at(&self.b, problem.b, n, k));
        let [m, n, k] = [problem.m, problem.b_rows(), problem.k].map(|extent| extent as usize);
        let sums = naive::gemm([m, n, k], a, b);
        let sizes = naive::gemm([m, n, k], |m, k| a(m, k).abs(), |n, k| b(n, k).abs());
        let unit = 2.0 * 2f64.powi(-24) * (k as f64 + 2.0);
        let columns = problem.n as usize;
        let linear = |row: usize, column: usize| {
            let bias = if problem.epilogue.bias { self.bias[column].value() } else { 0.0 };
            (sums[row * n + column] + bias, unit * (sizes[row * n + column] + bias.abs()))
        };
        (0..m * columns)
            .map(|i| {
                let (row, column) = (i / columns, i % columns);
                let (mut value, mut error) = linear(row, column);
                if problem.epilogue.gated {
                    let (factor, factor_error) = linear(row, column + columns);
                    let silu = value / (1.0 + (-value).exp());
                    error =
                        1.1 * error * factor.abs() + factor_error * silu.abs() + (silu * factor).abs() * 2f64.powi(-20);
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

/// Verified steps of a plan.
pub fn verified(steps: Vec<Step>) -> Vec<(Verified, Step)> {
    let check = |step: Step| (verify(step.kernel.clone()).unwrap_or_else(|errors| panic!("{errors}")), step);
    steps.into_iter().map(check).collect()
}

/// Runs launches one after the other; the result's memory, poisoned before.
pub fn run<N: Number>(
    device: &Device,
    problem: &Problem,
    steps: &[(Verified, Step)],
    data: &Data<N>,
) -> Result<Vec<N>, DeviceError> {
    let stream = device.stream()?;
    let [a, b, bias, residual] = [&data.a, &data.b, &data.bias, &data.residual].map(|data| stream.buffer(data));
    let (a, b, bias, residual) = (a?, b?, bias?, residual?);
    let c: Buffer<N> = stream.buffer(&vec![N::ROUND(f64::NAN); problem.sizes()[2]])?;
    let partials: Buffer<f32> = stream.buffer(&vec![f32::NAN; 16 * (problem.m * problem.b_rows()) as usize])?;
    for (kernel, step) in steps {
        let mut maps: Vec<Option<TensorMap>> = Vec::new();
        for argument in &step.arguments {
            maps.push(match argument {
                Argument::Map(gemm::Buffer::A, shape) => Some(device.tensor_map(&a, shape.clone())?),
                Argument::Map(gemm::Buffer::B, shape) => Some(device.tensor_map(&b, shape.clone())?),
                Argument::Map(_, shape) => Some(device.tensor_map(&c, shape.clone())?),
                Argument::Pointer(_) | Argument::Number(_) => None,
            });
        }
        let pointer = |buffer: &gemm::Buffer| -> Arg<'_> {
            match buffer {
                gemm::Buffer::A => (&a).into(),
                gemm::Buffer::B => (&b).into(),
                gemm::Buffer::C => (&c).into(),
                gemm::Buffer::Bias => (&bias).into(),
                gemm::Buffer::Residual => (&residual).into(),
                gemm::Buffer::Partials => (&partials).into(),
            }
        };
        let args: Vec<Arg<'_>> = step
            .arguments
            .iter()
            .zip(&maps)
            .map(|(argument, map)| match (argument, map) {
                (Argument::Number(number), _) => (*number).into(),
                (Argument::Pointer(buffer), _) => pointer(buffer),
                (Argument::Map(..), Some(map)) => Arg::Map(map),
                (Argument::Map(..), None) => unreachable!("made above"),
            })
            .collect();
        device.load(kernel)?.launch(&stream, step.grid, &args)?;
    }
    stream.read(&c)
}

/// Runs launches in the simulator and compares every element of the result, and what lies between its rows.
pub fn check<N: Number>(problem: &Problem, steps: Vec<Step>, seed: u64) {
    let data = Data::<N>::draw(problem, seed);
    let found =
        run(&sim::open(seed), problem, &verified(steps), &data).unwrap_or_else(|error| panic!("{problem:?}: {error}"));
    if let Err(what) = compare(problem, &data, &found) {
        panic!("{problem:?}: {what}");
    }
}

/// Whether the result is right.
pub fn compare<N: Number>(problem: &Problem, data: &Data<N>, found: &[N]) -> Result<(), String> {
    let (columns, stride) = (problem.n as usize, problem.c_stride as usize);
    for (i, (value, bound)) in data.expected(problem).into_iter().enumerate() {
        let (row, column) = (i / columns, i % columns);
        let it = found[row * stride + column].value();
        if (it - value).abs() > bound || it.is_nan() {
            return Err(format!("({row}, {column}) is {it}, not {value} within {bound}"));
        }
    }
    match found.iter().enumerate().find(|(i, v)| i % stride >= columns && !v.value().is_nan()) {
        Some((i, v)) => Err(format!("element {i}, between two rows, was written: {}", v.value())),
        None => Ok(()),
    }
}
