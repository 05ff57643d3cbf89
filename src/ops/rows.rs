//! Ops of rows: norms, gates, embeddings, rotations, the choice of tokens.

use tilewright_codegen::device::{Arg, Stream};
use tilewright_kernels::activation::Activation;
use tilewright_kernels::sample;
use tilewright_layout::DType;

use super::recipe::Recipe;
use super::tensor::Operand;
use super::{OpError, Ops, Tensor};

/// Elements of a block of a gated product.
const GATED_RUN: u32 = 2048;

/// `out = x · weight / √(mean(x²) + eps)` of rows.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<'t> {
    /// Rows `[.., width]`, float32, float16 or bfloat16.
    pub x: &'t Tensor,
    /// Where there is one, it is added first, and `x` becomes the sum: a residual stream.
    pub added: Option<&'t Tensor>,
    /// `[width]`.
    pub weight: &'t Tensor,
    /// As `x`, with its strides.
    pub out: &'t Tensor,
    /// Added to the mean square: positive.
    pub eps: f32,
}

/// `out = activation(gate) · up`.
#[derive(Clone, Copy, Debug)]
pub struct Gated<'t> {
    /// The activation.
    pub activation: Activation,
    /// Any shape, contiguous; float32, float16 or bfloat16.
    pub gate: &'t Tensor,
    /// As `gate`.
    pub up: &'t Tensor,
    /// As `gate`.
    pub out: &'t Tensor,
}

/// `out[i] = table[ids[i]]`, zeros where an id is not one of the table.
#[derive(Clone, Copy, Debug)]
pub struct Embedding<'t> {
    /// `[vocabulary, width]` bfloat16, contiguous, of a width that is a multiple of 4.
    pub table: &'t Tensor,
    /// Any shape, int32, contiguous.
    pub ids: &'t Tensor,
    /// The shape of `ids` and the width, contiguous.
    pub out: &'t Tensor,
}

/// Heads, rotated for their positions: dimensions i and i + dim / 2 are a pair.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'t> {
    /// `[rows, heads, dim]`, contiguous.
    pub x: &'t Tensor,
    /// Cosine and sine, float32 `[positions, dim / 2, 2]`.
    pub turns: &'t Tensor,
    /// `[rows]` int32, each below the positions of `turns`; rows of a negative one become zeros.
    pub positions: &'t Tensor,
    /// As `x`.
    pub out: &'t Tensor,
}

impl Ops {
    /// The RMS norm of rows, sums in f32.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn rms_norm(&self, stream: &Stream, norm: &RmsNorm<'_>) -> Result<(), OpError> {
        let op = if norm.added.is_some() { "add_rms_norm" } else { "rms_norm" };
        let [x, weight, out] =
            [("x", norm.x), ("weight", norm.weight), ("out", norm.out)].map(|(name, of)| Operand::new(op, name, of));
        let rows = x.rows()?;
        if !(norm.eps > 0.0 && norm.eps.is_finite()) {
            let found = norm.eps.to_string();
            return Err(OpError::Number { op, name: "eps", found, expected: "it must be positive and finite" });
        }
        weight.has(&[rows.width as usize], "it must be the last axis of x,")?;
        let added = norm.added.map(|added| Operand::new(op, "added", added));
        for other in [Some(out), added].into_iter().flatten() {
            other.has(norm.x.shape(), "it must be as x,")?;
            if other.rows()? != rows {
                return Err(other.shape("its rows must have the strides of those of x"));
            }
        }
        for operand in [Some(x), Some(weight), Some(out), added].into_iter().flatten() {
            operand.aligned()?;
        }
        if norm.x.elements() == 0 {
            return Ok(());
        }
        let recipe = Recipe::Norm {
            width: rows.width,
            stride: rows.stride,
            x: x.float()?,
            added: added.map(Operand::float).transpose()?,
            weight: weight.float()?,
            out: out.float()?,
            eps: norm.eps.to_bits(),
        };
        let arrays = [Some(norm.x), norm.added, Some(norm.weight), Some(norm.out)];
        let args: Vec<Arg<'_>> = arrays.into_iter().flatten().map(|tensor| tensor.buffer().into()).collect();
        self.launch(stream, recipe, rows.rows, &args)
    }

    /// The gate of an MLP: `silu(gate) · up`, or with another activation.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn gated(&self, stream: &Stream, gated: &Gated<'_>) -> Result<(), OpError> {
        let op = "gated";
        let tensors = [("gate", gated.gate), ("up", gated.up), ("out", gated.out)];
        let operands = tensors.map(|(name, tensor)| Operand::new(op, name, tensor));
        for operand in operands {
            operand.has(gated.gate.shape(), "it must be as gate,")?;
            operand.contiguous()?;
        }
        let types = [operands[0].float()?, operands[1].float()?, operands[2].float()?];
        let vector = operands.iter().map(|operand| operand.tensor.vector()).min().unwrap_or(1);
        let n = u32::try_from(gated.gate.elements()).map_err(|_| operands[0].shape("it has 2^32 elements or more"))?;
        if n == 0 {
            return Ok(());
        }
        let args = [n.into(), gated.gate.buffer().into(), gated.up.buffer().into(), gated.out.buffer().into()];
        let recipe = Recipe::Gated { activation: gated.activation, types, vector };
        self.launch(stream, recipe, n.div_ceil(GATED_RUN), &args)
    }

    /// Rows of a table.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn embedding(&self, stream: &Stream, embedding: &Embedding<'_>) -> Result<(), OpError> {
        let op = "embedding";
        let table = Operand::new(op, "table", embedding.table);
        let ids = Operand::new(op, "ids", embedding.ids);
        let out = Operand::new(op, "out", embedding.out);
        table.is(&[DType::BF16], "bfloat16")?;
        ids.is(&[DType::I32], "int32")?;
        let &[vocabulary, width] = embedding.table.shape() else {
            return Err(table.shape("it must be [vocabulary, width]"));
        };
        if !width.is_multiple_of(4) || width == 0 {
            return Err(table.shape("its width must be a multiple of 4"));
        }
        let shape: Vec<usize> = embedding.ids.shape().iter().copied().chain([width]).collect();
        out.has(&shape, "it must be the shape of ids and the width,")?;
        for operand in [table, out] {
            operand.contiguous()?;
            operand.aligned()?;
        }
        if !embedding.ids.shape().is_empty() {
            ids.contiguous()?;
        }
        let rows = embedding.ids.elements() as u32;
        if rows == 0 {
            return Ok(());
        }
        let recipe = Recipe::Embedding { width: width as u32, ids: vocabulary as u32, out: out.float()? };
        let ids = || Arg::from(embedding.ids.buffer());
        let args = [ids(), ids(), embedding.table.buffer().into(), embedding.out.buffer().into(), 0u32.into()];
        self.launch(stream, recipe, rows, &args)
    }

    /// The rotation of heads for their positions.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn rope(&self, stream: &Stream, rope: &Rope<'_>) -> Result<(), OpError> {
        let op = "rope";
        let [x, turns, positions, out] =
            [("x", rope.x), ("turns", rope.turns), ("positions", rope.positions), ("out", rope.out)]
                .map(|(name, tensor)| Operand::new(op, name, tensor));
        let &[rows, heads, dim] = rope.x.shape() else { return Err(x.shape("it must be [rows, heads, dim]")) };
        if !dim.is_multiple_of(2) || dim == 0 {
            return Err(x.shape("its dimensions must be even"));
        }
        out.has(rope.x.shape(), "it must be as x,")?;
        positions.has(&[rows], "it must have a number for each row,")?;
        positions.is(&[DType::I32], "int32")?;
        turns.is(&[DType::F32], "float32")?;
        match *rope.turns.shape() {
            [_, half, 2] if half == dim / 2 => {}
            _ => return Err(turns.shape(format!("it must be [positions, {}, 2]", dim / 2))),
        }
        for operand in [x, turns, positions, out] {
            operand.contiguous()?;
            operand.aligned()?;
        }
        if rope.x.elements() == 0 {
            return Ok(());
        }
        let recipe = Recipe::Rope { heads: heads as u32, dim: dim as u32, x: x.float()?, out: out.float()? };
        let args = [
            rope.x.buffer().into(),
            Arg::Null,
            rope.turns.buffer().into(),
            rope.positions.buffer().into(),
            Arg::Null,
            rope.out.buffer().into(),
        ];
        self.launch(stream, recipe, rows as u32, &args)
    }

    /// The likeliest token of each row of logits, float32 `[rows, vocabulary]`, to `tokens`, int32
    /// `[rows]`; the first of equals, −1 where the largest logit is infinite.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn argmax(&self, stream: &Stream, logits: &Tensor, tokens: &Tensor) -> Result<(), OpError> {
        self.choose(stream, "argmax", logits, None, tokens)
    }

    /// A random token of each row of logits, by `requests`: uint8 `[rows, 32]`, a
    /// [`Request`](sample::Request) each. The rest is as for [`Ops::argmax`].
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn sample(&self, stream: &Stream, logits: &Tensor, requests: &Tensor, tokens: &Tensor) -> Result<(), OpError> {
        self.choose(stream, "sample", logits, Some(requests), tokens)
    }

    fn choose(
        &self,
        stream: &Stream,
        op: &'static str,
        logits: &Tensor,
        requests: Option<&Tensor>,
        tokens: &Tensor,
    ) -> Result<(), OpError> {
        /// Most tokens of a vocabulary.
        const MOST: usize = 1 << 18;
        let [of_logits, of_tokens] =
            [("logits", logits), ("tokens", tokens)].map(|(name, tensor)| Operand::new(op, name, tensor));
        of_logits.is(&[DType::F32], "float32")?;
        of_tokens.is(&[DType::I32, DType::U32], "int32")?;
        let &[count, vocabulary] = logits.shape() else {
            return Err(of_logits.shape("it must be [rows, vocabulary]"));
        };
        if vocabulary == 0 || vocabulary > MOST {
            return Err(of_logits.shape("its vocabulary must be 1 to 262144"));
        }
        of_tokens.has(&[count], "it must have a token for each row,")?;
        of_tokens.contiguous()?;
        let rows = of_logits.rows()?;
        if let Some(requests) = requests {
            let operand = Operand::new(op, "requests", requests);
            operand.is(&[DType::U8], "uint8")?;
            operand.has(&[count, size_of::<sample::Request>()], "it must have 32 bytes for each row,")?;
            operand.contiguous()?;
            operand.aligned()?;
        }
        if count == 0 {
            return Ok(());
        }
        let numbers = [rows.width, if count > 1 { rows.stride } else { rows.width }];
        let arrays = [Some(logits), requests, Some(tokens)];
        let arrays = arrays.into_iter().flatten().map(|tensor| Arg::from(tensor.buffer()));
        let args: Vec<Arg<'_>> = numbers.into_iter().map(Arg::from).chain(arrays).collect();
        let recipe = if requests.is_some() { Recipe::Sample } else { Recipe::Argmax };
        self.launch(stream, recipe, rows.rows, &args)
    }
}
