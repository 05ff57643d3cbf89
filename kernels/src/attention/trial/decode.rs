//! A decode problem.

use half::bf16;
use tilewright_codegen::ir::Arch;
use tilewright_codegen::trial::{BufferId, Draw, Expected, Trial};
use tilewright_codegen::verify::{VerifyErrors, verify};

use super::KvTransport;
use super::bound::{AttendedValues, CachedHead, Visible};
use super::cache::Cache;
use super::custom::{CustomCase, PlacedQuery, ScoreData};
use crate::attention::decode::{Decode, Layout};
use crate::attention::prefill::Kv;
use crate::attention::trial::draws::{modifier, one_of, page_tokens, positive, scored, variant};
use crate::attention::{ScoreModifier, ScoreVariant, WithScores};
use crate::kv::Tma;

/// A decode problem, and how it is solved.
#[derive(Clone, Debug)]
pub struct DecodeCase {
    /// The kernel.
    pub decode: Decode,
    /// The transport of keys and values.
    pub way: KvTransport,
    /// Key/value heads.
    pub kv_heads: u32,
    /// Blocks that share a head.
    pub splits: u32,
    /// Blocks that stay, where they do: then every sequence has a token.
    pub staying: Option<u32>,
    /// Tokens of each sequence.
    pub tokens: Vec<u32>,
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

impl DecodeCase {
    /// Draws a random problem for one of these transports and tiles.
    pub fn draw(ways: &[KvTransport], tiles: &[u32], [made, draw]: [&mut Draw; 2]) -> DecodeCase {
        let way = one_of(made, ways);
        let paged = made.between(0..=1) == 1;
        let layout = match paged {
            true => {
                let page_tokens = page_tokens(made, way.tensor_map);
                let swizzled = page_tokens.is_multiple_of(8) && made.between(0..=1) == 1;
                Layout::Paged { page_tokens, swizzled }
            }
            false => Layout::Dense,
        };
        let depth = one_of(made, Decode::DEPTHS);
        let group = made.between(1..=16);
        let scores = ScoreVariant::NONE;
        let value_depth = (depth == 192 && made.between(0..=1) == 1).then_some(128);
        let decode = Decode { depth, value_depth, group, layout, tile: one_of(made, tiles), scores, lse: false };
        let sequences = draw.between(1..=3);
        // The parts of sixteen rows are apart from the rings where blocks stay: then large tiles
        // have no room.
        let may_stay = way.staying.is_some() && (decode.tile == 16 || group <= 8);
        let staying = (may_stay && made.between(0..=1) == 1).then(|| draw.between(1..=7));
        let tokens = (0..sequences).map(|_| match draw.between(0..=4) {
            0 => draw.between(0..=2),
            1 => (decode.tokens() * draw.between(1..=20) + draw.between(0..=2)).saturating_sub(1),
            2 => draw.between(1..=600),
            _ => draw.between(1..=130),
        });
        let tokens: Vec<u32> = tokens.map(|tokens| tokens.max(u32::from(staying.is_some()))).collect();
        let scores = variant(made);
        let custom = CustomCase::draw(made);
        let lse = made.between(0..=2) == 0;
        DecodeCase {
            decode: Decode { scores, lse, ..decode },
            way,
            staying,
            tokens,
            kv_heads: draw.between(1..=3),
            splits: draw.between(1..=6),
            sharpness: one_of(draw, &[1.0, 1.0, 4.0]),
            blank: draw.between(0..=15) == 0,
            data: draw.bits(),
            modifier: modifier(draw, scores),
            custom,
        }
    }

    /// The launch and its result, for a target.
    ///
    /// # Errors
    /// When the kernel is not valid.
    pub fn trial(&self, arch: Arch) -> Result<Trial, VerifyErrors> {
        let sinks = self.decode.scores.sinks;
        let decode = Decode { scores: ScoreVariant { sinks, ..self.modifier.variant() }, ..self.decode };
        let Decode { depth, group, layout, .. } = decode;
        let staying = self.way.staying.zip(self.staying);
        let kernel = WithScores { kernel: decode, own: self.custom.map(CustomCase::own).unwrap_or_default() };
        let kernel = verify(staying.map_or(self.way.decode, |(record, _)| record)(&kernel, arch))?;
        let mut draw = Draw::new(self.data);
        let (kv, page) = match layout {
            Layout::Dense => (Kv::HeadMajor, None),
            Layout::Paged { page_tokens, swizzled } => (Kv::Paged { page_tokens, swizzled }, Some(page_tokens)),
        };
        let keys = Cache::new(&mut draw, kv, [depth, self.kv_heads], &self.tokens);
        let values = keys.of_depth(decode.values());
        let caches = [&keys, &values];
        let lines = self.tokens.len() * self.kv_heads as usize;
        let queries = lines * group as usize;
        let mut q = draw.floats(queries * depth as usize, bf16::from_f64);
        let mut pools = caches.map(|cache| cache.fill(&mut draw));
        if self.blank {
            positive(&mut q);
            keys.blank(&mut pools[0]);
        }
        // Tiles that a window hides are not read.
        let tile = decode.tokens();
        let first_read = |&tokens: &u32| self.modifier.seen(tokens as usize).start as u32 / tile * tile;
        let hidden: Vec<u32> = self.tokens.iter().map(first_read).collect();
        pools.iter_mut().zip(caches).for_each(|(pool, cache)| cache.hide(pool, &hidden));
        let scale = self.sharpness / f64::from(depth).sqrt();
        let heads = self.kv_heads * group;
        let data = ScoreData::draw(&mut draw, self.custom, decode.scores, heads, &self.tokens);

        let items = [self.splits, self.kv_heads, self.tokens.len() as u32];
        let grid = staying.map_or(items, |(_, blocks)| [blocks, 1, 1]);
        let mut trial = Trial::new(kernel, grid).note(format!(
            "{} x {} heads of {} tokens, {} splits, staying {:?}, {:?}, {:?}, {:?}",
            group,
            self.kv_heads,
            join(&self.tokens),
            self.splits,
            self.staying,
            self.modifier,
            self.custom,
            decode
        ));
        let q_at = trial.input("q", &q);
        let names = ["keys", "values"];
        let at = [0, 1].map(|which: usize| trial.input(names[which], &caches[which].stored(&pools[which])));
        let tokens = trial.input("tokens", &self.tokens);
        let table = trial.input("table", &keys.table);
        let parts = queries * self.splits as usize;
        let acc = trial.scratch::<f32>("acc", parts * decode.values() as usize);
        let stats = trial.scratch::<f32>("stats", parts * 2);
        let zeros = vec![0u32; lines];
        let done = trial.changed("done", &zeros, Expected::exact(&zeros));
        let result = self.result(caches, &q, &pools, scale, &data);
        let out = trial.output("out", result.expected());
        let lse = decode.lse.then(|| trial.output("lse", result.expected_logs()));

        let pass = |trial: Trial, (buffer, cache): (BufferId, &Cache)| {
            if self.way.tensor_map {
                trial.map(buffer, cache.shape(Tma::box_rows(self.decode.tokens(), page)))
            } else {
                trial.pass(buffer)
            }
        };
        let trial = at.into_iter().zip(caches).fold(trial.pass(q_at), pass).pass(tokens).pass(table).pass(keys.width);
        let trial = scored(trial.pass(keys.plane_stride()), scale, self.modifier, data.sinks.as_deref());
        let trial = lse.into_iter().fold(trial.pass(acc).pass(stats).pass(done).pass(out), Trial::pass);
        let trial = if staying.is_some() { items.into_iter().fold(trial, Trial::pass) } else { trial };
        Ok(data.pass(trial))
    }

    /// `[sequences, kv_heads·group, columns of a value]`.
    fn result(
        &self,
        caches: [&Cache; 2],
        q: &[bf16],
        pools: &[Vec<bf16>; 2],
        scale: f64,
        data: &ScoreData,
    ) -> AttendedValues {
        let Decode { depth, group, .. } = self.decode;
        let columns = self.decode.values();
        let rows = q.len() / depth as usize;
        let mut result = AttendedValues::new(rows * columns as usize, columns);
        let mut lines = q.chunks((group * depth) as usize).enumerate();
        for (sequence, &tokens) in self.tokens.iter().enumerate() {
            for head in 0..self.kv_heads {
                let of = CachedHead::new(
                    [depth, columns],
                    [0, 1].map(|which: usize| caches[which].read(&pools[which], sequence, head)),
                );
                for (line, rows) in lines.by_ref().take(1) {
                    for (row, q) in rows.chunks(depth as usize).enumerate() {
                        let q: Vec<f64> = q.iter().map(|x| x.to_f64()).collect();
                        let at = (line * group as usize + row) * columns as usize;
                        let head = (head * group) as usize + row;
                        let query = (tokens as usize).saturating_sub(1);
                        let custom = data.function(PlacedQuery { sequence, head, query });
                        let visible = Visible {
                            sink: data.sink(head),
                            custom: custom.as_deref(),
                            ..Visible::new(self.modifier, tokens, scale)
                        };
                        result.attend(at, &q, &of, visible);
                    }
                }
            }
        }
        result
    }
}

fn join(counts: &[u32]) -> String {
    counts.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
