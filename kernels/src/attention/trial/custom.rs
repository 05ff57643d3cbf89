//! Score functions and masks of one's own that the trials know: on the device, and by definition.

use tilewright_codegen::trial::{Draw, Trial};

use super::draws::{one_of, sinks};
use crate::activation::tanh;
use crate::attention::{
    AttentionMask, CustomMask, CustomProducts, CustomScores, OwnScores, ScaledProducts, ScoreVariant, TileVisibility,
};
use crate::naive;

/// The cap of [`CustomCase::ProductCap`].
const CAP: f64 = 2.0;

/// A score function, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomCase {
    /// A slope of each head times the distance from the query is subtracted (ALiBi).
    Alibi,
    /// A query sees tokens of its own document alone.
    Documents,
    /// A query sees the first tokens of the sequence, and those up to its own.
    Prefix(u32),
    /// As `Documents`, by a mask that is asked per tile.
    DocumentMask,
    /// As `Prefix`, by a mask.
    PrefixMask(u32),
    /// A query sees that many tokens up to its own, and later ones, by a mask.
    WindowMask(u32),
    /// A query sees tokens in whose group of four its head's bit of a word is set; by a mask that
    /// shows no tile whole, after slopes.
    AlibiHeadMask(u32),
    /// Scores are capped at 2, by a function of products.
    ProductCap,
}

/// The query of a score.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedQuery {
    pub sequence: usize,
    pub head: usize,
    /// Its position.
    pub query: usize,
}

/// The numbers of sinks and of a score function, where a problem has them.
#[derive(Clone, Debug)]
pub(super) struct ScoreData {
    /// A sink of each query head.
    pub sinks: Option<Vec<f32>>,
    custom: Option<CustomData>,
}

impl ScoreData {
    /// Draws the numbers for sequences of these tokens.
    pub(super) fn draw(
        draw: &mut Draw,
        custom: Option<CustomCase>,
        scores: ScoreVariant,
        heads: u32,
        tokens: &[u32],
    ) -> ScoreData {
        let sinks = sinks(draw, scores, heads);
        ScoreData { sinks, custom: custom.map(|case| CustomData::new(case, draw, heads, tokens)) }
    }

    /// The sink of a head.
    pub(super) fn sink(&self, head: usize) -> Option<f64> {
        self.sinks.as_ref().map(|sinks| f64::from(sinks[head]))
    }

    /// The function of a query's scores, by the positions of tokens.
    pub(super) fn function(&self, query: PlacedQuery) -> Option<Box<dyn Fn(usize, f64) -> f64 + '_>> {
        let custom = self.custom.as_ref()?;
        Some(Box::new(move |token, score| custom.score(query, token, score)))
    }

    /// Passes the parameters of the function.
    pub(super) fn pass(&self, trial: Trial) -> Trial {
        self.custom.iter().fold(trial, |trial, custom| custom.pass(trial))
    }
}

/// A score function with the numbers that it reads.
#[derive(Clone, Debug)]
struct CustomData {
    case: CustomCase,
    slopes: Vec<f32>,
    /// `[sequences, width]`.
    documents: Vec<u32>,
    width: usize,
}

impl CustomCase {
    /// One of them, or none.
    pub(super) fn draw(made: &mut Draw) -> Option<CustomCase> {
        let prefix = made.between(0..=90);
        let window = made.between(1..=200);
        let cases = [
            CustomCase::Alibi,
            CustomCase::Documents,
            CustomCase::Prefix(prefix),
            CustomCase::DocumentMask,
            CustomCase::PrefixMask(prefix),
            CustomCase::WindowMask(window),
            CustomCase::AlibiHeadMask(prefix * 37),
            CustomCase::ProductCap,
        ];
        let none = made.between(0..=1) == 1;
        Some(one_of(made, &cases)).filter(|_| !none)
    }

    /// The window of a mask.
    pub(super) fn window(self) -> Option<u32> {
        if let CustomCase::WindowMask(window) = self { Some(window) } else { None }
    }

    /// The functions on the device.
    pub fn own(self) -> OwnScores<'static> {
        OwnScores { products: self.products(), scores: self.scores(), mask: self.mask() }
    }

    /// The function of products.
    fn products(self) -> Option<CustomProducts<'static>> {
        let capped = CustomProducts(&|k, scale| ScaledProducts {
            factor: k.lit(CAP as f32),
            function: Box::new(move |_, product| tanh(product * (scale * (1.0 / CAP as f32)))),
        });
        (self == CustomCase::ProductCap).then_some(capped)
    }

    /// The mask.
    fn mask(self) -> Option<CustomMask<'static>> {
        let mask = match self {
            CustomCase::Alibi | CustomCase::Documents | CustomCase::Prefix(_) | CustomCase::ProductCap => return None,
            // Documents are numbered in the order of tokens.
            CustomCase::DocumentMask => CustomMask(&|k| {
                let documents = k.global::<u32>("documents");
                let width = k.param::<u32>("width");
                let of = move |sequence, token| documents.at(sequence * width).at(token).load();
                AttentionMask {
                    tile: Box::new(move |at| {
                        let [first, last] = [at.first_query, at.last_query].map(|query| of(at.sequence, query));
                        let [begin, end] = [at.first_token, at.last_token].map(|token| of(at.sequence, token));
                        let is_one = first.eq(last) & begin.eq(end) & first.eq(begin);
                        TileVisibility { any: begin.le(last) & first.le(end), all: is_one }
                    }),
                    sees: Box::new(move |at| of(at.sequence, at.token_index()).eq(of(at.sequence, at.query_index()))),
                }
            }),
            CustomCase::PrefixMask(_) => CustomMask(&|k| {
                let prefix = k.param::<u32>("prefix");
                AttentionMask {
                    tile: Box::new(move |at| TileVisibility {
                        any: at.first_token.lt(prefix) | at.first_token.le(at.last_query),
                        all: at.last_token.lt(prefix) | at.last_token.le(at.first_query),
                    }),
                    sees: Box::new(move |at| at.token.lt(prefix) | at.token.le(at.query)),
                }
            }),
            CustomCase::WindowMask(_) => CustomMask(&|k| {
                let width = k.param::<u32>("width");
                AttentionMask {
                    tile: Box::new(move |at| TileVisibility {
                        any: (at.last_token + width).gt(at.first_query),
                        all: (at.first_token + width).gt(at.last_query),
                    }),
                    sees: Box::new(move |at| (at.token + width).gt(at.query)),
                }
            }),
            CustomCase::AlibiHeadMask(_) => CustomMask(&|k| {
                let word = k.param::<u32>("word");
                let never = k.lit(false);
                AttentionMask {
                    tile: Box::new(move |_| TileVisibility { any: !never, all: never }),
                    sees: Box::new(move |at| ((word >> ((at.token / 4 + at.head) % 32)) & 1).eq(1)),
                }
            }),
        };
        Some(mask)
    }

    /// The score modifier.
    fn scores(self) -> Option<CustomScores<'static>> {
        let scores = match self {
            CustomCase::DocumentMask
            | CustomCase::PrefixMask(_)
            | CustomCase::WindowMask(_)
            | CustomCase::ProductCap => return None,
            CustomCase::Alibi | CustomCase::AlibiHeadMask(_) => CustomScores(&|k| {
                let slopes = k.global::<f32>("slopes");
                Box::new(move |at, score| {
                    let distance = at.query.cast::<i32>() - at.token.cast::<i32>();
                    score - slopes.at(at.head).load() * distance.cast::<f32>()
                })
            }),
            CustomCase::Documents => CustomScores(&|k| {
                let documents = k.global::<u32>("documents");
                let width = k.param::<u32>("width");
                Box::new(move |at, score| {
                    let of = documents.at(at.sequence * width);
                    let same = of.at(at.token_index()).load().eq(of.at(at.query_index()).load());
                    same.select(score, f32::NEG_INFINITY)
                })
            }),
            CustomCase::Prefix(_) => CustomScores(&|k| {
                let prefix = k.param::<u32>("prefix");
                Box::new(move |at, score| {
                    (at.token.lt(prefix) | at.token.le(at.query)).select(score, f32::NEG_INFINITY)
                })
            }),
        };
        Some(scores)
    }
}

impl CustomData {
    /// The numbers of a function for sequences of these tokens.
    fn new(case: CustomCase, draw: &mut Draw, heads: u32, tokens: &[u32]) -> CustomData {
        let width = tokens.iter().copied().max().unwrap_or(0).max(1) as usize;
        let slopes = (0..heads).map(|_| one_of(draw, &[0.0, 0.0625, 0.25, 1.0])).collect();
        let mut document = 0;
        let documents = (0..width * tokens.len()).map(|_| {
            document += u32::from(draw.between(0..=19) == 0);
            document
        });
        CustomData { case, slopes, documents: documents.collect(), width }
    }

    /// The function by definition.
    fn score(&self, at: PlacedQuery, token: usize, score: f64) -> f64 {
        let PlacedQuery { sequence, head, query } = at;
        let document = |token: usize| self.documents[sequence * self.width + token.min(self.width - 1)];
        let score = match self.case {
            CustomCase::Alibi | CustomCase::AlibiHeadMask(_) => {
                score - f64::from(self.slopes[head]) * (query as f64 - token as f64)
            }
            CustomCase::ProductCap => naive::soft_cap(score, CAP),
            _ => score,
        };
        let seen = match self.case {
            CustomCase::Alibi | CustomCase::ProductCap => true,
            CustomCase::Documents | CustomCase::DocumentMask => document(token) == document(query),
            CustomCase::Prefix(prefix) | CustomCase::PrefixMask(prefix) => token < prefix as usize || token <= query,
            CustomCase::WindowMask(window) => token + window as usize > query,
            CustomCase::AlibiHeadMask(word) => word >> ((token / 4 + head) % 32) & 1 == 1,
        };
        if seen { score } else { f64::NEG_INFINITY }
    }

    /// Passes the parameters of the function.
    fn pass(&self, mut trial: Trial) -> Trial {
        if let CustomCase::Alibi | CustomCase::AlibiHeadMask(_) = self.case {
            let slopes = trial.input("slopes", &self.slopes);
            trial = trial.pass(slopes);
        }
        match self.case {
            CustomCase::Alibi | CustomCase::ProductCap => trial,
            CustomCase::Documents | CustomCase::DocumentMask => {
                let documents = trial.input("documents", &self.documents);
                trial.pass(documents).pass(self.width as u32)
            }
            CustomCase::Prefix(number)
            | CustomCase::PrefixMask(number)
            | CustomCase::WindowMask(number)
            | CustomCase::AlibiHeadMask(number) => trial.pass(number),
        }
    }
}
