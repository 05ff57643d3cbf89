//! Products of a few rows with packed weights, at the speed of the memory.

use half::bf16;
use tilewright_codegen::device::{Arg, Stream};
use tilewright_kernels::gemv::{GemvPlan, GemvTuning, PlanError};
use tilewright_kernels::weights::pack;
use tilewright_layout::DType;

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
    /// The elements that [`pack_linear`] makes of `[N, K]`, bfloat16.
    pub packed: &'t Tensor,
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

/// The packed order of a weight `[N, K]` of bf16, for every number of rows: whole strips of 8 rows.
///
/// ```
/// use half::bf16;
/// use tilewright::ops::pack_linear;
/// let packed = pack_linear(&vec![bf16::ONE; 12 * 64], 64)?;
/// assert_eq!(packed.len(), 16 * 64);
/// # Ok::<(), tilewright::ops::OpError>(())
/// ```
///
/// # Errors
/// [`OpError::Packed`] for a K of which no tiles are made.
pub fn pack_linear(weight: &[bf16], k: usize) -> Result<Vec<bf16>, OpError> {
    let columns = u32::try_from(k).unwrap_or(0);
    if columns == 0 || !columns.is_multiple_of(64) || !weight.len().is_multiple_of(k.max(1)) {
        let found = format!("{} elements in rows of {k}", weight.len());
        return Err(OpError::Number { op: "pack", name: "the weight", found, expected: "rows have a multiple of 64" });
    }
    Ok(pack(weight, plan(1, columns, 1)?.strip))
}

pub(super) fn plan(rows: u32, k: u32, strips: u32) -> Result<GemvPlan, PlanError> {
    GemvPlan::new(rows, k, strips, GemvTuning::h100(rows))
}

impl Ops {
    /// A product of a few rows with a packed weight.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn linear(&self, stream: &Stream, linear: &Linear<'_>) -> Result<(), OpError> {
        let [x, packed, out] = [("x", linear.x), ("packed", linear.packed), ("out", linear.out)]
            .map(|(name, tensor)| Operand::new(OP, name, tensor));
        for operand in [x, packed] {
            operand.is(&[DType::BF16], "bfloat16")?;
        }
        out.is(&[DType::BF16, DType::F32], "bfloat16 or float32")?;
        let of_x = x.rows()?;
        let of_out = out.rows()?;
        if !(1..=MOST_ROWS).contains(&of_x.rows) {
            return Err(x.shape("it must have 1 to 16 rows; gemm takes more"));
        }
        if of_x.width == 0 || !of_x.width.is_multiple_of(64) {
            return Err(x.shape("its last axis must be a multiple of 64"));
        }
        let n = of_out.width;
        let (leading, expected) = (linear.x.shape().iter().rev().skip(1).rev(), [n as usize]);
        let shape: Vec<usize> = leading.copied().chain(expected).collect();
        out.has(&shape, "it must be the rows of x and N,")?;
        let strips = n.div_ceil(8).div_ceil(self.device.properties().sms.max(1));
        let plan = plan(of_x.rows, of_x.width, strips)?;
        let needed = n.div_ceil(8) as usize * plan.strip.bytes() as usize / 2;
        if linear.packed.elements() != needed {
            return Err(packed.shape(format!("a packed [{n}, {}] has {needed} elements", of_x.width)));
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
        let recipe = Recipe::Linear {
            rows: of_x.rows,
            k: of_x.width,
            strips,
            bias: linear.bias.is_some(),
            residual: linear.residual.is_some(),
            wide: linear.out.dtype() == DType::F32,
        };
        let arrays = [Some(linear.packed), Some(linear.x), Some(linear.out), linear.bias, linear.residual];
        let arrays = arrays.into_iter().flatten().map(|tensor| Arg::from(tensor.buffer()));
        let args: Vec<Arg<'_>> = [n.into()].into_iter().chain(arrays).collect();
        let blocks = n.div_ceil(8).min(self.device.properties().sms);
        for step in self.steps(recipe)?.iter() {
            step.kernel.launch(stream, blocks, &args)?;
        }
        Ok(())
    }
}
