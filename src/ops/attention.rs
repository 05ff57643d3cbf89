//! Attention of one query per sequence to its cached keys and values.

use tilewright_codegen::device::{Arg, Buffer, Stream};
use tilewright_kernels::attention::ScoreVariant;
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_layout::DType;

use super::recipe::Recipe;
use super::tensor::Operand;
use super::{OpError, Ops, Tensor};

/// One query per sequence: `out = softmax(scale · q·Kᵀ)·V` of every query head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionDecode<'t> {
    /// `[sequences, heads, dim]` bfloat16; `dim` is one of [`Decode::DEPTHS`].
    pub q: &'t Tensor,
    /// The keys and values.
    pub cache: DecodeCache<'t>,
    /// `[sequences]` int32: tokens of each, the newest included.
    pub tokens: &'t Tensor,
    /// The factor of the products.
    pub scale: f32,
    /// Bounds scores s as `cap · tanh(s / cap)`: positive.
    pub soft_cap: Option<f32>,
    /// Newest tokens that a query sees: at least 1.
    pub window: Option<u32>,
    /// `[heads]` float32: a logit of each head that takes part in the softmax, without a value.
    pub sinks: Option<&'t Tensor>,
    /// Float32 of [`Ops::attention_workspace`] elements or more: zeros before its first use, which
    /// each launch leaves as they must be for the next one of the same shapes.
    pub workspace: &'t Tensor,
    /// As `q`.
    pub out: &'t Tensor,
}

/// Keys and values of sequences, bfloat16. Heads of `q` share those of a key/value head in groups.
#[derive(Clone, Copy, Debug)]
pub enum DecodeCache<'t> {
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

const OP: &str = "attention_decode";
/// Tokens of a tile of keys and values.
const TILE: u32 = 32;

/// The parts of a workspace.
struct Workspace {
    splits: u32,
    acc: usize,
    stats: usize,
    done: usize,
}

impl Ops {
    /// Elements of the workspace, float32, of sequences of `capacity` tokens at most.
    pub fn attention_workspace(
        &self,
        sequences: usize,
        heads: usize,
        kv_heads: usize,
        dim: usize,
        capacity: usize,
    ) -> usize {
        let extents =
            [sequences, heads, kv_heads, dim, capacity].map(|extent| u32::try_from(extent).unwrap_or(u32::MAX));
        let [sequences, heads, kv_heads, dim, capacity] = extents;
        let group = heads / kv_heads.max(1);
        let decode = decode(dim, group, Layout::Dense, ScoreVariant::NONE);
        let parts = self.workspace(&decode, sequences, kv_heads, capacity);
        parts.acc + parts.stats + parts.done
    }

    fn workspace(&self, decode: &Decode, sequences: u32, kv_heads: u32, capacity: u32) -> Workspace {
        let lines = sequences.saturating_mul(kv_heads);
        let splits = decode.splits(lines, capacity, self.device.properties().sms);
        let rows = lines as usize * splits as usize * decode.group as usize;
        Workspace {
            splits,
            acc: rows.saturating_mul(decode.depth as usize),
            stats: rows.saturating_mul(2),
            done: lines as usize,
        }
    }

    /// Attention of one query per sequence.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other.
    pub fn attention_decode(&self, stream: &Stream, attention: &AttentionDecode<'_>) -> Result<(), OpError> {
        let operand = |name, tensor| Operand::new(OP, name, tensor);
        let (keys, values, table) = match attention.cache {
            DecodeCache::Dense { keys, values } => (keys, values, None),
            DecodeCache::Paged { keys, values, table } => (keys, values, Some(table)),
        };
        let q = operand("q", attention.q);
        let &[sequences, heads, dim] = attention.q.shape() else {
            return Err(q.shape("it must be [sequences, heads, dim]"));
        };
        let of_keys = operand("keys", keys);
        let &[outer, inner, capacity, columns] = keys.shape() else {
            let form = if table.is_some() {
                "[kv_heads, pages, page_tokens, dim]"
            } else {
                "[sequences, kv_heads, capacity, dim]"
            };
            return Err(of_keys.shape(format!("it must be {form}")));
        };
        let kv_heads = if table.is_some() { outer } else { inner };
        if columns != dim || (table.is_none() && outer != sequences) {
            return Err(of_keys.shape(format!("q has {sequences} sequences and {dim} dimensions")));
        }
        if !(u32::try_from(dim).is_ok_and(|dim| Decode::DEPTHS.contains(&dim))) {
            return Err(q.shape(format!("its dimensions must be one of {:?}", Decode::DEPTHS)));
        }
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) || heads / kv_heads > Decode::MOST_GROUP as usize {
            return Err(
                of_keys.shape(format!("the {heads} heads of q must be 1 to {} times its heads", Decode::MOST_GROUP))
            );
        }
        operand("values", values).has(keys.shape(), "it must be as keys,")?;
        operand("out", attention.out).has(attention.q.shape(), "it must be as q,")?;
        for (name, tensor) in [("q", attention.q), ("keys", keys), ("values", values), ("out", attention.out)] {
            let operand = operand(name, tensor);
            operand.is(&[DType::BF16], "bfloat16")?;
            operand.contiguous()?;
            operand.aligned()?;
        }
        let whole = [DType::I32, DType::U32];
        let tokens = operand("tokens", attention.tokens);
        tokens.has(&[sequences], "it must have a number for each sequence,")?;
        tokens.is(&whole, "int32")?;
        tokens.contiguous()?;
        let (layout, width) = match table {
            None => (Layout::Dense, 1),
            Some(table) => {
                let operand = operand("table", table);
                operand.is(&whole, "int32")?;
                operand.contiguous()?;
                let &[rows, width] = table.shape() else {
                    return Err(operand.shape("it must be [sequences, pages of a sequence]"));
                };
                if rows != sequences {
                    return Err(operand.shape(format!("q has {sequences} sequences")));
                }
                (Layout::Paged { page_tokens: capacity as u32, swizzled: false }, width as u32)
            }
        };
        if let Some(sinks) = attention.sinks {
            let operand = operand("sinks", sinks);
            operand.is(&[DType::F32], "float32")?;
            operand.has(&[heads], "it must have a number for each head of q,")?;
            operand.contiguous()?;
        }
        self.check_numbers(attention)?;
        let plane = if table.is_some() { inner * capacity * dim } else { capacity * dim };
        let plane = u32::try_from(plane).map_err(|_| of_keys.shape("a head must have less than 2^32 elements"))?;
        let scores = ScoreVariant {
            soft_cap: attention.soft_cap.is_some(),
            window: attention.window.is_some(),
            sinks: attention.sinks.is_some(),
        };
        let (sequences, kv_heads) = (sequences as u32, kv_heads as u32);
        let decode = decode(dim as u32, heads as u32 / kv_heads, layout, scores);
        let longest = if table.is_some() { (capacity as u32).saturating_mul(width) } else { capacity as u32 };
        let parts = self.workspace(&decode, sequences, kv_heads, longest);
        let room = operand("workspace", attention.workspace);
        room.is(&[DType::F32], "float32")?;
        room.contiguous()?;
        room.aligned()?;
        let needed = parts.acc + parts.stats + parts.done;
        if attention.workspace.elements() < needed {
            return Err(room.shape(format!("it must have {needed} elements")));
        }
        if sequences == 0 || heads == 0 {
            return Ok(());
        }
        let part = |first: usize, elements: usize| -> Result<Buffer<u8>, OpError> {
            Ok(attention.workspace.buffer().slice(4 * first..4 * (first + elements))?)
        };
        let acc = part(0, parts.acc)?;
        let stats = part(parts.acc, parts.stats)?;
        let done = part(parts.acc + parts.stats, parts.done)?;
        let mut args: Vec<Arg<'_>> = vec![
            attention.q.buffer().into(),
            keys.buffer().into(),
            values.buffer().into(),
            attention.tokens.buffer().into(),
            table.map_or(Arg::Null, |table| table.buffer().into()),
            width.into(),
            plane.into(),
            (attention.scale * std::f32::consts::LOG2_E).into(),
        ];
        args.extend(attention.soft_cap.map(Arg::from));
        args.extend(attention.window.map(Arg::from));
        args.extend(attention.sinks.map(|sinks| Arg::from(sinks.buffer())));
        args.extend([&acc, &stats, &done, attention.out.buffer()].map(Arg::from));
        self.launch(stream, Recipe::Decode(decode), [parts.splits, kv_heads, sequences], &args)
    }

    fn check_numbers(&self, attention: &AttentionDecode<'_>) -> Result<(), OpError> {
        let refused = |name, found: String, expected| Err(OpError::Number { op: OP, name, found, expected });
        if !attention.scale.is_finite() {
            return refused("scale", attention.scale.to_string(), "it must be finite");
        }
        if let Some(cap) = attention.soft_cap.filter(|cap| !(*cap > 0.0 && cap.is_finite())) {
            return refused("soft_cap", cap.to_string(), "it must be positive and finite");
        }
        if attention.window == Some(0) {
            return refused("window", "0".into(), "a query sees its own token: it must be 1 or more");
        }
        Ok(())
    }
}

fn decode(depth: u32, group: u32, layout: Layout, scores: ScoreVariant) -> Decode {
    Decode { depth, group, layout, tile: TILE, scores, lse: false }
}
