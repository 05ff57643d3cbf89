//! A prefill problem.

use half::bf16;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{Draw, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::KvTransport;
use super::bound::{AttendedValues, CachedHead, Visible};
use super::cache::{Cache, starts};
use super::custom::{CustomCase, PlacedQuery, ScoreData};
use crate::attention::prefill::{Kv, Prefill, QueryLayout, hopper, warps};
use crate::attention::trial::draws::{modifier, one_of, page_tokens, positive, scored, variant};
use crate::attention::{ScoreModifier, ScoreVariant, WithScores};
use crate::kv::Tma;

/// The multiply instruction, and the transport of keys and values.
#[derive(Clone, Copy, Debug)]
pub enum PrefillKernel {
    /// By `wgmma`, through tensor maps.
    Hopper,
    /// By `mma.sync`.
    Warps(KvTransport),
}

/// A prefill problem, and how it is solved.
#[derive(Clone, Debug)]
pub struct PrefillCase {
    /// The kernel.
    pub prefill: Prefill,
    /// The multiply instruction and the transport.
    pub way: PrefillKernel,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Queries and tokens of each sequence; as many queries of each where heads come first.
    pub sequences: Vec<(u32, u32)>,
    /// Times `1/√depth`: the scale of the scores.
    pub sharpness: f64,
    /// Whether every product is −∞: the result is zeros, or with a soft cap the mean of the values.
    pub blank: bool,
    /// The score modifier; kernels are recorded with the same modifiers.
    pub modifier: ScoreModifier,
    /// The score function of one's own, if there is one.
    pub custom: Option<CustomCase>,
    /// Seed of the numbers.
    pub data: u64,
}

impl PrefillCase {
    /// Draws a random problem for one of these kernels.
    pub fn draw(ways: &[PrefillKernel], [made, draw]: [&mut Draw; 2]) -> PrefillCase {
        let depth = one_of(made, Prefill::DEPTHS);
        // Two stages of the widest tiles fill the shared memory of sm_80.
        let way = if depth == 256 { ways[0] } else { one_of(made, ways) };
        let maps = match way {
            PrefillKernel::Hopper => true,
            PrefillKernel::Warps(way) => way.tensor_map,
        };
        let page_tokens = page_tokens(made, maps);
        let swizzled = page_tokens.is_multiple_of(8) && made.between(0..=1) == 1;
        let paged = Kv::Paged { page_tokens, swizzled };
        let value_depth = (depth == 192 && made.between(0..=1) == 1).then_some(128);
        let prefill = Prefill {
            depth,
            value_depth,
            group: one_of(made, &[1, 1, 2, 3, 4]),
            causal: made.between(0..=1) == 1,
            queries: one_of(made, &[QueryLayout::HeadMajor, QueryLayout::Ragged]),
            kv: one_of(made, &[Kv::HeadMajor, Kv::Ragged, paged]),
            scores: ScoreVariant::NONE,
            lse: false,
        };
        let scores = variant(made);
        let scores = ScoreVariant { window: scores.window && prefill.causal, ..scores };
        let prefill = Prefill { scores, ..prefill };
        let custom = CustomCase::draw(made);
        let prefill = Prefill { lse: made.between(0..=2) == 0, ..prefill };
        let tile = |draw: &mut Draw| (64 * draw.between(1..=3) + draw.between(0..=2)).saturating_sub(1);
        let extent = |draw: &mut Draw| match draw.between(0..=3) {
            0 => draw.between(1..=9),
            1 => tile(draw),
            _ => draw.between(1..=260),
        };
        let same = extent(draw);
        let sequences = (0..draw.between(1..=2)).map(|_| {
            let queries = if prefill.queries == QueryLayout::Ragged { extent(draw) } else { same };
            // As often as not all tokens are asked for; sometimes there are fewer than queries, or
            // none.
            let tokens = match draw.between(0..=5) {
                0..=2 => queries,
                3 => queries + extent(draw),
                _ => extent(draw) - draw.between(0..=1),
            };
            (queries, tokens)
        });
        let sequences = sequences.collect();
        let kv_heads = if prefill.group > 2 { 1 } else { draw.between(1..=2) };
        let sharpness = one_of(draw, &[1.0, 1.0, 4.0]);
        let blank = draw.between(0..=15) == 0;
        let data = draw.bits();
        let modifier = modifier(draw, scores);
        PrefillCase { prefill, way, kv_heads, sequences, sharpness, blank, modifier, custom, data }
    }

    /// The launch and its result, for a target.
    ///
    /// # Errors
    /// When the kernel is not valid.
    pub fn trial(&self, arch: Arch) -> Result<Trial, VerifyErrors> {
        let sinks = self.prefill.scores.sinks;
        let prefill = Prefill { scores: ScoreVariant { sinks, ..self.modifier.variant() }, ..self.prefill };
        let kernel = WithScores { kernel: prefill, own: self.custom.map(CustomCase::own).unwrap_or_default() };
        let (kernel, block_rows, keys, maps) = match self.way {
            PrefillKernel::Hopper => (kernel.record_hopper(), kernel.hopper_rows(), prefill.tuning().keys, true),
            PrefillKernel::Warps(way) => ((way.prefill)(&kernel, arch), warps::BLOCK_ROWS, warps::TILE, way.tensor_map),
        };
        let kernel = verify(kernel)?;
        let page = match prefill.kv {
            Kv::HeadMajor | Kv::Ragged => None,
            Kv::Paged { page_tokens, .. } => Some(page_tokens),
        };
        let mut draw = Draw::new(self.data);
        let tokens: Vec<u32> = self.sequences.iter().map(|s| s.1).collect();
        let keys_at = Cache::new(&mut draw, prefill.kv, [prefill.depth, self.kv_heads], &tokens);
        let values_at = keys_at.of_depth(prefill.values());
        let caches = [&keys_at, &values_at];
        let queries = QueryArrangement::of(self, prefill.depth);
        let results = QueryArrangement::of(self, prefill.values());
        let mut q = draw.floats(queries.elements(), bf16::from_f64);
        let mut pools = caches.map(|cache| cache.fill(&mut draw));
        if self.blank {
            positive(&mut q);
            keys_at.blank(&mut pools[0]);
        }
        // Tiles that a window hides from a sequence's first query are not read, be it of the kernel
        // or of a mask.
        let hides = [self.modifier.window, self.custom.and_then(CustomCase::window)];
        let first_read = |&(queries, tokens): &(u32, u32)| {
            let end = (1 + tokens).saturating_sub(queries).min(tokens);
            let start = |&window: &Option<u32>| ScoreModifier { window, ..self.modifier }.seen(end as usize).start;
            hides.iter().map(start).max().unwrap_or(0) as u32 / keys * keys
        };
        let hidden: Vec<u32> = self.sequences.iter().map(first_read).collect();
        pools.iter_mut().zip(caches).for_each(|(pool, cache)| cache.hide(pool, &hidden));
        let scale = self.sharpness / f64::from(prefill.depth).sqrt();
        let most = self.sequences.iter().map(|s| s.0).max().unwrap_or(0);
        // Sometimes a row of blocks has nothing to do.
        let tiles = most.div_ceil(block_rows) + draw.between(0..=4) / 4;
        let sharing = draw.between(1..=queries.heads);
        let data = ScoreData::draw(&mut draw, self.custom, prefill.scores, queries.heads, &tokens);

        let grid = [tiles * queries.heads, self.sequences.len() as u32, 1];
        let mut trial = Trial::new(kernel, grid).note(format!(
            "{} heads, queries and tokens {:?}, {:?}, {:?}, {prefill:?}",
            queries.heads, self.sequences, self.modifier, self.custom
        ));
        let q_at = trial.input("q", &q);
        let names = ["keys", "values"];
        let at = [0, 1].map(|which: usize| trial.input(names[which], &caches[which].stored(&pools[which])));
        let query_starts = trial.input("query_starts", &starts(self.sequences.iter().map(|s| s.0)));
        let token_starts = trial.input("token_starts", &starts(tokens));
        let table = trial.input("table", &keys_at.table);
        let result = self.result([&queries, &results], caches, &q, &pools, scale, &data);
        let out = trial.output("out", result.expected());
        let lse = prefill.lse.then(|| trial.output("lse", result.expected_logs()));

        let trial = match self.way {
            PrefillKernel::Hopper => trial.map(q_at, queries.shape()),
            PrefillKernel::Warps(_) => trial.pass(q_at),
        };
        let pass = |trial: Trial, (buffer, cache): (_, &Cache)| match maps {
            true => trial.map(buffer, cache.shape(Tma::box_rows(keys, page))),
            false => trial.pass(buffer),
        };
        let trial = at.into_iter().zip(caches).fold(trial, pass).pass(query_starts).pass(token_starts).pass(table);
        let trial =
            trial.pass(keys_at.width).pass(keys_at.plane_stride()).pass(tiles).pass(queries.heads).pass(sharing);
        let trial = scored(trial, scale, self.modifier, data.sinks.as_deref()).pass(out);
        Ok(data.pass(lse.into_iter().fold(trial, Trial::pass)))
    }

    fn result(
        &self,
        [queries, results]: [&QueryArrangement; 2],
        caches: [&Cache; 2],
        q: &[bf16],
        pools: &[Vec<bf16>; 2],
        scale: f64,
        data: &ScoreData,
    ) -> AttendedValues {
        let Prefill { depth, group, causal, .. } = self.prefill;
        let depths = [depth, self.prefill.values()];
        let mut result = AttendedValues::new(results.elements(), depths[1]);
        for (sequence, &(count, tokens)) in self.sequences.iter().enumerate() {
            for head in 0..self.kv_heads {
                let read = |which: usize| caches[which].read(&pools[which], sequence, head);
                let of = CachedHead::new(depths, [0, 1].map(read));
                for (row_head, query) in
                    (head * group..(head + 1) * group).flat_map(|h| (0..count).map(move |i| (h, i)))
                {
                    let at = queries.place(sequence, row_head, query);
                    let q: Vec<f64> = q[at..at + depth as usize].iter().map(|x| x.to_f64()).collect();
                    let seen = if causal { (query + 1 + tokens).saturating_sub(count) } else { tokens };
                    let position = (query + tokens).saturating_sub(count) as usize;
                    let custom = data.function(PlacedQuery { sequence, head: row_head as usize, query: position });
                    let mut visible = Visible {
                        sink: data.sink(row_head as usize),
                        custom: custom.as_deref(),
                        ..Visible::new(self.modifier, seen, scale)
                    };
                    // Values that a mask hides are not numbers.
                    if let Some(window) = self.custom.and_then(CustomCase::window) {
                        let first = (position + 1).saturating_sub(window as usize);
                        visible.tokens.start = visible.tokens.start.max(first).min(visible.tokens.end);
                    }
                    result.attend(results.place(sequence, row_head, query), &q, &of, visible);
                }
            }
        }
        result
    }
}

/// The layout of queries and results.
struct QueryArrangement {
    depth: u32,
    heads: u32,
    rows: u32,
    planes: u32,
    /// Elements from row to row, from plane to plane.
    strides: [u32; 2],
    /// Row and plane of the first query of each sequence.
    first: Vec<[u32; 2]>,
}

impl QueryArrangement {
    fn of(case: &PrefillCase, depth: u32) -> QueryArrangement {
        let heads = case.kv_heads * case.prefill.group;
        let counts = case.sequences.iter().map(|s| s.0);
        match case.prefill.queries {
            QueryLayout::HeadMajor => {
                let rows = case.sequences[0].0;
                let sequences = case.sequences.len() as u32;
                let first = (0..sequences).map(|sequence| [0, sequence * heads]).collect();
                QueryArrangement {
                    depth,
                    heads,
                    rows,
                    planes: sequences * heads,
                    strides: [depth, rows * depth],
                    first,
                }
            }
            QueryLayout::Ragged => {
                let first = starts(counts.clone()).into_iter().map(|row| [row, 0]).collect();
                QueryArrangement {
                    depth,
                    heads,
                    rows: counts.sum(),
                    planes: heads,
                    strides: [heads * depth, depth],
                    first,
                }
            }
        }
    }

    fn elements(&self) -> usize {
        (self.rows * self.planes * self.depth) as usize
    }

    fn place(&self, sequence: usize, head: u32, query: u32) -> usize {
        let [row, plane] = self.first[sequence];
        ((row + query) * self.strides[0] + (plane + head) * self.strides[1]) as usize
    }

    fn shape(&self) -> tilewright_codegen::trial::TensorShape {
        Tma::map(self.depth, [self.rows, self.planes], self.strides, hopper::ROWS, false)
    }
}
