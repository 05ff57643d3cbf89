//! Operands that the ops of attention share: cached keys and values, and the settings of scores.

use tilewright_codegen::device::Arg;
use tilewright_kernels::attention::ScoreVariant;
use tilewright_layout::DType;

use super::tensor::Operand;
use super::{OpError, Tensor};

/// Cached keys and values of sequences, bfloat16. Heads of the queries share those of a key/value
/// head in groups.
#[derive(Clone, Copy, Debug)]
pub enum KvCache<'t> {
    /// `[sequences, kv_heads, capacity, dim]` each.
    Dense {
        /// Keys.
        keys: &'t Tensor,
        /// Values.
        values: &'t Tensor,
    },
    /// Pools of pages, `[kv_heads, pages, page_tokens, dim]` each.
    Paged {
        /// Keys.
        keys: &'t Tensor,
        /// Values.
        values: &'t Tensor,
        /// `[sequences, pages of a sequence]` int32: where each page lies.
        table: &'t Tensor,
    },
}

/// How products of queries and keys become scores.
#[derive(Clone, Copy, Debug)]
pub struct Scores<'t> {
    /// The factor of the products.
    pub scale: f32,
    /// Bounds scores s as `cap · tanh(s / cap)`: positive.
    pub soft_cap: Option<f32>,
    /// Newest tokens that a query sees, its own included: at least 1.
    pub window: Option<u32>,
    /// `[heads]` float32: a logit of each head that takes part in the softmax, without a value.
    pub sinks: Option<&'t Tensor>,
}

/// The extents of the queries of an op.
#[derive(Clone, Copy)]
pub(super) struct QueryExtents {
    pub sequences: usize,
    pub heads: usize,
    pub dim: usize,
}

/// Keys and values that fit their queries.
#[derive(Clone, Copy)]
pub(super) struct Cached<'t> {
    pub keys: &'t Tensor,
    pub values: &'t Tensor,
    pub kv_heads: u32,
    /// Elements from plane to plane.
    pub plane: u32,
    /// Tokens that a sequence has room for.
    pub longest: u32,
    pub pages: Option<CachedPages<'t>>,
}

/// The pages of a cache.
#[derive(Clone, Copy)]
pub(super) struct CachedPages<'t> {
    pub table: &'t Tensor,
    /// Entries of a sequence.
    pub width: u32,
    /// Tokens of a page.
    pub tokens: u32,
}

impl<'t> KvCache<'t> {
    /// Checks shapes, types and alignment against the queries.
    pub(super) fn check(self, op: &'static str, queries: QueryExtents) -> Result<Cached<'t>, OpError> {
        let (keys, values, table, form) = match self {
            KvCache::Dense { keys, values } => (keys, values, None, "[sequences, kv_heads, capacity, dim]"),
            KvCache::Paged { keys, values, table } => {
                (keys, values, Some(table), "[kv_heads, pages, page_tokens, dim]")
            }
        };
        let QueryExtents { sequences, dim, .. } = queries;
        let of_keys = Operand::new(op, "keys", keys);
        let &[outer, inner, rows, columns] = keys.shape() else {
            return Err(of_keys.shape(format!("it must be {form}")));
        };
        if columns != dim || (table.is_none() && outer != sequences) {
            return Err(of_keys.shape(format!("q has {sequences} sequences and {dim} dimensions")));
        }
        let (kv_heads, plane_rows) = if table.is_some() { (outer, inner.saturating_mul(rows)) } else { (inner, rows) };
        if rows == 0 || plane_rows == 0 {
            return Err(of_keys.shape("it must have room for a token"));
        }
        check_heads(of_keys, queries, kv_heads)?;
        check_tokens(op, keys, values)?;
        let plane = u32::try_from(plane_rows.saturating_mul(dim));
        let plane = plane.map_err(|_| of_keys.shape("a head must have less than 2^32 elements"))?;
        let pages = table.map(|table| {
            let operand = Operand::new(op, "table", table);
            operand.is(&[DType::I32, DType::U32], "int32")?;
            operand.contiguous()?;
            match *table.shape() {
                [entries, width] if entries == sequences => {
                    Ok(CachedPages { table, width: width as u32, tokens: rows as u32 })
                }
                [_, _] => Err(operand.shape(format!("q has {sequences} sequences"))),
                _ => Err(operand.shape("it must be [sequences, pages of a sequence]")),
            }
        });
        let pages = pages.transpose()?;
        let longest = pages.map_or(rows as u32, |pages| pages.tokens.saturating_mul(pages.width));
        Ok(Cached { keys, values, kv_heads: kv_heads as u32, plane, longest, pages })
    }
}

/// Refuses query heads that are not groups of the heads of keys.
pub(super) fn check_heads(keys: Operand<'_>, queries: QueryExtents, kv_heads: usize) -> Result<(), OpError> {
    let QueryExtents { heads, dim, .. } = queries;
    if heads.saturating_mul(dim) >= 1 << 31 {
        return Err(keys.shape(format!("{heads} heads of {dim} dimensions are 2^31 elements or more")));
    }
    if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(keys.shape(format!("the {heads} heads of q must be a multiple of its heads, {kv_heads}")));
    }
    Ok(())
}

/// Checks types and alignment of keys and values, and that values are as keys.
pub(super) fn check_tokens(op: &'static str, keys: &Tensor, values: &Tensor) -> Result<(), OpError> {
    Operand::new(op, "values", values).has(keys.shape(), "it must be as keys,")?;
    [("keys", keys), ("values", values)].into_iter().try_for_each(|(name, tensor)| check_rows(op, name, tensor))
}

/// Checks the type and the alignment of vectors of bfloat16.
pub(super) fn check_rows(op: &'static str, name: &'static str, tensor: &Tensor) -> Result<(), OpError> {
    let operand = Operand::new(op, name, tensor);
    operand.is(&[DType::BF16], "bfloat16")?;
    operand.contiguous()?;
    operand.aligned()
}

/// Checks a float32 operand with a number for each row of queries, or for each head.
pub(super) fn check_numbers(operand: Operand<'_>, shape: &[usize], expected: &str) -> Result<(), OpError> {
    operand.is(&[DType::F32], "float32")?;
    operand.has(shape, expected)?;
    operand.contiguous()
}

impl<'t> Scores<'t> {
    /// Products times a factor, and nothing else.
    pub fn scaled(scale: f32) -> Scores<'t> {
        Scores { scale, soft_cap: None, window: None, sinks: None }
    }

    /// Checks the numbers, and the sinks of `heads` heads.
    pub(super) fn check(&self, op: &'static str, heads: usize) -> Result<ScoreVariant, OpError> {
        let refused = |name, found: String, expected| Err(OpError::Number { op, name, found, expected });
        if !self.scale.is_finite() {
            return refused("scale", self.scale.to_string(), "it must be finite");
        }
        if let Some(cap) = self.soft_cap.filter(|cap| !(*cap > 0.0 && cap.is_finite())) {
            return refused("soft_cap", cap.to_string(), "it must be positive and finite");
        }
        if self.window == Some(0) {
            return refused("window", "0".into(), "a query sees its own token: it must be 1 or more");
        }
        if let Some(sinks) = self.sinks {
            check_numbers(Operand::new(op, "sinks", sinks), &[heads], "it must have a number for each head of q,")?;
        }
        let [soft_cap, window, sinks] = [self.soft_cap.is_some(), self.window.is_some(), self.sinks.is_some()];
        Ok(ScoreVariant { soft_cap, window, sinks })
    }

    /// The arguments of a kernel from the scale to the sinks.
    pub(super) fn args(&self) -> impl Iterator<Item = Arg<'t>> {
        let scale = Arg::from(self.scale * std::f32::consts::LOG2_E);
        let sinks = self.sinks.map(|sinks| Arg::from(sinks.buffer()));
        [scale].into_iter().chain(self.soft_cap.map(Arg::from)).chain(self.window.map(Arg::from)).chain(sinks)
    }
}
