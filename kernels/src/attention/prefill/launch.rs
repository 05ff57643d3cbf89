//! The standalone kernels: one block for each tile of queries, head and sequence.

use half::bf16;
use tilewright_codegen::build::{Builder, Global, Ptr, Scalar, Val, block, record};
use tilewright_codegen::ir::attr::SpecialReg;
use tilewright_codegen::ir::{Arch, Kernel};

use super::schedule::{QueryRows, RowLogs, order};
use super::{hopper, warps};
use crate::attention::scores::{OwnFunctions, OwnScores};
use crate::attention::softmax::Rescaling;
use crate::attention::{
    AttentionError, CustomMask, CustomProducts, CustomScores, ScoreFunction, ScoreVariant, WithScores,
};
use crate::kv::{KvFamily, KvView, Pages, is_swizzled};

/// The layout of queries and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueryLayout {
    /// `[sequences, heads, queries, D]`: every sequence has as many.
    HeadMajor,
    /// `[all queries, heads, D]`: a sequence begins where the one before ends.
    Ragged,
}

/// The layout of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kv {
    /// `[sequences, kv_heads, capacity, D]`.
    HeadMajor,
    /// `[all tokens, kv_heads, D]`: a sequence begins where the one before ends.
    Ragged,
    /// `[kv_heads, pages, page_tokens, D]` and a table `[sequences, pages of a sequence]`.
    Paged {
        /// Tokens in a page.
        page_tokens: u32,
        /// Whether rows are in the order of [`swizzled`](crate::kv::swizzled), as those of the
        /// megakernel's pools are; then pages are whole groups of eight tokens.
        swizzled: bool,
    },
}

/// A prefill kernel: everything that it is specialised for.
///
/// | parameter | |
/// |---|---|
/// | `q` | queries: a tensor map (D, row, plane) in boxes of a panel by 64 rows on Hopper, else a pointer |
/// | `keys`, `values` | tensor maps (D, row, plane) in boxes of a panel by the tile's rows, or those of a page; else pointers |
/// | `query_starts` | `[sequences + 1]`: the first query of each sequence |
/// | `token_starts` | `[sequences + 1]`: the first token of each; only differences matter where tokens are not ragged |
/// | `table`, `table_width` | pages, entries of a sequence; anything where there are none |
/// | `plane_stride` | elements from plane to plane of keys and values: `capacity·D`, `D`, or `pages·page_tokens·D` |
/// | `tiles` | tiles of queries of the longest sequence |
/// | `heads`, `sharing` | query heads; heads that share L2 |
/// | `scale` | of the scores, times log₂e |
/// | `soft_cap` | the cap of the scores, f32 above 0; only where [`ScoreVariant::soft_cap`] |
/// | `window` | tokens that a query sees, its own included, u32 of 1 or more; only where [`ScoreVariant::window`] |
/// | `sinks` | `[heads]`: a logit of each query head, f32; only where [`ScoreVariant::sinks`] |
/// | `out` | as the queries |
/// | `lse` | as the queries without D, f32: natural logarithms of sums of exp(score), sinks included; only where [`Prefill::lse`] |
///
/// Those of a [score modifier of one's own](Prefill::custom), and of a [mask](Prefill::mask), come
/// last.
///
/// Grid: (tiles · heads, sequences).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefill {
    /// Columns of a head, one of [`DEPTHS`](Prefill::DEPTHS); others are refused,
    /// [`AttentionError::Depth`].
    pub depth: u32,
    /// Columns of a value, where they are not as many: 128 beside keys of 192.
    pub value_depth: Option<u32>,
    /// Query heads that share a key/value head.
    pub group: u32,
    /// Whether a query sees only tokens up to its own.
    pub causal: bool,
    /// The layout of queries.
    pub queries: QueryLayout,
    /// The layout of keys and values.
    pub kv: Kv,
    /// The score modifiers that the kernel applies: a soft cap, a sliding window. A window without
    /// causal attention is refused, [`AttentionError::WindowNotCausal`].
    pub scores: ScoreVariant,
    /// Whether the kernel stores the log-sum-exp of each query's scores.
    pub lse: bool,
}

/// Tuning parameters of the Hopper kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrefillTuning {
    /// Keys of a tile.
    pub keys: u32,
    /// The policy for updates of the running maximum.
    pub rescaling: Rescaling,
    /// Whether named barriers let one warpgroup issue at a time (ping-pong).
    pub ping_pong: bool,
}

/// The state that both kernels share.
struct Common<'f, 'k> {
    place: KvView<'k>,
    rows: QueryRows<'k>,
    scores: ScoreFunction<'f, 'k>,
    /// Row and plane of the first query of the tile.
    corner: [Val<'k, u32>; 2],
    /// Elements from row to row, from plane to plane of the queries.
    strides: [Val<'k, u32>; 2],
    /// Those of the results.
    out_strides: [Val<'k, u32>; 2],
    lse: Option<RowLogs<'k>>,
}

/// The parameters that follow queries, keys and values.
struct Params<'f, 'k> {
    query_starts: Ptr<'k, Global, u32>,
    token_starts: Ptr<'k, Global, u32>,
    table: Ptr<'k, Global, u32>,
    table_width: Val<'k, u32>,
    plane_stride: Val<'k, u32>,
    tiles: Val<'k, u32>,
    heads: Val<'k, u32>,
    sharing: Val<'k, u32>,
    scores: ScoreFunction<'f, 'k>,
    out: Ptr<'k, Global, bf16>,
    lse: Option<Ptr<'k, Global, f32>>,
}

impl<'f, 'k> Params<'f, 'k> {
    fn declare(k: &'k Builder, prefill: &Prefill) -> Params<'f, 'k> {
        Params {
            query_starts: k.global("query_starts"),
            token_starts: k.global("token_starts"),
            table: k.global("table"),
            table_width: k.param("table_width"),
            plane_stride: k.param("plane_stride"),
            tiles: k.param("tiles"),
            heads: k.param("heads"),
            sharing: k.param("sharing"),
            scores: ScoreFunction::declare(k, prefill.scores),
            out: k.global("out"),
            lse: prefill.lse.then(|| k.global("lse")),
        }
    }

    /// Adds the functions of one's own.
    fn with(self, k: &'k Builder, own: &'f OwnFunctions<'k>) -> Params<'f, 'k> {
        Params { scores: self.scores.with_own(k, own), ..self }
    }
}

impl Prefill {
    /// Columns of a head that the kernels are made for.
    pub const DEPTHS: &'static [u32] = &[32, 64, 80, 96, 112, 128, 192, 256];

    fn name(&self, way: &str, own: OwnScores<'_>) -> String {
        let causal = if self.causal { "causal" } else { "full" };
        let queries = match self.queries {
            QueryLayout::HeadMajor => "q",
            QueryLayout::Ragged => "raggedq",
        };
        let kv = match self.kv {
            Kv::HeadMajor => "dense".to_owned(),
            Kv::Ragged => "ragged".to_owned(),
            Kv::Paged { page_tokens, swizzled: false } => format!("pages{page_tokens}"),
            Kv::Paged { page_tokens, swizzled: true } => format!("pool{page_tokens}"),
        };
        let scores = self.scores.suffix(own);
        let lse = if self.lse { "_lse" } else { "" };
        let Prefill { depth, group, .. } = *self;
        let values = if self.values() == depth { String::new() } else { format!("_v{}", self.values()) };
        format!("prefill_d{depth}{values}_g{group}_{causal}_{queries}_{kv}_{way}{scores}{lse}")
    }

    /// Columns of a value.
    pub fn values(&self) -> u32 {
        self.value_depth.unwrap_or(self.depth)
    }

    /// Rows of a block of the Hopper kernel.
    pub fn hopper_rows(&self) -> u32 {
        WithScores::from(*self).hopper_rows()
    }

    /// Returns the fastest tuning of the Hopper kernel, as measured on an H100.
    pub fn tuning(&self) -> PrefillTuning {
        let keys = match (self.depth, self.causal) {
            (192, _) if self.values() == 128 => 128,
            (192 | 256, _) => 64,
            // Larger tiles have fewer turns; where causal, more of them is masked.
            (128, false) => 176,
            _ => 128,
        };
        let rescaling = if self.depth > 64 && !self.causal { Rescaling::Lazy } else { Rescaling::EveryTile };
        PrefillTuning { keys, rescaling, ping_pong: true }
    }

    /// The kernel with a score modifier of one's own.
    pub fn custom(self, custom: CustomScores<'_>) -> WithScores<'_, Prefill> {
        WithScores::from(self).custom(custom)
    }

    /// The kernel with a function of products of one's own.
    pub fn products(self, products: CustomProducts<'_>) -> WithScores<'_, Prefill> {
        WithScores::from(self).products(products)
    }

    /// The kernel with a mask of one's own.
    pub fn mask(self, mask: CustomMask<'_>) -> WithScores<'_, Prefill> {
        WithScores::from(self).mask(mask)
    }

    /// Records the kernel for sm_90a.
    pub fn record_hopper(&self) -> Kernel {
        WithScores::from(*self).record_hopper()
    }

    /// Records the kernel for sm_90a with another tuning. Tiles have 64 keys for depths of 192 and
    /// 256, 128 or 176 for a depth of 128, and 128 for other depths and beside values of other
    /// columns; others are refused, [`AttentionError::Keys`].
    pub fn record_tuned(&self, tuning: PrefillTuning) -> Kernel {
        WithScores::from(*self).record_tuned(tuning)
    }

    /// Records the kernel of `mma.sync` for a way of keys and values.
    pub fn record<F: KvFamily>(&self, arch: Arch) -> Kernel {
        WithScores::from(*self).record::<F>(arch)
    }

    /// Keys of a tile that the Hopper kernel of a depth is made for.
    fn choices_of_keys(&self) -> &'static [u32] {
        match (self.depth, self.values()) {
            (192, 128) => &[128],
            (192 | 256, _) => &[64],
            (128, _) => &[128, 176],
            _ => &[128],
        }
    }

    /// Refuses heads and groups that no kernel is made for.
    fn is_refused(&self, k: &Builder) -> bool {
        let error = if !Self::DEPTHS.contains(&self.depth) {
            AttentionError::Depth { kernel: "prefill", depth: self.depth, depths: Self::DEPTHS }
        } else if let Some(error) = AttentionError::of_values("prefill", self.depth, self.values()) {
            error
        } else if self.group == 0 {
            AttentionError::NoGroup
        } else if self.scores.window && !self.causal {
            AttentionError::WindowNotCausal
        } else {
            return false;
        };
        k.refuse(&error);
        true
    }

    /// Calls `act` with the work of this block; a block beyond its sequence does nothing.
    fn each_block<'f, 'k>(
        &self,
        k: &'k Builder,
        params: &Params<'f, 'k>,
        block_rows: u32,
        act: impl FnOnce(Common<'f, 'k>),
    ) {
        let sequence = k.special(SpecialReg::CtaidY);
        let [tile, head] = order(k.block_id(), params.tiles, params.heads, params.sharing);
        let span = |starts: Ptr<'k, _, u32>| {
            let first: Val<'k, u32> = starts.at(sequence).load();
            (first, starts.at(sequence).at(1).load() - first)
        };
        let (query_start, queries) = span(params.query_starts);
        let (token_start, tokens) = span(params.token_starts);
        let kv_head = head / self.group;
        let kv_heads = params.heads / self.group;
        let depth = k.lit(self.depth);
        let zero = k.lit(0u32);
        let dense = KvView {
            plane: kv_head,
            plane_stride: params.plane_stride,
            first: zero,
            row_stride: depth,
            tokens,
            pages: None,
        };
        let place = match self.kv {
            Kv::HeadMajor => KvView { plane: sequence * kv_heads + kv_head, ..dense },
            Kv::Ragged => KvView { first: token_start, row_stride: kv_heads * self.depth, ..dense },
            Kv::Paged { page_tokens, swizzled } => {
                let swizzled = swizzled && is_swizzled(self.depth);
                let table = params.table.at(sequence.mul_wide(params.table_width));
                KvView { pages: Some(Pages { table, page_tokens, swizzled }), ..dense }
            }
        };
        let first = tile * block_rows;
        let corner = match self.queries {
            QueryLayout::HeadMajor => [first, sequence * params.heads + head],
            QueryLayout::Ragged => [query_start + first, head],
        };
        let strides_of = |columns: u32| match self.queries {
            QueryLayout::HeadMajor => [k.lit(columns), queries * columns],
            QueryLayout::Ragged => [params.heads * columns, k.lit(columns)],
        };
        let strides = strides_of(self.depth);
        let out_strides = if self.values() == self.depth { strides } else { strides_of(self.values()) };
        let scores = params.scores;
        let rows = QueryRows { sequence, first, queries, tokens, head, window: scores.window() };
        let lse = params.lse.map(|lse| {
            let strides = match self.queries {
                QueryLayout::HeadMajor => [k.lit(1u32), queries],
                QueryLayout::Ragged => [params.heads, k.lit(1u32)],
            };
            RowLogs { first: at(lse, corner, strides), stride: strides[0] }
        });
        k.moving().when(first.lt(queries), || act(Common { place, rows, scores, corner, strides, out_strides, lse }));
    }
}

impl WithScores<'_, Prefill> {
    /// Warpgroups of the Hopper kernel that multiply.
    fn hopper_groups(&self) -> u32 {
        // The registers of three warpgroups have no room for the bounds of a window, or for a mask.
        let is_bounded = self.kernel.scores.window || self.own.mask.is_some();
        if self.kernel.depth == 64 && !is_bounded { 3 } else { 2 }
    }

    /// Rows of a block of the Hopper kernel.
    pub fn hopper_rows(&self) -> u32 {
        hopper::ROWS * self.hopper_groups()
    }

    /// Records the kernel for sm_90a.
    pub fn record_hopper(&self) -> Kernel {
        self.record_tuned(self.kernel.tuning())
    }

    /// Records the kernel for sm_90a with another tuning; see [`Prefill::record_tuned`].
    pub fn record_tuned(&self, tuning: PrefillTuning) -> Kernel {
        let PrefillTuning { keys, rescaling, ping_pong } = tuning;
        let WithScores { kernel: prefill, own } = *self;
        let threads = 128 + 2 * self.hopper_rows();
        record(&prefill.name("wgmma", own), Arch::Sm90a, block(threads).min_blocks(1), |k| {
            if prefill.is_refused(k) {
                return;
            }
            let queries = k.tensor_map("q");
            let inputs = [k.tensor_map("keys"), k.tensor_map("values")];
            let params = Params::declare(k, &prefill);
            let own = own.declare(k, params.scores);
            let params = params.with(k, &own);
            prefill.each_block(k, &params, self.hopper_rows(), |common| {
                let Common { place, rows, scores, corner, out_strides, lse, .. } = common;
                let out = at(params.out, corner, out_strides);
                let [row, plane] = corner.map(Val::cast::<i32>);
                let out_stride = out_strides[0];
                let causal = prefill.causal;
                let corner = [row, plane];
                let task = hopper::HopperPrefillTask {
                    queries,
                    corner,
                    inputs,
                    place,
                    rows,
                    scores,
                    out,
                    out_stride,
                    lse,
                    causal,
                    rescaling,
                    ping_pong,
                };
                match (prefill.depth, prefill.values(), keys) {
                    (32, _, 128) => hopper::PrefillShape::<32, 32, 128, 2, 2>::attend(k, &task),
                    (64, _, 128) if self.hopper_groups() == 2 => {
                        hopper::PrefillShape::<64, 64, 128, 2, 2>::attend(k, &task)
                    }
                    (64, _, 128) => hopper::PrefillShape::<64, 64, 128, 2, 3>::attend(k, &task),
                    (80, _, 128) => hopper::PrefillShape::<80, 80, 128, 2, 2>::attend(k, &task),
                    (96, _, 128) => hopper::PrefillShape::<96, 96, 128, 2, 2>::attend(k, &task),
                    (112, _, 128) => hopper::PrefillShape::<112, 112, 128, 2, 2>::attend(k, &task),
                    (128, _, 128) => hopper::PrefillShape::<128, 128, 128, 2, 2>::attend(k, &task),
                    (128, _, 176) => hopper::PrefillShape::<128, 128, 176, 2, 2>::attend(k, &task),
                    (192, 128, 128) => hopper::PrefillShape::<192, 128, 128, 2, 2>::attend(k, &task),
                    (192, 192, 64) => hopper::PrefillShape::<192, 192, 64, 2, 2>::attend(k, &task),
                    (256, _, 64) => hopper::PrefillShape::<256, 256, 64, 2, 2>::attend(k, &task),
                    (depth, ..) => k.refuse(&AttentionError::Keys { keys, depth, choices: prefill.choices_of_keys() }),
                }
            });
        })
    }

    /// Records the kernel of `mma.sync` for a way of keys and values.
    pub fn record<F: KvFamily>(&self, arch: Arch) -> Kernel {
        let WithScores { kernel: prefill, own } = *self;
        record(&prefill.name(&F::name(), own), arch, block(32 * warps::WARPS), |k| {
            if prefill.is_refused(k) {
                return;
            }
            let q = k.global::<bf16>("q");
            let inputs = [F::input(k, "keys"), F::input(k, "values")];
            let params = Params::declare(k, &prefill);
            let own = own.declare(k, params.scores);
            let params = params.with(k, &own);
            prefill.each_block(k, &params, warps::BLOCK_ROWS, |common| {
                let Common { place, rows, scores, corner, strides, out_strides, lse } = common;
                let [query, out] = [at(q, corner, strides), at(params.out, corner, out_strides)];
                let [stride, out_stride] = [strides[0], out_strides[0]];
                let causal = prefill.causal;
                let task =
                    warps::PrefillTask { query, out, stride, out_stride, lse, inputs, place, rows, scores, causal };
                match prefill.depth {
                    32 => warps::attend::<F, 32, 32>(k, &task),
                    64 => warps::attend::<F, 64, 64>(k, &task),
                    80 => warps::attend::<F, 80, 80>(k, &task),
                    96 => warps::attend::<F, 96, 96>(k, &task),
                    112 => warps::attend::<F, 112, 112>(k, &task),
                    128 => warps::attend::<F, 128, 128>(k, &task),
                    192 if prefill.values() == 128 => warps::attend::<F, 192, 128>(k, &task),
                    192 => warps::attend::<F, 192, 192>(k, &task),
                    _ => warps::attend::<F, 256, 256>(k, &task),
                }
            });
        })
    }
}

fn at<'k, T: Scalar>(
    base: Ptr<'k, Global, T>,
    [row, plane]: [Val<'k, u32>; 2],
    [row_stride, plane_stride]: [Val<'k, u32>; 2],
) -> Ptr<'k, Global, T> {
    base.at(plane.mul_wide(plane_stride)).at(row.mul_wide(row_stride))
}
