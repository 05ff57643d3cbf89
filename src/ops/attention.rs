//! Attention of one query per sequence to its cached keys and values.

use tilewright_codegen::device::{Arg, Buffer, Stream};
use tilewright_kernels::attention::ScoreVariant;
use tilewright_kernels::attention::decode::{Decode, Layout};
use tilewright_layout::DType;

use super::cache::{Cached, KvCache, QueryExtents, Scores, check_numbers, check_rows};
use super::recipe::Recipe;
use super::tensor::Operand;
use super::{OpError, Ops, Tensor};

/// One query per sequence: `out = softmax(scores(q·Kᵀ))·V` of every query head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionDecode<'t> {
    /// `[sequences, heads, dim]` bfloat16; `dim` is one of [`Decode::DEPTHS`].
    pub q: &'t Tensor,
    /// The keys and values, with 1 to 16 heads of `q` for each of their heads.
    pub cache: KvCache<'t>,
    /// `[sequences]` int32: tokens of each, the newest included.
    pub tokens: &'t Tensor,
    /// How products become scores.
    pub scores: Scores<'t>,
    /// Float32 of [`Ops::attention_workspace`] elements or more: zeros before its first use, which
    /// each launch leaves as they must be for the next one of the same shapes.
    pub workspace: &'t Tensor,
    /// As `q`.
    pub out: &'t Tensor,
    /// `[sequences, heads]` float32: the natural logarithm of the sum of `exp(score)`, sinks
    /// included, that `out` is divided by; −∞ where no token is seen.
    pub lse: Option<&'t Tensor>,
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
        let AttentionDecode { scores, tokens, workspace, out, lse, .. } = *attention;
        let operand = |name, tensor| Operand::new(OP, name, tensor);
        let q = operand("q", attention.q);
        let &[sequences, heads, dim] = attention.q.shape() else {
            return Err(q.shape("it must be [sequences, heads, dim]"));
        };
        let cached = attention.cache.check(OP, QueryExtents { sequences, heads, dim })?;
        if !(u32::try_from(dim).is_ok_and(|dim| Decode::DEPTHS.contains(&dim))) {
            return Err(q.shape(format!("its dimensions must be one of {:?}", Decode::DEPTHS)));
        }
        let Cached { keys, values, kv_heads, plane, longest, pages } = cached;
        let group = heads as u32 / kv_heads;
        if group > Decode::MOST_GROUP {
            let most = Decode::MOST_GROUP;
            return Err(
                operand("keys", keys).shape(format!("the {heads} heads of q must be 1 to {most} times its heads"))
            );
        }
        operand("out", out).has(attention.q.shape(), "it must be as q,")?;
        check_rows(OP, "q", attention.q)?;
        check_rows(OP, "out", out)?;
        let of_tokens = operand("tokens", tokens);
        of_tokens.has(&[sequences], "it must have a number for each sequence,")?;
        of_tokens.is(&[DType::I32, DType::U32], "int32")?;
        of_tokens.contiguous()?;
        if let Some(lse) = lse {
            check_numbers(operand("lse", lse), &[sequences, heads], "it must have a number for each head of q,")?;
        }
        let layout = pages.map_or(Layout::Dense, |pages| Layout::Paged { page_tokens: pages.tokens, swizzled: false });
        let variant = scores.check(OP, heads)?;
        let decode = Decode { lse: lse.is_some(), ..decode(dim as u32, group, layout, variant) };
        let sequences = sequences as u32;
        let parts = self.workspace(&decode, sequences, kv_heads, longest);
        let room = operand("workspace", workspace);
        room.is(&[DType::F32], "float32")?;
        room.contiguous()?;
        room.aligned()?;
        let needed = parts.acc + parts.stats + parts.done;
        if workspace.elements() < needed {
            return Err(room.shape(format!("it must have {needed} elements")));
        }
        if sequences == 0 {
            return Ok(());
        }
        let part = |first: usize, elements: usize| -> Result<Buffer<u8>, OpError> {
            Ok(workspace.buffer().slice(4 * first..4 * (first + elements))?)
        };
        let acc = part(0, parts.acc)?;
        let stats = part(parts.acc, parts.stats)?;
        let done = part(parts.acc + parts.stats, parts.done)?;
        let (table, width) = pages.map_or((Arg::Null, 1), |pages| (pages.table.buffer().into(), pages.width));
        let mut args = [attention.q, keys, values, tokens].map(|tensor| Arg::from(tensor.buffer())).to_vec();
        args.extend([table, width.into(), plane.into()]);
        args.extend(scores.args());
        args.extend([&acc, &stats, &done, out.buffer()].map(Arg::from));
        args.extend(lse.map(|lse| Arg::from(lse.buffer())));
        self.launch(stream, Recipe::Decode(decode), [parts.splits, kv_heads, sequences], &args)
    }
}

fn decode(depth: u32, group: u32, layout: Layout, scores: ScoreVariant) -> Decode {
    Decode { depth, value_depth: None, group, layout, tile: TILE, scores, lse: false }
}
