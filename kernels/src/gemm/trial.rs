//! Trials of the kernels: problems at random for each kernel that is shipped.

use super::choose::{HopperChoice, WarpChoice};
use super::data::{Data, Drawn, Near, Rounded};
use super::plan::{Argument, GemmBuffer, PlannedLaunch, hopper_step, reduce_step, warp_step};
use super::{Epilogue, GemmProblem, HopperConfig, HopperShape, OperandLayout, WarpShape};
use crate::activation::{Activation, SoftCap};
use crate::epilogue::{ResultFunctions, SumScale};
use crate::mma::{E4M3, E5M2, Width};
use half::{bf16, f16};
use tilewright_codegen::ir::{Arch, Kernel, Needs};
use tilewright_codegen::trial::{Bound, BufferId, Draw, Expected, Shipped, Trial, TrialElement};
use tilewright_codegen::verify::{VerifyErrors, verify};
use tilewright_layout::swizzle::canonical::Major;
use tilewright_layout::view::Along;

/// A kernel of the module as a library ships it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedGemm {
    name: &'static str,
    kind: GemmCaseKind,
    inputs: GemmInputs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GemmCaseKind {
    Hopper,
    Warps,
    Reduce,
}

/// The type of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GemmInputs {
    /// bf16 and f16.
    Half,
    /// E4M3 and E5M2.
    Float8,
    /// s8.
    Int8,
}

/// A problem, and the launch that computes it or a part of it.
struct GemmCase {
    problem: GemmProblem,
    step: PlannedLaunch,
    /// Shares of the contraction, and the length of a step of it.
    splits: u32,
    depth: u32,
}

/// The functions of an epilogue, which do not change what else is drawn; the activation is that of
/// gates.
fn draw_functions(draw: &mut Draw) -> ResultFunctions {
    let activation = Some(Activation::ALL[draw.between(0..=1) as usize]);
    ResultFunctions { activation, soft_cap: SoftCap::new(2.0).ok().filter(|_| draw.between(0..=2) == 0) }
}

impl ShippedGemm {
    /// The kernels.
    pub const ALL: [ShippedGemm; 7] = [
        ShippedGemm { name: "gemm", kind: GemmCaseKind::Hopper, inputs: GemmInputs::Half },
        ShippedGemm { name: "gemm_fp8", kind: GemmCaseKind::Hopper, inputs: GemmInputs::Float8 },
        ShippedGemm { name: "gemm_s8", kind: GemmCaseKind::Hopper, inputs: GemmInputs::Int8 },
        ShippedGemm { name: "gemm_warps", kind: GemmCaseKind::Warps, inputs: GemmInputs::Half },
        ShippedGemm { name: "gemm_fp8_warps", kind: GemmCaseKind::Warps, inputs: GemmInputs::Float8 },
        ShippedGemm { name: "gemm_s8_warps", kind: GemmCaseKind::Warps, inputs: GemmInputs::Int8 },
        ShippedGemm { name: "gemm_reduce", kind: GemmCaseKind::Reduce, inputs: GemmInputs::Half },
    ];

    /// A problem that the kernel computes, and the launch that does it.
    fn case<F: Drawn, D: Rounded>(self, arch: Arch, draw: &mut Draw, functions: ResultFunctions) -> GemmCase {
        loop {
            let problem = self.problem(draw, functions);
            // Three stages fit wherever the kernel runs.
            let stages = draw.between(2..=3);
            let group = draw.between(1..=3);
            let most = draw.between(1..=4);
            let depth = F::Width::DEPTH;
            let two_level = problem.two_level::<F>();
            let steps = problem.k.div_ceil(depth);
            let shares = (1..=most.min(steps)).rev().find(|n| (n - 1) * steps.div_ceil(*n) < steps).unwrap_or(1);
            let pick = |draw: &mut Draw, count: usize| draw.between(0..=count as u32 - 1) as usize;
            let splits = match self.kind {
                GemmCaseKind::Reduce => most,
                _ if problem.epilogue == Epilogue::default() => shares,
                _ => 1,
            };
            let step = match self.kind {
                GemmCaseKind::Hopper => {
                    let shape = HopperShape::ALL[pick(draw, HopperShape::ALL.len())];
                    let along = [Along::Rows, Along::Columns][pick(draw, 2)];
                    let config = HopperConfig { stages, cluster: draw.between(1..=2), along, group, two_level };
                    hopper_step::<F, D>(&problem, HopperChoice { shape, config, splits }, 6)
                }
                GemmCaseKind::Warps => {
                    let shape = WarpShape::ALL[pick(draw, WarpShape::ALL.len())];
                    let choice = WarpChoice { shape, stages, group, splits, arch, aligned: [8, 8], two_level };
                    warp_step::<F, D>(&problem, choice)
                }
                GemmCaseKind::Reduce => reduce_step::<F, D>(&problem, most, arch),
            };
            // Not every order, gate and two-level accumulation goes with every tile: another
            // problem, then.
            if let Ok(step) = step {
                return GemmCase { problem, step, splits, depth };
            }
        }
    }

    fn problem(self, draw: &mut Draw, functions: ResultFunctions) -> GemmProblem {
        let mut extent = |most: u32| match draw.between(0..=3) {
            0 => draw.between(1..=9),
            1 => 16 * draw.between(1..=most / 16),
            _ => draw.between(1..=most),
        };
        let m = extent(300);
        let n = extent(300);
        let k = extent(320);
        let mut flag = || draw.between(0..=1) == 1;
        let scaled = self.inputs != GemmInputs::Half && flag();
        let [bias, gated, residual] = [flag(), flag() && self.kind != GemmCaseKind::Warps, flag()];
        let scale = scaled.then_some(SumScale::Operands);
        let activation = functions.activation.filter(|_| gated);
        let functions = ResultFunctions { activation, ..functions };
        let epilogue = Epilogue { scale, bias, gated, functions, residual };
        let plain = Epilogue { scale, ..Epilogue::default() };
        let epilogue = if flag() { epilogue } else { plain };
        let majors = [0; 2].map(|_| match (self.kind, self.inputs) {
            (GemmCaseKind::Hopper, GemmInputs::Float8 | GemmInputs::Int8) => Major::K,
            _ if flag() => Major::K,
            _ => Major::Mn,
        });
        let problem = GemmProblem::new(m, n, k).epilogue(epilogue).orders(majors[0], majors[1]);
        let problem = GemmProblem { fast: flag(), ..problem };
        let multiple = if self.kind == GemmCaseKind::Warps { draw.between(1..=8) } else { 16 };
        let apart =
            |operand: OperandLayout| OperandLayout { stride: operand.stride.next_multiple_of(multiple), ..operand };
        GemmProblem { a: apart(problem.a), b: apart(problem.b), ..problem }
    }

    fn trial<F: Drawn, D: Rounded>(self, arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
        let mut draw = Draw::new(seed);
        let functions = draw_functions(&mut Draw::new(!seed));
        let GemmCase { problem, step, splits, depth } = self.case::<F, D>(arch, &mut draw, functions);
        let data = Data::<F, D>::draw(&problem, &mut draw);
        let note = format!("{} to {}, {problem:?}, {splits} shares", F::NAME, D::NAME);
        let mut trial = Trial::new(verify(step.kernel)?, step.grid).note(note);
        let len = splits as usize * problem.m as usize * problem.b_rows() as usize;
        let shares: Vec<f32> = draw.floats(len, |v| v as f32);
        for argument in step.arguments {
            trial = argument.pass(trial, |trial, buffer| match (buffer, self.kind) {
                (GemmBuffer::A, _) => trial.input("a", &data.a),
                (GemmBuffer::B, _) => trial.input("b", &data.b),
                (GemmBuffer::AScale, _) => trial.input("a_scale", &data.scales[0]),
                (GemmBuffer::BScale, _) => trial.input("b_scale", &data.scales[1]),
                (GemmBuffer::Bias, _) => trial.input("bias", &data.bias),
                (GemmBuffer::Residual, _) => trial.input("residual", &data.residual),
                (GemmBuffer::Partials, GemmCaseKind::Reduce) => trial.input("partials", &shares),
                (GemmBuffer::Partials, _) if F::CUT == 0.0 => {
                    let sums = data.shares(&problem, splits, depth).into_iter();
                    trial.output("partials", Expected::exact(&sums.map(|(sum, _)| sum as i32).collect::<Vec<i32>>()))
                }
                (GemmBuffer::Partials, _) => {
                    trial.output("partials", near::<f32>(data.shares(&problem, splits, depth), 0.0))
                }
                (GemmBuffer::C, GemmCaseKind::Reduce) => {
                    trial.output("c", near::<D>(data.finished(&problem, &added(&shares, splits)), D::UNIT))
                }
                (GemmBuffer::C, _) => {
                    let expected = match data.exactly(&problem) {
                        Some(exactly) => Expected::exact(&exactly),
                        None => near::<D>(data.expected(&problem), D::UNIT),
                    };
                    trial.output("c", expected)
                }
            });
        }
        Ok(trial)
    }
}

impl<B> Argument<B> {
    /// Passes the argument to a trial; `buffer` creates the named buffer.
    ///
    /// ```
    /// use half::bf16;
    /// use tilewright_codegen::device::sim;
    /// use tilewright_codegen::ir::Arch;
    /// use tilewright_codegen::trial::{Expected, Trial};
    /// use tilewright_codegen::verify::verify;
    /// use tilewright_kernels::gemm::{GemmBuffer, GemmProblem, reduce_step};
    ///
    /// // Two shares of a product of 2 by 8.
    /// let step = reduce_step::<bf16, f32>(GemmProblem::new(2, 8, 64), 2, Arch::Sm80)?;
    /// let mut trial = Trial::new(verify(step.kernel)?, step.grid);
    /// for argument in step.arguments {
    ///     trial = argument.pass(trial, |trial, buffer| match buffer {
    ///         GemmBuffer::Partials => trial.input("partials", &[1.5f32; 32]),
    ///         _ => trial.output("c", Expected::exact(&[3.0f32; 16])),
    ///     });
    /// }
    /// assert!(trial.run(&sim::open(1))?.is_right());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pass(self, mut trial: Trial, buffer: impl FnOnce(&mut Trial, B) -> BufferId) -> Trial {
        match self {
            Argument::Number(number) => trial.pass(number),
            Argument::Pointer(named) => {
                let id = buffer(&mut trial, named);
                trial.pass(id)
            }
            Argument::Map(named, shape) => {
                let id = buffer(&mut trial, named);
                trial.map(id, shape)
            }
        }
    }
}

/// Elements near values, a part of the bounds relative.
pub(super) fn near<T: TrialElement>(values: Vec<Near>, relative: f64) -> Expected {
    let absolute = values.iter().map(|(value, bound)| bound - relative * value.abs()).fold(0.0, f64::max);
    let values: Vec<f64> = values.into_iter().map(|(value, _)| value).collect();
    Expected::near::<T>(&values, Bound { absolute, relative })
}

/// Shares added up, and by how much f32 may be off.
fn added(shares: &[f32], splits: u32) -> Vec<Near> {
    let plane = shares.len() / splits as usize;
    let sum = |i: usize, f: fn(f64) -> f64| shares[i..].iter().step_by(plane).map(|&v| f(v.into())).sum::<f64>();
    (0..plane).map(|i| (sum(i, |v| v), 2f64.powi(-24) * f64::from(splits) * sum(i, f64::abs))).collect()
}

impl Shipped for ShippedGemm {
    fn name(&self) -> &str {
        self.name
    }

    fn needs(&self) -> Needs {
        match (self.kind, self.inputs) {
            (GemmCaseKind::Hopper, _) => Needs::Sm90a,
            (GemmCaseKind::Warps, GemmInputs::Float8) => Needs::Sm89,
            (GemmCaseKind::Warps | GemmCaseKind::Reduce, _) => Needs::Sm80,
        }
    }

    fn record(&self, arch: Arch) -> Kernel {
        let draw = &mut Draw::new(0);
        let functions = ResultFunctions { activation: Some(Activation::Silu), soft_cap: None };
        let case = match self.inputs {
            GemmInputs::Half => self.case::<bf16, bf16>(arch, draw, functions),
            GemmInputs::Float8 => self.case::<E4M3, bf16>(arch, draw, functions),
            GemmInputs::Int8 => self.case::<i8, bf16>(arch, draw, functions),
        };
        case.step.kernel
    }

    fn draw(&self, arch: Arch, seed: u64) -> Result<Trial, VerifyErrors> {
        match (self.inputs, seed % 4) {
            (GemmInputs::Half, 0 | 2) => self.trial::<bf16, bf16>(arch, seed),
            (GemmInputs::Half, 1) => self.trial::<f16, f16>(arch, seed),
            (GemmInputs::Half, _) => self.trial::<bf16, f32>(arch, seed),
            (GemmInputs::Float8, 0) => self.trial::<E4M3, bf16>(arch, seed),
            (GemmInputs::Float8, 1) => self.trial::<E5M2, bf16>(arch, seed),
            (GemmInputs::Float8, 2) => self.trial::<E4M3, f32>(arch, seed),
            (GemmInputs::Float8, _) => self.trial::<E5M2, f32>(arch, seed),
            (GemmInputs::Int8, 0 | 2) => self.trial::<i8, f32>(arch, seed),
            (GemmInputs::Int8, _) => self.trial::<i8, bf16>(arch, seed),
        }
    }
}
