//! The standalone kernel: one block for each share, head and sequence.

use half::bf16;
use tilewright_codegen::build::{Builder, Val, block, record};
use tilewright_codegen::ir::attr::SpecialReg;
use tilewright_codegen::ir::{Arch, Kernel};

use super::combine::Splits;
use super::device::{DecodeTask, attend, warps};
use super::items::{Items, attend_items};
use crate::attention::{
    AttentionError, CustomMask, CustomProducts, CustomScores, ScoreFunction, ScoreVariant, WithScores,
};
use crate::kv::{KvFamily, KvView, Pages, is_swizzled};
use crate::pdl::{trigger_and_wait, trigger_dependents};

/// The layout of the keys and values of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// `[sequences, kv_heads, capacity, D]`.
    Dense,
    /// `[kv_heads, pages, page_tokens, D]` and a table `[sequences, pages of a sequence]`.
    Paged {
        /// Tokens in a page.
        page_tokens: u32,
        /// Whether rows are in the order of [`swizzled`](crate::kv::swizzled), as those of the
        /// megakernel's pools are; then pages are whole groups of eight tokens.
        swizzled: bool,
    },
}

/// A decode kernel: everything that it is specialised for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decode {
    /// Columns of a head, one of [`DEPTHS`](Decode::DEPTHS); others are refused,
    /// [`AttentionError::Depth`].
    pub depth: u32,
    /// Columns of a value, where they are not as many: 128 beside keys of 192.
    pub value_depth: Option<u32>,
    /// Query heads that share a key/value head, 1 to [`MOST_GROUP`](Decode::MOST_GROUP); others are
    /// refused, [`AttentionError::Group`].
    pub group: u32,
    /// The layout of tokens in memory.
    pub layout: Layout,
    /// Most tokens of a warp's tile, 16 or 32: 32 are half as many and twice as large copies, in
    /// twice the shared memory. See [`tokens`](Decode::tokens).
    pub tile: u32,
    /// The score modifiers that the kernel applies: a soft cap, a sliding window.
    pub scores: ScoreVariant,
    /// Whether the kernel stores the log-sum-exp of each query's scores.
    pub lse: bool,
}

/// Settings of a decode kernel by tensor maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeTuning {
    /// [`Decode::tile`].
    pub tile: u32,
    /// Stages of a warp's rings.
    pub stages: u32,
    /// Blocks of a multiprocessor.
    pub blocks: u32,
}

/// The parameters of the kernel, in order, by name and meaning; arguments are given in this order.
///
/// | parameter | |
/// |---|---|
/// | `q` | `[sequences, kv_heads·group, D]` bf16 |
/// | `keys`, `values` | rows of D and of V: pointers or tensor maps, see [`KvFamily::TENSOR_MAP`] |
/// | `tokens` | `[sequences]`: tokens of each |
/// | `table` | `[sequences, table_width]` pages, or anything where the layout is dense |
/// | `table_width` | entries of a sequence |
/// | `plane_stride` | elements of keys from plane to plane: `capacity·D`, or `pages·page_tokens·D` |
/// | `scale` | of the scores, times log₂e |
/// | `soft_cap` | the cap of the scores, f32 above 0; only where [`ScoreVariant::soft_cap`] |
/// | `window` | tokens that a query sees, its own included, u32 of 1 or more; only where [`ScoreVariant::window`] |
/// | `sinks` | `[kv_heads·group]`: a logit of each query head, f32; only where [`ScoreVariant::sinks`] |
/// | `acc`, `stats` | room for `[sequences, kv_heads, splits, group, V]` and `[.., 2]` f32; V is the depth of values |
/// | `done` | `[sequences, kv_heads]` zeros, which are zeros again afterwards |
/// | `out` | `[sequences, kv_heads·group, V]` bf16 |
/// | `lse` | `[sequences, kv_heads·group]` f32: natural logarithms of sums of exp(score), sinks included; only where [`Decode::lse`] |
///
/// Those of persistent blocks, of a [score modifier of one's own](Decode::custom) and of a
/// [mask](Decode::mask) come last, in this order.
#[derive(Clone, Copy, Debug)]
pub struct DecodeArgs;

impl Decode {
    /// Columns of a head that the kernel is made for.
    pub const DEPTHS: &'static [u32] = &[64, 80, 96, 112, 128, 192, 256];
    /// Query heads of a key/value head that the kernel takes at most: the rows of `m16n8k16`.
    pub const MOST_GROUP: u32 = 16;

    /// Columns of a value.
    pub fn values(&self) -> u32 {
        self.value_depth.unwrap_or(self.depth)
    }

    /// Tokens of a warp's tile: rows of a tensor map's boxes. Of heads wider than 128 columns
    /// registers hold 16.
    ///
    /// ```
    /// use tilewright_kernels::attention::decode::{Decode, Layout};
    /// use tilewright_kernels::attention::ScoreVariant;
    /// let scores = ScoreVariant::NONE;
    /// let decode = Decode { depth: 128, value_depth: None, group: 4, layout: Layout::Dense, tile: 32, scores, lse: false };
    /// assert_eq!([decode.tokens(), Decode { depth: 256, ..decode }.tokens()], [32, 16]);
    /// ```
    pub const fn tokens(&self) -> u32 {
        if self.tile == 32 && self.depth <= 128 { 32 } else { 16 }
    }

    /// The fastest settings over dense caches, as measured on an H200 for depths of 80, 128, 256, and
    /// 192 with values of 128; other depths have those of their neighbours.
    ///
    /// ```
    /// use tilewright_kernels::attention::decode::{Decode, DecodeTuning, Layout};
    /// use tilewright_kernels::attention::ScoreVariant;
    /// let scores = ScoreVariant::NONE;
    /// let decode =
    ///     Decode { depth: 192, value_depth: Some(128), group: 4, layout: Layout::Dense, tile: 32, scores, lse: false };
    /// assert_eq!(decode.tuning(), DecodeTuning { tile: 16, stages: 2, blocks: 2 });
    /// ```
    pub fn tuning(&self) -> DecodeTuning {
        match (self.depth, self.values()) {
            (192, 128) => DecodeTuning { tile: 16, stages: 2, blocks: 2 },
            // Two stages of small rows, or of small tiles, are few bytes in flight.
            (80 | 96 | 112 | 192 | 256, _) => DecodeTuning { tile: 32, stages: 3, blocks: 1 },
            _ => DecodeTuning { tile: 32, stages: 2, blocks: 1 },
        }
    }

    /// Blocks that share a head, so that the device is full and every warp has at least one tile.
    ///
    /// ```
    /// use tilewright_kernels::attention::decode::{Decode, Layout};
    /// use tilewright_kernels::attention::ScoreVariant;
    /// let scores = ScoreVariant::NONE;
    /// let decode = Decode { depth: 128, value_depth: None, group: 4, layout: Layout::Dense, tile: 16, scores, lse: false };
    /// assert_eq!(decode.splits(8, 65536, 264), 33);
    /// assert_eq!(decode.splits(8, 1024, 264), 16);
    /// ```
    pub fn splits(&self, heads: u32, tokens: u32, resident: u32) -> u32 {
        let useful = tokens.div_ceil(self.tokens() * warps(self.depth)).max(1);
        (resident / heads.max(1)).clamp(1, useful)
    }

    /// The kernel with a score modifier of one's own.
    pub fn custom(self, custom: CustomScores<'_>) -> WithScores<'_, Decode> {
        WithScores::from(self).custom(custom)
    }

    /// The kernel with a function of products of one's own.
    pub fn products(self, products: CustomProducts<'_>) -> WithScores<'_, Decode> {
        WithScores::from(self).products(products)
    }

    /// The kernel with a mask of one's own.
    pub fn mask(self, mask: CustomMask<'_>) -> WithScores<'_, Decode> {
        WithScores::from(self).mask(mask)
    }

    /// Records the kernel for a way of keys and values.
    pub fn record<F: KvFamily>(&self, arch: Arch) -> Kernel {
        WithScores::from(*self).record::<F>(arch)
    }

    /// Records the kernel with persistent blocks: each takes every n-th share of the heads, for n
    /// blocks, and issues the keys and values of the next share before it has finished one. The
    /// grid is any number of blocks; after [`DecodeArgs`] come `splits`, `kv_heads` and
    /// `sequences`, and nothing is stored of a sequence without tokens. Tokens, tables, and keys
    /// and values of all tokens but a sequence's last tile are read before the launch before this
    /// one has ended: they are those of earlier steps, which ended before the graph of this step
    /// began.
    ///
    /// # Panics
    /// Of families whose registers take turns.
    pub fn record_staying<F: KvFamily>(&self, arch: Arch) -> Kernel {
        WithScores::from(*self).record_staying::<F>(arch)
    }
}

impl WithScores<'_, Decode> {
    /// Records the kernel for a way of keys and values.
    pub fn record<F: KvFamily>(&self, arch: Arch) -> Kernel {
        self.recorded::<F>(arch, false)
    }

    /// Records the kernel with persistent blocks; see [`Decode::record_staying`].
    ///
    /// # Panics
    /// Of families whose registers take turns.
    pub fn record_staying<F: KvFamily>(&self, arch: Arch) -> Kernel {
        self.recorded::<F>(arch, true)
    }

    fn recorded<F: KvFamily>(&self, arch: Arch, stays: bool) -> Kernel {
        let decode = self.kernel;
        let layout = match decode.layout {
            Layout::Dense => "dense".to_owned(),
            Layout::Paged { page_tokens, swizzled: false } => format!("pages{page_tokens}"),
            Layout::Paged { page_tokens, swizzled: true } => format!("pool{page_tokens}"),
        };
        let tokens = decode.tokens();
        let suffix = if stays { "_staying" } else { "" };
        let scores = decode.scores.suffix(self.own);
        let lse = if decode.lse { "_lse" } else { "" };
        let values = if decode.values() == decode.depth { String::new() } else { format!("_v{}", decode.values()) };
        let Decode { depth, group, .. } = decode;
        let name = format!("decode_d{depth}{values}_g{group}_t{tokens}_{layout}_{}{suffix}{scores}{lse}", F::name());
        record(&name, arch, block(warps(decode.depth) * 32), |k| match decode.depth {
            _ if !(1..=Decode::MOST_GROUP).contains(&decode.group) => {
                k.refuse(&AttentionError::Group { group: decode.group })
            }
            depth if let Some(error) = AttentionError::of_values("decode", depth, decode.values()) => k.refuse(&error),
            64 => self.body::<F, 64, 64>(k, stays),
            80 => self.body::<F, 80, 80>(k, stays),
            96 => self.body::<F, 96, 96>(k, stays),
            112 => self.body::<F, 112, 112>(k, stays),
            128 => self.body::<F, 128, 128>(k, stays),
            192 if decode.values() == 128 => self.body::<F, 192, 128>(k, stays),
            192 => self.body::<F, 192, 192>(k, stays),
            256 => self.body::<F, 256, 256>(k, stays),
            depth => k.refuse(&AttentionError::Depth { kernel: "decode", depth, depths: Decode::DEPTHS }),
        })
    }

    fn body<'k, F: KvFamily, const D: u32, const V: u32>(&self, k: &'k Builder, stays: bool) {
        let decode = self.kernel;
        let q = k.global::<bf16>("q");
        let inputs = [F::input(k, "keys"), F::input(k, "values")];
        let tokens = k.global::<u32>("tokens");
        let table = k.global::<u32>("table");
        let table_width = k.param::<u32>("table_width");
        let plane_stride = k.param::<u32>("plane_stride");
        let scores = ScoreFunction::declare(k, decode.scores);
        if stays {
            trigger_dependents(k)
        } else {
            trigger_and_wait(k)
        }
        let acc = k.global::<f32>("acc");
        let stats = k.global::<f32>("stats");
        let done = k.global::<u32>("done");
        let out = k.global::<bf16>("out");
        let lse = decode.lse.then(|| k.global::<f32>("lse"));
        let counts = stays.then(|| k.u32_params(["splits", "kv_heads", "sequences"]));
        let own = self.own.declare(k, scores);
        let scores = scores.with_own(k, &own);

        let by_grid = || [SpecialReg::NctaidX, SpecialReg::NctaidY].map(|axis| k.special(axis));
        let block = || [SpecialReg::CtaidX, SpecialReg::CtaidY, SpecialReg::CtaidZ].map(|axis| k.special(axis));
        let [split, head, sequence] = if stays { [k.lit(0u32); 3] } else { block() };
        let [count, heads] = counts.map_or_else(by_grid, |[splits, heads, _]| [splits, heads]);
        let [rows, results] = [D, V].map(|columns| decode.group * columns);
        let place = |sequence: Val<'k, u32>, head: Val<'k, u32>| {
            let dense = KvView {
                plane: sequence * heads + head,
                plane_stride,
                first: k.lit(0u32),
                row_stride: k.lit(D),
                tokens: tokens.at(sequence).load(),
                pages: None,
            };
            match decode.layout {
                Layout::Dense => dense,
                Layout::Paged { page_tokens, swizzled } => {
                    let swizzled = swizzled && is_swizzled(decode.depth);
                    let table = table.at(sequence.mul_wide(table_width));
                    KvView { plane: head, pages: Some(Pages { table, page_tokens, swizzled }), ..dense }
                }
            }
        };
        let meet = |line: Val<'k, u32>| Splits {
            count,
            acc: acc.at(line * count * results),
            stats: stats.at(line * count * (2 * decode.group)),
            done: done.at(line),
            sinks: scores.sinks(|| line % heads * decode.group),
            out: out.at(line.mul_wide(results)),
            lse: lse.map(|lse| lse.at(line.mul_wide(decode.group))),
        };
        let query = |line: Val<'k, u32>| q.at(line.mul_wide(rows));
        if let Some([splits, heads, sequences]) = counts {
            let items = Items { splits, heads, sequences, scores, place: &place, query: &query, meet: &meet };
            return match decode.tokens() {
                32 => attend_items::<F, D, V, 32>(k, inputs, &items, decode.group),
                _ => attend_items::<F, D, V, 16>(k, inputs, &items, decode.group),
            };
        }
        let line = sequence * heads + head;
        let place = place(sequence, head);
        let splits = meet(line);
        let query = query(line);
        let of = [sequence, head];
        let task = DecodeTask { of, query, inputs, place, split, scores, group: decode.group, splits };
        match decode.tokens() {
            32 => attend::<F, D, V, 32>(k, &task),
            _ => attend::<F, D, V, 16>(k, &task),
        }
    }
}
