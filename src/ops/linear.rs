//! Products of a few rows with packed weights, at the speed of the memory.

use tilewright_codegen::device::{Arg, Stream};
use tilewright_codegen::ir::Arch;
use tilewright_kernels::gemm::GemmBuffer;
use tilewright_kernels::weights::Strip;
use tilewright_layout::DType;

use super::packed::{PackedProduct, WeightForm};
use super::recipe::Recipe;
use super::tensor::Operand;
use super::{OpError, Ops, Tensor};

/// `out = x · wᵀ + bias + residual` for 1 to 16 rows, sums in f32.
///
/// Weights are fetched before earlier work of the stream has ended: they must not be written by the
/// launch just before.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'t> {
    /// `[.., K]` bfloat16, 1 to 16 rows, contiguous, of a K that is a multiple of 64.
    pub x: &'t Tensor,
    /// What [`pack_linear`](super::pack_linear) or [`pack_codes`](super::pack_codes) makes of the
    /// weight `[N, K]`, uint8.
    pub packed: &'t Tensor,
    /// How the weight is stored.
    pub form: WeightForm,
    /// `[N]` bfloat16.
    pub bias: Option<&'t Tensor>,
    /// As `out`.
    pub residual: Option<&'t Tensor>,
    /// The rows of `x` with N columns, bfloat16 or float32, contiguous.
    pub out: &'t Tensor,
}

const OP: &str = "linear";
/// Rows at most.
const MOST_ROWS: u32 = 16;

impl Ops {
    /// A product of a few rows with a packed weight.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn linear(&self, stream: &Stream, linear: &Linear<'_>) -> Result<(), OpError> {
        let [x, packed, out] = [("x", linear.x), ("packed", linear.packed), ("out", linear.out)]
            .map(|(name, tensor)| Operand::new(OP, name, tensor));
        x.is(&[DType::BF16], "bfloat16")?;
        packed.is(&[DType::U8], "uint8")?;
        out.is(&[DType::BF16, DType::F32], "bfloat16 or float32")?;
        let of_x = x.rows()?;
        let of_out = out.rows()?;
        if !(1..=MOST_ROWS).contains(&of_x.rows) {
            return Err(x.shape("it must have 1 to 16 rows; gemm takes more"));
        }
        if of_x.width == 0 || !of_x.width.is_multiple_of(linear.form.multiple()) {
            return Err(x.shape(format!("its last axis must be a multiple of {}", linear.form.multiple())));
        }
        let n = of_out.width;
        let (leading, expected) = (linear.x.shape().iter().rev().skip(1).rev(), [n as usize]);
        let shape: Vec<usize> = leading.copied().chain(expected).collect();
        out.has(&shape, "it must be the rows of x and N,")?;
        let needed = n.div_ceil(Strip::ROWS) as usize * linear.form.strip(of_x.width)?.bytes() as usize;
        if linear.form != WeightForm::Bf16 && self.arch != Arch::Sm90a {
            let found = linear.form.name();
            return Err(OpError::Capability { op: OP, operand: "packed", found, needed: "9.0" });
        }
        if linear.packed.elements() != needed {
            let (form, k) = (linear.form.name(), of_x.width);
            return Err(packed.shape(format!("a packed [{n}, {k}] of {form} has {needed} bytes")));
        }
        if let Some(bias) = linear.bias {
            let bias = Operand::new(OP, "bias", bias);
            bias.has(&[n as usize], "it must have a number for each column,")?;
            bias.is(&[DType::BF16], "bfloat16")?;
            bias.contiguous()?;
        }
        let residual = linear.residual.map(|residual| Operand::new(OP, "residual", residual));
        if let Some(residual) = residual {
            residual.has(&shape, "it must be as out,")?;
            residual.is(&[linear.out.dtype()], "the type of out")?;
        }
        for operand in [Some(x), Some(packed), Some(out), residual].into_iter().flatten() {
            operand.contiguous()?;
            operand.aligned()?;
        }
        if n == 0 {
            return Ok(());
        }
        let product = PackedProduct {
            rows: of_x.rows,
            n,
            k: of_x.width,
            form: linear.form,
            bias: linear.bias.is_some(),
            residual: linear.residual.is_some(),
            wide: linear.out.dtype() == DType::F32,
        };
        let steps = self.steps(Recipe::Linear(product))?;
        if linear.form != WeightForm::Bf16 {
            let tensor = |of: GemmBuffer| match of {
                GemmBuffer::A => Some(linear.packed),
                GemmBuffer::B => Some(linear.x),
                GemmBuffer::C => Some(linear.out),
                GemmBuffer::Bias => linear.bias,
                GemmBuffer::Residual => linear.residual,
                GemmBuffer::Partials | GemmBuffer::AScale | GemmBuffer::BScale => None,
            };
            return Ok(steps.iter().try_for_each(|step| step.launch(stream, tensor))?);
        }
        let arrays = [Some(linear.packed), Some(linear.x), Some(linear.out), linear.bias, linear.residual];
        let arrays = arrays.into_iter().flatten().map(|tensor| Arg::from(tensor.buffer()));
        let args: Vec<Arg<'_>> = [n.into()].into_iter().chain(arrays).collect();
        for step in steps.iter() {
            step.kernel.launch(stream, step.grid, &args)?;
        }
        Ok(())
    }
}
