//! Attention of several queries per sequence.

use tilewright_codegen::device::{Arg, Stream, TensorShape};
use tilewright_codegen::ir::{Arch, Limit};
use tilewright_kernels::attention::prefill::{Kv, Prefill, QueryLayout, hopper, warps};
use tilewright_kernels::kv::Tma;
use tilewright_layout::DType;

use super::cache::{Cached, KvCache, QueryExtents, Scores, check_heads, check_numbers, check_rows, check_tokens};
use super::recipe::{PREFILL_STAGES, Recipe};
use super::tensor::Operand;
use super::{OpError, Ops, Tensor};

/// The newest tokens of sequences as queries, one sequence after the other: `out =
/// softmax(scores(q·Kᵀ))·V` of every query head.
#[derive(Clone, Copy, Debug)]
pub struct AttentionPrefill<'t> {
    /// `[rows, heads, dim]` bfloat16; `dim` is one of [`Prefill::DEPTHS`].
    pub q: &'t Tensor,
    /// The keys and values.
    pub kv: PrefillKv<'t>,
    /// `[sequences + 1]` int32: the row of each sequence's first query, and the end of all. Rows of
    /// no sequence are not written.
    pub query_starts: &'t Tensor,
    /// `[sequences + 1]` int32: sums of the sequences' tokens before each, and of all. Of a cache
    /// the differences alone are used: tokens of each sequence, its queries included.
    pub token_starts: &'t Tensor,
    /// Queries of the longest sequence, or more; later ones are not computed. `None`: as many as
    /// `q` has rows, which starts more blocks than several sequences need.
    pub longest: Option<usize>,
    /// Whether a query sees tokens up to its own: query i of n, of a sequence of t tokens, sees
    /// `t − n + i + 1`. Otherwise all queries see all tokens.
    pub causal: bool,
    /// How products become scores. A window needs `causal`.
    pub scores: Scores<'t>,
    /// As `q`, in other memory.
    pub out: &'t Tensor,
    /// `[rows, heads]` float32: the natural logarithm of the sum of `exp(score)`, sinks included,
    /// that `out` is divided by; −∞ where no token is seen.
    pub lse: Option<&'t Tensor>,
}

/// Keys and values of a prefill.
#[derive(Clone, Copy, Debug)]
pub enum PrefillKv<'t> {
    /// Of a cache. On compute capability 9.0, pages have a multiple of 8 tokens.
    Cache(KvCache<'t>),
    /// Without a cache, `[all tokens, kv_heads, dim]` bfloat16 each: one sequence after the other.
    Ragged {
        /// Keys.
        keys: &'t Tensor,
        /// Values.
        values: &'t Tensor,
    },
}

const OP: &str = "attention_prefill";
/// Key/value heads whose keys and values share L2.
const SHARE_L2: u32 = 4;
/// Sequences of a grid.
const MOST_SEQUENCES: usize = 65535;

impl Ops {
    /// Attention of the newest tokens of sequences.
    ///
    /// # Errors
    /// [`OpError`] for operands that do not fit each other, or that no kernel takes.
    pub fn attention_prefill(&self, stream: &Stream, attention: &AttentionPrefill<'_>) -> Result<(), OpError> {
        let AttentionPrefill { query_starts, token_starts, causal, scores, out, lse, .. } = *attention;
        let operand = |name, tensor| Operand::new(OP, name, tensor);
        let q = operand("q", attention.q);
        let &[rows, heads, dim] = attention.q.shape() else {
            return Err(q.shape("it must be [rows, heads, dim]"));
        };
        let of_starts = operand("query_starts", query_starts);
        let sequences = match *query_starts.shape() {
            [starts] if (1..=MOST_SEQUENCES + 1).contains(&starts) => starts - 1,
            _ => return Err(of_starts.shape("it must be [sequences + 1], of at most 65535 sequences")),
        };
        operand("token_starts", token_starts).has(query_starts.shape(), "it must be as query_starts,")?;
        for starts in [of_starts, operand("token_starts", token_starts)] {
            starts.is(&[DType::I32, DType::U32], "int32")?;
            starts.contiguous()?;
        }
        if !(u32::try_from(dim).is_ok_and(|dim| Prefill::DEPTHS.contains(&dim))) {
            return Err(q.shape(format!("its dimensions must be one of {:?}", Prefill::DEPTHS)));
        }
        let extents = QueryExtents { sequences, heads, dim };
        let kv = attention.kv.check(extents)?;
        operand("out", out).has(attention.q.shape(), "it must be as q,")?;
        check_rows(OP, "q", attention.q)?;
        check_rows(OP, "out", out)?;
        operand("out", out).apart(q)?;
        if let Some(lse) = lse {
            check_numbers(operand("lse", lse), &[rows, heads], "it must have a number for each head of q,")?;
        }
        let variant = scores.check(OP, heads)?;
        if let Some(window) = scores.window.filter(|_| !causal) {
            let expected = "windows end at a query's own token: causal must be set";
            return Err(OpError::Number { op: OP, name: "window", found: window.to_string(), expected });
        }
        if attention.longest == Some(0) {
            let expected = "it must be the queries of the longest sequence";
            return Err(OpError::Number { op: OP, name: "longest", found: "0".into(), expected });
        }
        let (depth, heads) = (dim as u32, heads as u32);
        let Cached { keys, values, kv_heads, plane, .. } = kv.cached;
        let group = heads / kv_heads;
        let queries = QueryLayout::Ragged;
        let prefill = Prefill {
            depth,
            value_depth: None,
            group,
            causal,
            queries,
            kv: kv.layout,
            scores: variant,
            lse: lse.is_some(),
        };
        let by_maps = self.arch == Arch::Sm90a;
        let box_rows = Tma::box_rows(prefill.tuning().keys, kv.cached.pages.map(|pages| pages.tokens));
        if by_maps && !box_rows.is_multiple_of(8) {
            let expected = "on compute capability 9.0 a page must have a multiple of 8 tokens";
            return Err(operand("keys", keys).shape(expected));
        }
        let [needed, most] = [warps_shared_bytes(depth), *Limit::SharedPerBlock.range(self.arch).end()];
        if !by_maps && needed > most {
            return Err(
                q.shape(format!("{dim} dimensions need {needed} bytes of shared memory; {} has {most}", self.arch))
            );
        }
        if rows == 0 || sequences == 0 {
            return Ok(());
        }
        if keys.elements() == 0 {
            return Err(operand("keys", keys).shape("it must have a token"));
        }
        let block_rows = if by_maps { prefill.hopper_rows() } else { warps::BLOCK_ROWS };
        let tiles = (attention.longest.unwrap_or(rows).min(rows) as u32).div_ceil(block_rows);
        let map = |tensor: &Tensor, shape: TensorShape| stream.device().tensor_map(tensor.buffer(), shape);
        let maps = if by_maps {
            let of_queries = Tma::map(depth, [rows as u32, heads], [heads * depth, depth], hopper::ROWS, false);
            let of_tokens = Tma::map(depth, kv.planes, kv.strides, box_rows, false);
            Some([map(attention.q, of_queries)?, map(keys, of_tokens.clone())?, map(values, of_tokens)?])
        } else {
            None
        };
        let pointers = [attention.q, keys, values].map(|tensor| Arg::from(tensor.buffer()));
        let mut args: Vec<Arg<'_>> = match &maps {
            Some(maps) => maps.iter().map(Arg::Map).collect(),
            None => pointers.to_vec(),
        };
        let pages = kv.cached.pages;
        let (table, width) = pages.map_or((Arg::Null, 1), |pages| (pages.table.buffer().into(), pages.width));
        args.extend([query_starts, token_starts].map(|starts| Arg::from(starts.buffer())));
        args.push(table);
        args.extend([width, plane, tiles, heads, (SHARE_L2 * group).min(heads)].map(Arg::from));
        args.extend(scores.args());
        args.push(out.buffer().into());
        args.extend(lse.map(|lse| Arg::from(lse.buffer())));
        self.launch(stream, Recipe::Prefill(prefill), [tiles * heads, sequences as u32], &args)
    }
}

/// Keys and values that fit their queries, and how they lie.
struct CheckedKv<'t> {
    cached: Cached<'t>,
    layout: Kv,
    /// Rows of a plane, and planes.
    planes: [u32; 2],
    /// Elements from row to row, from plane to plane.
    strides: [u32; 2],
}

impl<'t> PrefillKv<'t> {
    fn check(self, queries: QueryExtents) -> Result<CheckedKv<'t>, OpError> {
        let QueryExtents { sequences, dim, .. } = queries;
        match self {
            PrefillKv::Cache(cache) => {
                let cached = cache.check(OP, queries)?;
                let rows = cached.plane / dim as u32;
                let (layout, planes) = match cached.pages {
                    None => (Kv::HeadMajor, (sequences as u32).saturating_mul(cached.kv_heads)),
                    Some(pages) => (Kv::Paged { page_tokens: pages.tokens, swizzled: false }, cached.kv_heads),
                };
                Ok(CheckedKv { cached, layout, planes: [rows, planes], strides: [dim as u32, cached.plane] })
            }
            PrefillKv::Ragged { keys, values } => {
                let of_keys = Operand::new(OP, "keys", keys);
                let &[tokens, kv_heads, columns] = keys.shape() else {
                    return Err(of_keys.shape("it must be [tokens, kv_heads, dim]"));
                };
                if columns != dim {
                    return Err(of_keys.shape(format!("q has {dim} dimensions")));
                }
                check_heads(of_keys, queries, kv_heads)?;
                check_tokens(OP, keys, values)?;
                let [tokens, kv_heads, plane] = [tokens, kv_heads, dim].map(|extent| extent as u32);
                let cached = Cached { keys, values, kv_heads, plane, longest: tokens, pages: None };
                let strides = [kv_heads * plane, plane];
                Ok(CheckedKv { cached, layout: Kv::Ragged, planes: [tokens, kv_heads], strides })
            }
        }
    }
}

/// Bytes of shared memory of a block that copies keys and values by `cp.async`.
fn warps_shared_bytes(depth: u32) -> u32 {
    2 * PREFILL_STAGES * warps::TILE * depth * 2
}
