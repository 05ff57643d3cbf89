//! The attention over two sets of tokens, of the results of both.

use tilewright_codegen::device::{Arg, Stream};
use tilewright_kernels::attention::MergeRows;

use super::cache::{check_numbers, check_rows};
use super::recipe::Recipe;
use super::tensor::Operand;
use super::{OpError, Ops, Tensor};

/// `out = (exp(lse_a)·a + exp(lse_b)·b) / (exp(lse_a) + exp(lse_b))`: results of the same queries
/// over different tokens. At most one of them may have sinks.
#[derive(Clone, Copy, Debug)]
pub struct MergeAttention<'t> {
    /// `[.., dim]` bfloat16; `dim` is a multiple of 8.
    pub a: &'t Tensor,
    /// The shape of `a` without its last axis, float32: the log-sum-exp of `a`.
    pub lse_a: &'t Tensor,
    /// As `a`.
    pub b: &'t Tensor,
    /// As `lse_a`.
    pub lse_b: &'t Tensor,
    /// As `a`, which it may be, or `b`. Zeros where both log-sum-exps are −∞.
    pub out: &'t Tensor,
    /// As `lse_a`, in other memory: the log-sum-exp over both sets.
    pub lse: Option<&'t Tensor>,
}

const OP: &str = "merge_attention";

impl Ops {
    /// The attention over two sets of tokens.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn merge_attention(&self, stream: &Stream, merge: &MergeAttention<'_>) -> Result<(), OpError> {
        let MergeAttention { a, lse_a, b, lse_b, out, lse } = *merge;
        let of_a = Operand::new(OP, "a", a);
        let Some((&dim, rows)) = a.shape().split_last().filter(|(dim, _)| **dim > 0 && dim.is_multiple_of(8)) else {
            return Err(of_a.shape("its last axis must be a multiple of 8"));
        };
        for (name, tensor) in [("a", a), ("b", b), ("out", out)] {
            Operand::new(OP, name, tensor).has(a.shape(), "it must be as a,")?;
            check_rows(OP, name, tensor)?;
        }
        for (name, tensor) in [("lse_a", Some(lse_a)), ("lse_b", Some(lse_b)), ("lse", lse)] {
            let operand = tensor.map(|tensor| Operand::new(OP, name, tensor));
            operand
                .map_or(Ok(()), |operand| check_numbers(operand, rows, "it must have a number for each row of a,"))?;
        }
        if let Some(lse) = lse.map(|lse| Operand::new(OP, "lse", lse)) {
            lse.apart(Operand::new(OP, "lse_a", lse_a))?;
            lse.apart(Operand::new(OP, "lse_b", lse_b))?;
        }
        let merge = MergeRows { depth: dim as u32, lse: lse.is_some() };
        let rows = of_a.rows()?.rows;
        let blocks = merge.blocks(rows).ok_or_else(|| of_a.shape("it must have less than 2^35 elements"))?;
        if rows == 0 {
            return Ok(());
        }
        let mut args = [a, lse_a, b, lse_b].map(|tensor| Arg::from(tensor.buffer())).to_vec();
        args.extend([rows.into(), out.buffer().into()]);
        args.extend(lse.map(|lse| Arg::from(lse.buffer())));
        self.launch(stream, Recipe::MergeAttention(merge), blocks, &args)
    }
}
