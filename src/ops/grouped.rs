//! Matrix products of groups of rows, whose sizes only the device knows.

use tilewright_codegen::device::Stream;
use tilewright_codegen::ir::Arch;
use tilewright_kernels::activation::Activation;
use tilewright_kernels::epilogue::{Epilogue, ResultFunctions};
use tilewright_kernels::gemm::grouped::{GroupedBuffer, GroupedProblem};
use tilewright_layout::DType;

use super::gemm::input_type;
use super::recipe::{GroupedProduct, Recipe};
use super::tensor::Operand;
use super::{OpError, Ops, Tensor};

/// `out = activation(a · b[g]ᵀ + bias[g]) + residual` for the rows of each group g, sums in f32.
///
/// A gated product has gates and the values that they multiply in `b`: `activation(gate) · up`.
/// Rows of `out` past the last group stay as they are. Operands are contiguous.
#[derive(Clone, Copy, Debug)]
pub struct GroupedGemm<'t> {
    /// `[rows, K]`, bfloat16, float16 or e4m3: the rows of group 0, then those of group 1, and so
    /// on. K is a multiple of 16 bytes.
    pub a: &'t Tensor,
    /// `[groups, N, K]` of the type of `a`; of a gated product `[groups, 2N, K]`, gates first.
    pub b: &'t Tensor,
    /// `[groups + 1]` int32: the first row of each group and the end of the last. The numbers must
    /// not fall, and the last must not be beyond the rows of `a`: the device does not check them.
    pub offsets: &'t Tensor,
    /// The scales of e4m3 operands, float32: of `a` for 128 elements of a row, `[rows, ⌈K/128⌉]`, of
    /// `b` for blocks of 128 by 128, `[groups, ⌈N/128⌉, ⌈K/128⌉]`; gated `[groups, 2, ⌈N/128⌉,
    /// ⌈K/128⌉]`. Such products need compute capability 9.0.
    pub scales: Option<[&'t Tensor; 2]>,
    /// `[groups, N]`, or `[groups, 2N]` of a gated product, of the type of `out`.
    pub bias: Option<&'t Tensor>,
    /// The activation.
    pub activation: Option<Activation>,
    /// Whether the product is gated.
    pub gated: bool,
    /// As `out`.
    pub residual: Option<&'t Tensor>,
    /// `[rows, N]`: of the type of `a` or float32, of e4m3 bfloat16 or float32.
    pub out: &'t Tensor,
}

const OP: &str = "grouped_gemm";
/// Elements of a block of e4m3 that has a scale, along each axis.
const BLOCK: usize = 128;

impl Ops {
    /// A matrix product for each group of rows.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other, or that no kernel multiplies.
    pub fn grouped_gemm(&self, stream: &Stream, grouped: &GroupedGemm<'_>) -> Result<(), OpError> {
        let operand = |name, tensor| Operand::new(OP, name, tensor);
        let [a, b, out] = [("a", grouped.a), ("b", grouped.b), ("out", grouped.out)].map(|(n, t)| operand(n, t));
        let input = input_type([a, b, out])?;
        if input == DType::F8E4M3 && self.arch != Arch::Sm90a {
            return Err(OpError::Capability { op: OP, operand: "a", found: "float8_e4m3fn", needed: "9.0" });
        }
        let &[rows, k] = grouped.a.shape() else { return Err(a.shape("it must be [rows, K]")) };
        let &[groups, b_rows, columns] = grouped.b.shape() else {
            return Err(b.shape("it must be [groups, N, K], of a gated product [groups, 2N, K]"));
        };
        let multiple = 128 / input.bits();
        if k == 0 || !k.is_multiple_of(multiple) {
            return Err(a.shape(format!("K must be a multiple of {multiple}")));
        }
        if columns != k {
            return Err(b.shape(format!("K must be the last axis of a, {k}")));
        }
        if grouped.gated && !b_rows.is_multiple_of(2) {
            return Err(b.shape("of a gated product it must be [groups, 2N, K]"));
        }
        let n = if grouped.gated { b_rows / 2 } else { b_rows };
        out.has(&[rows, n], "it must be the rows of a and N,")?;
        let offsets = operand("offsets", grouped.offsets);
        offsets.is(&[DType::I32, DType::U32], "int32")?;
        offsets
            .has(&[groups.saturating_add(1)], "it must have the first row of each group and the end of the last,")?;
        let residual = grouped.residual.map(|residual| operand("residual", residual));
        if let Some(residual) = residual {
            residual.has(&[rows, n], "it must be as out,")?;
            residual.is(&[grouped.out.dtype()], "the type of out")?;
        }
        let bias = grouped.bias.map(|bias| operand("bias", bias));
        if let Some(bias) = bias {
            bias.has(&[groups, b_rows], "it must have a number for each row of b,")?;
            bias.is(&[grouped.out.dtype()], "the type of out")?;
        }
        let scales = grouped.scales.map(|[a, b]| [operand("a_scale", a), operand("b_scale", b)]);
        match (scales, input) {
            (Some([a, b]), DType::F8E4M3) => {
                let blocks = [n, k].map(|extent| extent.div_ceil(BLOCK));
                let halves: &[usize] = if grouped.gated { &[2] } else { &[] };
                let of_b: Vec<usize> = [groups].iter().chain(halves).chain(&blocks).copied().collect();
                a.has(&[rows, blocks[1]], "it must have a number for 128 elements of a row,")?;
                b.has(&of_b, "it must have a number for each block of 128 by 128,")?;
                a.is(&[DType::F32], "float32")?;
                b.is(&[DType::F32], "float32")?;
            }
            (None, DType::F8E4M3) => {
                let expected = "float8_e4m3fn operands have scales of blocks";
                return Err(OpError::Number { op: OP, name: "a_scale", found: "absent".into(), expected });
            }
            (Some([a, _]), _) => return Err(a.shape("scales of blocks are those of float8_e4m3fn operands")),
            (None, _) => {}
        }
        let operands = [Some(a), Some(b), Some(out), residual, bias, Some(offsets)];
        for operand in operands.into_iter().flatten().chain(scales.into_iter().flatten()) {
            operand.contiguous()?;
        }
        for operand in [Some(a), Some(b), Some(out), residual].into_iter().flatten() {
            operand.aligned()?;
        }
        if rows == 0 || n == 0 || groups == 0 {
            return Ok(());
        }
        let number = |operand: Operand<'_>, extent: usize| {
            u32::try_from(extent).map_err(|_| operand.shape("its axes must be below 2^32"))
        };
        let epilogue = Epilogue {
            bias: bias.is_some(),
            gated: grouped.gated,
            functions: ResultFunctions { activation: grouped.activation, soft_cap: None },
            residual: residual.is_some(),
            ..Epilogue::default()
        };
        let problem = GroupedProblem::new(number(b, groups)?, number(a, rows)?, number(b, n)?, number(a, k)?);
        let product = GroupedProduct { problem: problem.epilogue(epilogue), input, out: grouped.out.dtype() };
        let tensor = |of: GroupedBuffer| match of {
            GroupedBuffer::A => Some(grouped.a),
            GroupedBuffer::B => Some(grouped.b),
            GroupedBuffer::Offsets => Some(grouped.offsets),
            GroupedBuffer::C => Some(grouped.out),
            GroupedBuffer::Bias => grouped.bias,
            GroupedBuffer::Residual => grouped.residual,
            GroupedBuffer::AScale => grouped.scales.map(|[a, _]| a),
            GroupedBuffer::BScale => grouped.scales.map(|[_, b]| b),
            GroupedBuffer::Order => None,
        };
        for step in self.steps(Recipe::Grouped(product))?.iter() {
            step.launch_grouped(stream, tensor)?;
        }
        Ok(())
    }
}
