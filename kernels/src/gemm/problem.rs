//! A matrix product as data: what is multiplied, where it lies, and the epilogue.

use crate::epilogue::{CustomEpilogue, Epilogue};
use crate::mma::InputType;
use tilewright_layout::swizzle::canonical::Major;

/// A matrix in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandLayout {
    /// The contiguous index.
    pub major: Major,
    /// Elements from one line to the next.
    pub stride: u32,
}

/// `C[m, n] = Σₖ A[m, k] · B[n, k]`, and an epilogue. The result is row-major.
///
/// B is held as (n, k): a weight `[N, K]` as checkpoints store it is K-major, a row-major `[K, N]`
/// is MN-major.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmProblem {
    /// Rows of the result.
    pub m: u32,
    /// Columns of the result.
    pub n: u32,
    /// The contraction.
    pub k: u32,
    /// The A operand, (m, k).
    pub a: OperandLayout,
    /// The B operand, (n, k); (2n, k) where the epilogue is gated.
    pub b: OperandLayout,
    /// Elements from one row of the result to the next.
    pub c_stride: u32,
    /// The epilogue.
    pub epilogue: Epilogue,
    /// Whether sums of 8-bit floats may stay in the tensor cores all along, which keep 14 bits of
    /// them; else what 128 bytes of K make is added up in f32. Of other operands nothing changes.
    pub fast: bool,
}

/// A product with an epilogue of the caller's own after the problem's.
#[derive(Clone, Copy, Debug)]
pub struct CustomProblem<'f> {
    /// The product.
    pub problem: GemmProblem,
    /// The last step of the epilogue.
    pub custom: Option<CustomEpilogue<'f>>,
}

impl From<GemmProblem> for CustomProblem<'_> {
    fn from(problem: GemmProblem) -> Self {
        CustomProblem { problem, custom: None }
    }
}

impl From<&GemmProblem> for CustomProblem<'_> {
    fn from(problem: &GemmProblem) -> Self {
        (*problem).into()
    }
}

impl GemmProblem {
    /// Compact matrices, both operands K-major, no epilogue.
    ///
    /// ```
    /// use tilewright_kernels::gemm::GemmProblem;
    /// let problem = GemmProblem::new(128, 14336, 4096);
    /// assert_eq!((problem.a.stride, problem.c_stride), (4096, 14336));
    /// ```
    pub fn new(m: u32, n: u32, k: u32) -> GemmProblem {
        let operand = OperandLayout { major: Major::K, stride: k };
        GemmProblem { m, n, k, a: operand, b: operand, c_stride: n, epilogue: Epilogue::default(), fast: false }
    }

    /// Sets the orders of the operands, which stay compact.
    #[must_use]
    pub fn orders(self, a: Major, b: Major) -> GemmProblem {
        let columns = self.b_rows();
        let operand = |major, rows| OperandLayout { major, stride: if major == Major::K { self.k } else { rows } };
        GemmProblem { a: operand(a, self.m), b: operand(b, columns), ..self }
    }

    /// Sets the epilogue; B stays compact.
    #[must_use]
    pub fn epilogue(self, epilogue: Epilogue) -> GemmProblem {
        let problem = GemmProblem { epilogue, ..self };
        problem.orders(self.a.major, self.b.major)
    }

    /// Adds a last step to the epilogue: see [`CustomEpilogue`].
    pub fn custom(self, custom: CustomEpilogue<'_>) -> CustomProblem<'_> {
        CustomProblem { problem: self, custom: Some(custom) }
    }

    /// Keeps sums in the tensor cores: no two-level accumulation.
    #[must_use]
    pub fn fast(self) -> GemmProblem {
        GemmProblem { fast: true, ..self }
    }

    /// Whether sums are two-level accumulation: f32 registers take in what a stage makes.
    pub fn two_level<F: InputType>(&self) -> bool {
        F::CUT > 1e-6 && !self.fast
    }

    /// Whether operands of 8 bits must be transposed in registers for `mma.sync`, since `ldmatrix`
    /// transposes 16 bits at a time.
    pub fn transposes_bytes<F: InputType>(&self) -> bool {
        F::BITS == 8 && [self.a.major, self.b.major] != [Major::K; 2]
    }

    /// Rows of B as (n, k).
    pub fn b_rows(&self) -> u32 {
        if self.epilogue.gated { 2 * self.n } else { self.n }
    }

    /// Elements that A, B and C take in memory.
    pub fn sizes(&self) -> [usize; 3] {
        let size = |operand: OperandLayout, rows: u32| {
            let (lines, line) = if operand.major == Major::K { (rows, self.k) } else { (self.k, rows) };
            (lines as usize - 1) * operand.stride as usize + line as usize
        };
        let c = (self.m as usize - 1) * self.c_stride as usize + self.n as usize;
        [size(self.a, self.m), size(self.b, self.b_rows()), c]
    }

    /// Multiplications and additions.
    pub fn operations(&self) -> f64 {
        2.0 * f64::from(self.m) * f64::from(self.b_rows()) * f64::from(self.k)
    }
}
