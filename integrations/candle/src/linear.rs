//! Linear layers with packed weights.

use candle_core::{DType, Module, Result, Shape, Tensor};
use half::bf16;
use tilewright::ops::{Gemm, Linear, WeightForm, pack_linear};

use crate::{Context, Error};

/// Rows that the kernel of packed weights takes at most.
const MOST_PACKED_ROWS: usize = 16;

/// A linear layer `y = x·Wᵀ + bias` in bf16: a drop-in for [`candle_nn::Linear`].
///
/// Products of 1 to 16 rows read a packed copy of the weight at the speed of memory. Products of
/// more rows use a matrix product with the weight as it was given. Both copies stay in memory, so a
/// layer takes twice the memory of its weight.
#[derive(Clone, Debug)]
pub struct PackedLinear {
    context: Context,
    weight: Tensor,
    packed: Tensor,
    bias: Option<Tensor>,
}

impl PackedLinear {
    /// Packs a weight `[N, K]` of bf16, whose `K` is a multiple of 64, on the weight's device.
    ///
    /// The weight passes through host memory once.
    ///
    /// # Errors
    /// A weight of another type, rank or width.
    pub fn new(context: &Context, weight: &Tensor, bias: Option<&Tensor>) -> Result<PackedLinear> {
        let (_, k) = weight.dims2()?;
        let weight = weight.contiguous()?;
        let numbers = weight.flatten_all()?.to_vec1::<bf16>()?;
        let packed = pack_linear(&numbers, k, WeightForm::Bf16).map_err(Error::from)?;
        let count = packed.len();
        let packed = Tensor::from_vec(packed, count, weight.device())?;
        // The kernel prefetches weights before earlier work of the stream has ended.
        weight.device().synchronize()?;
        Ok(PackedLinear { context: context.clone(), weight, packed, bias: bias.cloned() })
    }

    /// Computes the layer, then adds `residual`, a bf16 tensor of the result's shape.
    ///
    /// # Errors
    /// An error that names the operand that does not fit.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        self.run(x, Some(residual), DType::BF16)
    }

    /// Computes the layer with an f32 result, such as logits.
    ///
    /// # Errors
    /// An error that names the operand that does not fit. More than 16 rows with a bias: the matrix
    /// product takes a bias of the result's type only.
    pub fn forward_f32(&self, x: &Tensor) -> Result<Tensor> {
        self.run(x, None, DType::F32)
    }

    fn run(&self, x: &Tensor, residual: Option<&Tensor>, dtype: DType) -> Result<Tensor> {
        let (n, k) = self.weight.dims2()?;
        let dims = x.dims();
        let leading = &dims[..dims.len().saturating_sub(1)];
        let shape = Shape::from(leading.iter().copied().chain([n]).collect::<Vec<usize>>());
        let is_packed = x.elem_count() <= MOST_PACKED_ROWS * k;
        let weight = if is_packed { &self.packed } else { &self.weight };
        let out = (dtype, shape);
        // Optional operands change the number of operands, which is part of the type.
        match (self.bias.as_ref(), residual) {
            (None, None) => self.context.run("linear", [x, weight], out, |ops, stream, [x, weight], out| {
                product(ops, stream, is_packed, [x, weight, out], [None, None])
            }),
            (Some(bias), None) => {
                self.context.run("linear", [x, weight, bias], out, |ops, stream, [x, weight, bias], out| {
                    product(ops, stream, is_packed, [x, weight, out], [Some(bias), None])
                })
            }
            (None, Some(added)) => {
                self.context.run("linear", [x, weight, added], out, |ops, stream, [x, weight, added], out| {
                    product(ops, stream, is_packed, [x, weight, out], [None, Some(added)])
                })
            }
            (Some(bias), Some(added)) => self.context.run(
                "linear",
                [x, weight, bias, added],
                out,
                |ops, stream, [x, weight, bias, added], out| {
                    product(ops, stream, is_packed, [x, weight, out], [Some(bias), Some(added)])
                },
            ),
        }
    }
}

impl Module for PackedLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.run(x, None, DType::BF16)
    }
}

fn product(
    ops: &tilewright::ops::Ops,
    stream: &tilewright::codegen::device::Stream,
    is_packed: bool,
    [x, weight, out]: [&tilewright::ops::Tensor; 3],
    [bias, residual]: [Option<&tilewright::ops::Tensor>; 2],
) -> std::result::Result<(), tilewright::ops::OpError> {
    if is_packed {
        ops.linear(stream, &Linear { x, packed: weight, form: WeightForm::Bf16, bias, residual, out })
    } else {
        ops.gemm(
            stream,
            &Gemm {
                a: x,
                b: weight,
                scales: None,
                bias,
                activation: None,
                gated: false,
                residual,
                out,
                workspace: None,
            },
        )
    }
}
