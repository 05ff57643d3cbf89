//! Matrix products.

use tilewright_codegen::device::Stream;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::{Epilogue, ResultFunctions};
use tilewright_kernels::gemm::{GemmBuffer, GemmProblem, OperandLayout};
use tilewright_layout::DType;
use tilewright_layout::swizzle::canonical::Major;

use super::recipe::{Product, Recipe};
use super::tensor::{Operand, Rows};
use super::{OpError, Ops, Tensor};

/// `out = activation(a · bᵀ + bias) + residual`, sums in f32.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'t> {
    /// `[.., K]`, bfloat16 or float16: rows.
    pub a: &'t Tensor,
    /// `[N, K]`, of the type of `a`: a weight as checkpoints store it.
    pub b: &'t Tensor,
    /// `[N]`, of the type of `out`.
    pub bias: Option<&'t Tensor>,
    /// The activation, applied to the product with its bias.
    pub activation: Option<Activation>,
    /// As `out`, with its strides and type.
    pub residual: Option<&'t Tensor>,
    /// The rows of `a` with N columns, of its type or float32.
    pub out: &'t Tensor,
    /// Float32, of [`Ops::gemm_workspace`] elements or more: with it a long contraction of a small
    /// result is shared by more blocks.
    pub workspace: Option<&'t Tensor>,
}

const OP: &str = "gemm";
/// Shares of a contraction at most.
const MOST_SPLITS: usize = 16;

impl Ops {
    /// Elements of the workspace, float32, of products with results of `[m, n]`.
    pub fn gemm_workspace(m: usize, n: usize) -> usize {
        MOST_SPLITS.saturating_mul(m).saturating_mul(n)
    }

    /// A matrix product with its epilogue.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other, or that no kernel multiplies.
    pub fn gemm(&self, stream: &Stream, gemm: &Gemm<'_>) -> Result<(), OpError> {
        let [a, b, out] =
            [("a", gemm.a), ("b", gemm.b), ("out", gemm.out)].map(|(name, tensor)| Operand::new(OP, name, tensor));
        let input = gemm.a.dtype();
        a.is(&[DType::BF16, DType::F16], "bfloat16 or float16")?;
        b.is(&[input], "the type of a")?;
        out.is(&[input, DType::F32], "the type of a, or float32")?;
        let of_a = a.rows()?;
        let &[n, k] = gemm.b.shape() else { return Err(b.shape("it must be [N, K]")) };
        if k != of_a.width as usize {
            return Err(b.shape(format!("K must be the last axis of a, {}", of_a.width)));
        }
        let of_b = b.rows()?;
        let shape: Vec<usize> = gemm.a.shape().iter().rev().skip(1).rev().copied().chain([n]).collect();
        out.has(&shape, "it must be the rows of a and N,")?;
        let of_c = out.rows()?;
        if let Some(bias) = gemm.bias {
            let bias = Operand::new(OP, "bias", bias);
            bias.has(&[n], "it must have a number for each column,")?;
            bias.is(&[gemm.out.dtype()], "the type of out")?;
        }
        if let Some(residual) = gemm.residual {
            let residual = Operand::new(OP, "residual", residual);
            residual.has(&shape, "it must be as out,")?;
            residual.is(&[gemm.out.dtype()], "the type of out")?;
            if residual.rows()? != of_c {
                return Err(residual.shape("its rows must have the strides of those of out"));
            }
        }
        if of_a.rows == 0 || n == 0 {
            return Ok(());
        }
        let stride = |rows: Rows| if rows.rows > 1 { rows.stride } else { rows.width };
        let operand = |rows: Rows| OperandLayout { major: Major::K, stride: stride(rows) };
        let epilogue = Epilogue {
            bias: gemm.bias.is_some(),
            residual: gemm.residual.is_some(),
            functions: ResultFunctions { activation: gemm.activation, soft_cap: None },
            ..Epilogue::default()
        };
        let problem = GemmProblem {
            a: operand(of_a),
            b: operand(of_b),
            c_stride: stride(of_c),
            ..GemmProblem::new(of_a.rows, n as u32, of_a.width).epilogue(epilogue)
        };
        let partials = match gemm.workspace {
            Some(workspace) => {
                let operand = Operand::new(OP, "workspace", workspace);
                operand.is(&[DType::F32], "float32")?;
                operand.contiguous()?;
                let needed = Ops::gemm_workspace(of_a.rows as usize, n);
                if workspace.elements() < needed {
                    return Err(operand.shape(format!("it must have {needed} elements")));
                }
                true
            }
            None => false,
        };
        let tensor = |of: GemmBuffer| match of {
            GemmBuffer::A => Some(gemm.a),
            GemmBuffer::B => Some(gemm.b),
            GemmBuffer::C => Some(gemm.out),
            GemmBuffer::Bias => gemm.bias,
            GemmBuffer::Residual => gemm.residual,
            GemmBuffer::Partials => gemm.workspace,
            GemmBuffer::AScale | GemmBuffer::BScale => None,
        };
        let addresses = [Some(gemm.a), Some(gemm.b), Some(gemm.out), gemm.residual];
        let aligned = addresses.into_iter().flatten().map(|tensor| tensor.buffer().address().trailing_zeros()).min();
        let aligned = 1 << aligned.unwrap_or(0).min(8);
        let product = Product { problem, input, out: gemm.out.dtype(), partials, aligned };
        for step in self.steps(Recipe::Gemm(Box::new(product)))?.iter() {
            step.launch(stream, tensor)?;
        }
        Ok(())
    }
}
