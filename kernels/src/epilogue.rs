//! The epilogue of a linear product: what becomes of its sums, in every product the same.
//!
//! | step | computes | from |
//! |---|---|---|
//! | [`ResultOperands::affine`] | `y = s·(A·B) + bias` | the scale of a row or of the operands, a number per column |
//! | [`ResultFunctions::apply`] | `activation(y)·u`, where gated with `u = s·(A·B₂) + bias₂`; a soft cap; `+ residual` | a number per result |
//!
//! | [`CustomEpilogue`] | a function of one's own, of a result and its place | its own parameters |
//! | [`linear_combination`] | such a function: `alpha·y + beta·source` | its own parameters |
//!
//! An [`Epilogue`] says on the host which steps there are. On the device a product calls the two
//! functions for a run of neighbouring results, from wherever its sums lie, and gives the operands
//! by [`ResultOperands`]: loaded before the sums are there, or where they are needed. A further
//! step is a field of [`ResultFunctions`] or a method of [`ResultOperands`], and a line in the
//! function that applies it.
//!
//! | product | sums lie in | a run | operands |
//! |---|---|---|---|
//! | [`gemm`](crate::gemm) | accumulators; partial sums in memory | a result | are loaded where they are needed |
//! | [`gemv`](crate::gemv::gemv) | shared memory | a result | are loaded where they are needed |
//! | [`gemv::hopper`](crate::gemv::hopper) | shared memory | one result or four | are loaded ahead |
//! | [`gemv::task`](crate::gemv::task) | shared memory | a result | are loaded before the product |
//!
//! A linear task takes the function of a [`CustomEpilogue`] itself, since it declares no
//! parameters: [`LinearEpilogue::custom`](crate::gemv::task::LinearEpilogue::custom).
//!
//! This module imports `activation` and, for its oracle, `naive`.

use core::array::from_fn;
use core::fmt;

use tilewright_codegen::build::{Builder, Numeric, Val};

use crate::activation::{Activation, SoftCap};
use crate::naive;

/// The epilogue of a product: `y = s·(A·B) + bias`, then its [functions](ResultFunctions), then
/// `+ residual`.
///
/// ```
/// use tilewright_kernels::activation::Activation;
/// use tilewright_kernels::epilogue::Epilogue;
/// let gated = Epilogue { bias: true, ..Epilogue::gate(Activation::Silu) };
/// assert!(gated.gated && gated.functions.activation == Some(Activation::Silu));
/// assert_ne!(gated, Epilogue::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// The factor of the sums, applied first.
    pub scale: Option<SumScale>,
    /// A number per column is added to the sums.
    pub bias: bool,
    /// B has twice the columns: gates, which go through the activation, then what they multiply.
    pub gated: bool,
    /// The functions of a result.
    pub functions: ResultFunctions,
    /// A matrix of the result's extents is added last.
    pub residual: bool,
}

/// The factor of a product's sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumScale {
    /// The product of two numbers in device memory, A's scale and B's: what operands of 8 bits were
    /// divided by. A matrix product has it.
    Operands,
    /// The product of a number for each row of A and one for each row of B, in device memory. A
    /// matrix product without groups has it.
    Rows,
    /// The reciprocal root mean square of the row's activations: the deferred part of an RMS norm
    /// whose product reads `x ⊙ g`. Matrix-vector products support it.
    Norm,
}

/// The functions applied to a result between bias and residual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResultFunctions {
    /// The activation, of gates where the product is gated.
    pub activation: Option<Activation>,
    /// A soft cap of what is there so far: of logits.
    pub soft_cap: Option<SoftCap>,
}

/// The sums of a gated product: those of gates, or those that gates multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateSums {
    /// Of the gates; of a product that is not gated, its only ones.
    Gate,
    /// Of what the gates multiply.
    Up,
}

/// The place of a result in its matrix.
#[derive(Clone, Copy)]
pub struct ResultPlace<'k> {
    /// The row: of a matrix-vector product, the vector.
    pub row: Val<'k, u32>,
    /// The column.
    pub column: Val<'k, u32>,
}

/// A function that a kernel applies to each of its results, from the result's place and value to
/// what is stored. It is called where the place is inside the matrix, once for each result, so it
/// may load, store and add atomically.
pub type ResultFunction<'k> = Box<dyn Fn(ResultPlace<'k>, Val<'k, f32>) -> Val<'k, f32> + 'k>;

/// An epilogue of one's own, the last step after those of an [`Epilogue`]: a closure that declares
/// the parameters it needs, after all others of the kernel, and returns the function of a result.
/// It is given the rows and columns of the result.
///
/// ```
/// use half::bf16;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::activation::Activation;
/// use tilewright_kernels::epilogue::CustomEpilogue;
/// use tilewright_kernels::gemm::{GemmDevice, GemmProblem, plan};
///
/// // Each row times its own factor, then a bias and GELU.
/// let custom = CustomEpilogue(&|k, _| {
///     let factors = k.global::<f32>("factors");
///     let bias = k.global::<f32>("bias");
///     Box::new(move |at, sum| {
///         let y = sum * factors.at(at.row).load() + bias.at(at.column).load();
///         Activation::GeluTanh.apply(y)
///     })
/// });
/// let target = GemmDevice { arch: Arch::Sm90a, multiprocessors: 132, aligned: 256, partials: true };
/// let steps = plan::<bf16, bf16>(GemmProblem::new(512, 14336, 4096).custom(custom), target)?;
/// let names: Vec<_> = steps[0].kernel.params.iter().map(|param| param.name.as_str()).collect();
/// assert_eq!(names[names.len() - 2..], ["factors", "bias"]);
/// # Ok::<(), tilewright_kernels::gemm::GemmRefusal>(())
/// ```
#[derive(Clone, Copy)]
pub struct CustomEpilogue<'f>(pub &'f CustomFunction);

/// The closure of a [`CustomEpilogue`]: from the builder and the result's rows and columns.
pub type CustomFunction = dyn for<'k> Fn(&'k Builder, [Val<'k, u32>; 2]) -> ResultFunction<'k>;

/// The epilogue of BLAS's gemm and of CUTLASS's `LinearCombination`: `alpha · y + beta · source`,
/// where y is the result of the steps before.
///
/// Its parameters: `alpha` and `beta`, an f32 each in device memory, and `source`, `[m, n]` without
/// gaps between its rows. Where beta is 0 the source is not read, so that it may hold NaN. The
/// source must not be the memory of the result.
///
/// ```
/// use half::bf16;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::epilogue::linear_combination;
/// use tilewright_kernels::gemm::{GemmDevice, GemmProblem, plan};
///
/// let problem = GemmProblem::new(512, 4096, 4096).custom(linear_combination::<bf16>());
/// let target = GemmDevice { arch: Arch::Sm90a, multiprocessors: 132, aligned: 256, partials: true };
/// let steps = plan::<bf16, bf16>(problem, target)?;
/// let names: Vec<_> = steps[0].kernel.params.iter().map(|param| param.name.as_str()).collect();
/// assert_eq!(names[names.len() - 3..], ["alpha", "beta", "source"]);
/// # Ok::<(), tilewright_kernels::gemm::GemmRefusal>(())
/// ```
pub fn linear_combination<T: Numeric>() -> CustomEpilogue<'static> {
    CustomEpilogue(&combine::<T>)
}

fn combine<'k, T: Numeric>(k: &'k Builder, [_, columns]: [Val<'k, u32>; 2]) -> ResultFunction<'k> {
    let [alpha, beta] = ["alpha", "beta"].map(|name| k.global::<f32>(name));
    let source = k.global::<T>("source");
    Box::new(move |at, result| {
        let beta = beta.load();
        let sum = k.var(result * alpha.load());
        k.when(beta.ne(0.0), || {
            let term = source.at(at.row.mul_wide(columns)).at(at.column).load();
            sum.set(beta.fma(term.cast::<f32>(), sum.get()));
        });
        sum.get()
    })
}

impl fmt::Debug for CustomEpilogue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomEpilogue")
    }
}

/// A function from a gate and what it multiplies, with their biases, to a result.
pub type GateFunction<'k> = Box<dyn Fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, f32> + 'k>;

/// A gate of one's own, instead of an activation's: a closure that declares the parameters it needs
/// and returns the function of both sums.
///
/// [`grouped`](crate::gemm::grouped) products take one, for models whose experts are not gated by an
/// [`Activation`].
///
/// ```
/// use half::bf16;
/// use tilewright_codegen::ir::Arch;
/// use tilewright_kernels::activation::Activation;
/// use tilewright_kernels::epilogue::{CustomGate, Epilogue};
/// use tilewright_kernels::gemm::GemmDevice;
/// use tilewright_kernels::gemm::grouped::{GroupedProblem, plan};
///
/// let gate = CustomGate(&|_| Box::new(|gate, up| Activation::Silu.apply(gate * 2.0) * (up + 1.0)));
/// let epilogue = Epilogue { bias: true, ..Epilogue::default() };
/// let problem = GroupedProblem::new(32, 4096, 2880, 2880).gather(4).epilogue(epilogue).gate(gate);
/// let target = GemmDevice { arch: Arch::Sm90a, multiprocessors: 132, aligned: 256, partials: true };
/// assert!(plan::<bf16, bf16>(problem, target).is_ok());
/// ```
#[derive(Clone, Copy)]
pub struct CustomGate<'f>(pub &'f CustomGateFunction);

/// The closure of a [`CustomGate`].
pub type CustomGateFunction = dyn for<'k> Fn(&'k Builder) -> GateFunction<'k>;

impl fmt::Debug for CustomGate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CustomGate")
    }
}

/// The operands of a run of `N` neighbouring results of a row, as the product has them.
pub trait ResultOperands<'k, const N: usize> {
    /// The factor of the sums.
    fn scale(&self) -> Option<Val<'k, f32>>;

    /// The bias of the sums.
    fn bias(&self, of: GateSums) -> Option<[Val<'k, f32>; N]>;

    /// The residual, added to the results.
    fn residual(&self) -> Option<[Val<'k, f32>; N]>;

    /// Scales sums and adds the bias.
    #[track_caller]
    fn affine(&self, of: GateSums, sums: [Val<'k, f32>; N]) -> [Val<'k, f32>; N] {
        let sums = self.scale().map_or(sums, |scale| sums.map(|sum| sum * scale));
        self.bias(of).map_or(sums, |bias| from_fn(|i| sums[i] + bias[i]))
    }
}

/// Operands that are there before the sums.
#[derive(Clone, Copy)]
pub struct LoadedOperands<'k, const N: usize> {
    /// The factor of the sums.
    pub scale: Option<Val<'k, f32>>,
    /// The biases of the sums: of gates, and of the values that they multiply.
    pub bias: [Option<[Val<'k, f32>; N]>; 2],
    /// The residual, added to the results.
    pub residual: Option<[Val<'k, f32>; N]>,
}

impl<'k, const N: usize> ResultOperands<'k, N> for LoadedOperands<'k, N> {
    fn scale(&self) -> Option<Val<'k, f32>> {
        self.scale
    }

    fn bias(&self, of: GateSums) -> Option<[Val<'k, f32>; N]> {
        self.bias[of as usize]
    }

    fn residual(&self) -> Option<[Val<'k, f32>; N]> {
        self.residual
    }
}

impl Epilogue {
    /// Gates with an activation: `activation(y)·u`.
    pub fn gate(activation: Activation) -> Epilogue {
        let functions = ResultFunctions { activation: Some(activation), ..ResultFunctions::default() };
        Epilogue { gated: true, functions, ..Epilogue::default() }
    }
}

impl ResultFunctions {
    /// The results of a run, from its [affine](ResultOperands::affine) sums and, where the product
    /// is gated, those that its gates multiply: `up` gives one of them.
    #[track_caller]
    pub fn apply<'k, const N: usize>(
        self,
        y: [Val<'k, f32>; N],
        up: Option<&dyn Fn(usize) -> Val<'k, f32>>,
        operands: &impl ResultOperands<'k, N>,
    ) -> [Val<'k, f32>; N] {
        let activated = |i: usize| {
            let y = self.activation.map_or(y[i], |activation| activation.apply(y[i]));
            up.map_or(y, |up| {
                let up = up(i);
                y * self.activation.map_or(up, |activation| activation.factor(up))
            })
        };
        let y: [Val<f32>; N] = from_fn(activated);
        let y = self.soft_cap.map_or(y, |cap| y.map(|y| cap.apply(y)));
        operands.residual().map_or(y, |residual| from_fn(|i| y[i] + residual[i]))
    }

    /// The result of [`ResultFunctions::apply`] for a value without a residual, and its error
    /// bound. Inputs are `[value, error]` and, for a gated product, the same of the value that the
    /// gate multiplies.
    ///
    /// A gate passes on the error of both ([`slope`](Activation::slope)); the functions add theirs,
    /// and the product is rounded.
    ///
    /// ```
    /// use tilewright_kernels::epilogue::ResultFunctions;
    /// let none = ResultFunctions::default();
    /// assert_eq!(none.expected([2.0, 0.25], None), [2.0, 0.25]);
    /// let rounded = 6.0 * 2f64.powi(-24);
    /// assert_eq!(none.expected([2.0, 0.25], Some([3.0, 0.5])), [6.0, 1.875 + rounded]);
    /// ```
    pub fn expected(self, y: [f64; 2], up: Option<[f64; 2]>) -> [f64; 2] {
        let [mut value, mut error] = y;
        if let Some(activation) = self.activation {
            error = activation.slope() * error + activation.error(value);
            value = naive::activate(activation, value);
        }
        if let Some([factor, of_factor]) = up {
            let (factor, of_factor) = match self.activation {
                Some(activation @ Activation::ClampedSwiglu(_)) => {
                    let factor = naive::gate_factor(activation, factor);
                    (factor, of_factor + 2f64.powi(-24) * factor.abs())
                }
                Some(Activation::Silu | Activation::GeluTanh) | None => (factor, of_factor),
            };
            error = error * (factor.abs() + of_factor) + of_factor * value.abs();
            value *= factor;
            error += 2f64.powi(-24) * value.abs();
        }
        if let Some(cap) = self.soft_cap {
            value = naive::soft_cap(value, f64::from(cap.get()));
            error += SoftCap::error(value);
        }
        [value, error]
    }
}
