//! Matrix products.

use tilewright_codegen::device::Stream;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::{Epilogue, ResultFunctions, SumScale};
use tilewright_kernels::gemm::{GemmBuffer, GemmProblem, OperandLayout};
use tilewright_layout::DType;
use tilewright_layout::swizzle::canonical::Major;

use super::recipe::{Product, Recipe};
use super::tensor::{Operand, Rows};
use super::{OpError, Ops, Tensor};

/// `out = activation(scale · a · bᵀ + bias) + residual`, sums in f32.
///
/// A gated product has gates and the values that they multiply in `b`: `activation(gate) · up`.
/// Products of 8-bit floats need compute capability 8.9.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'t> {
    /// `[.., K]`, bfloat16, float16 or e4m3: rows.
    pub a: &'t Tensor,
    /// `[N, K]`, of the type of `a`: a weight as checkpoints store it. Of a gated product `[2N, K]`,
    /// gates first.
    pub b: &'t Tensor,
    /// The scales of `a` and `b`, float32: one each, or one for each row of both.
    pub scales: Option<[&'t Tensor; 2]>,
    /// A number for each row of `b`, of the type of `out`.
    pub bias: Option<&'t Tensor>,
    /// The activation, applied to the product with its bias.
    pub activation: Option<Activation>,
    /// Whether the product is gated.
    pub gated: bool,
    /// As `out`, with its strides and type.
    pub residual: Option<&'t Tensor>,
    /// The rows of `a` with N columns: of its type or float32, of e4m3 bfloat16 or float32.
    pub out: &'t Tensor,
    /// Float32, of [`Ops::gemm_workspace`] elements or more: with it a long contraction of a small
    /// result is shared by more blocks. A gated product that no tensor map reaches needs it: other
    /// devices than compute capability 9.0, and rows that are no multiple of 16 bytes.
    pub workspace: Option<&'t Tensor>,
}

const OP: &str = "gemm";
/// Shares of a contraction at most.
const MOST_SPLITS: usize = 16;

impl Ops {
    /// Elements of the workspace, float32, of products of `a_rows` rows with a `b` of `b_rows`.
    pub fn gemm_workspace(a_rows: usize, b_rows: usize) -> usize {
        MOST_SPLITS.saturating_mul(a_rows).saturating_mul(b_rows)
    }

    /// A matrix product with its epilogue.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other, or that no kernel multiplies.
    pub fn gemm(&self, stream: &Stream, gemm: &Gemm<'_>) -> Result<(), OpError> {
        let [a, b, out] =
            [("a", gemm.a), ("b", gemm.b), ("out", gemm.out)].map(|(name, tensor)| Operand::new(OP, name, tensor));
        let input = input_type([a, b, out])?;
        let of_a = a.rows()?;
        let &[b_rows, k] = gemm.b.shape() else { return Err(b.shape("it must be [N, K]")) };
        if k != of_a.width as usize {
            return Err(b.shape(format!("K must be the last axis of a, {}", of_a.width)));
        }
        if gemm.gated && !b_rows.is_multiple_of(2) {
            return Err(b.shape("of a gated product it must be [2N, K]"));
        }
        let n = if gemm.gated { b_rows / 2 } else { b_rows };
        let of_b = b.rows()?;
        let shape: Vec<usize> = gemm.a.shape().iter().rev().skip(1).rev().copied().chain([n]).collect();
        out.has(&shape, "it must be the rows of a and N,")?;
        let of_c = out.rows()?;
        let scale = gemm.scales.map(|scales| sum_scale(scales, [of_a.rows as usize, b_rows])).transpose()?;
        if let Some(bias) = gemm.bias {
            let bias = Operand::new(OP, "bias", bias);
            bias.has(&[b_rows], "it must have a number for each row of b,")?;
            bias.is(&[gemm.out.dtype()], "the type of out")?;
            bias.contiguous()?;
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
            scale,
            bias: gemm.bias.is_some(),
            gated: gemm.gated,
            residual: gemm.residual.is_some(),
            functions: ResultFunctions { activation: gemm.activation, soft_cap: None },
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
                let needed = Ops::gemm_workspace(of_a.rows as usize, b_rows);
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
            GemmBuffer::AScale => gemm.scales.map(|[a, _]| a),
            GemmBuffer::BScale => gemm.scales.map(|[_, b]| b),
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

/// The type of the operands of a product `[a, b, out]`, whose types fit each other.
pub(super) fn input_type([a, b, out]: [Operand<'_>; 3]) -> Result<DType, OpError> {
    let input = a.tensor.dtype();
    a.is(&[DType::BF16, DType::F16, DType::F8E4M3], "bfloat16, float16 or float8_e4m3fn")?;
    b.is(&[input], "the type of a")?;
    match input {
        DType::F8E4M3 => out.is(&[DType::BF16, DType::F32], "bfloat16 or float32 of float8_e4m3fn")?,
        _ => out.is(&[input, DType::F32], "the type of a, or float32")?,
    }
    Ok(input)
}

/// The factor of the sums by the scales of `a` and `b`, which have these rows.
fn sum_scale(scales: [&Tensor; 2], rows: [usize; 2]) -> Result<SumScale, OpError> {
    let [a, b] = [("a_scale", scales[0]), ("b_scale", scales[1])].map(|(name, scale)| Operand::new(OP, name, scale));
    let is_one = scales.iter().all(|scale| scale.elements() == 1);
    for (scale, rows) in [a, b].into_iter().zip(rows) {
        scale.is(&[DType::F32], "float32")?;
        if !is_one {
            if scale.tensor.elements() != rows {
                return Err(scale.shape(format!("it must have a number for each of {rows} rows, or both scales one")));
            }
            scale.contiguous()?;
        }
    }
    Ok(if is_one { SumScale::Operands } else { SumScale::Rows })
}
