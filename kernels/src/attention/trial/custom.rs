//! Score functions of one's own that the trials know: on the device, and by definition.

use tilewright_codegen::trial::{Draw, Trial};

use super::draws::{one_of, sinks};
use crate::attention::{CustomScores, ScoreVariant};

/// A score function, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomCase {
    /// A slope of each head times the distance from the query is subtracted (ALiBi).
    Alibi,
    /// A query sees tokens of its own document alone.
    Documents,
    /// A query sees the first tokens of the sequence, and those up to its own.
    Prefix(u32),
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
        let cases = [Some(CustomCase::Alibi), Some(CustomCase::Documents), Some(CustomCase::Prefix(prefix))];
        let none = made.between(0..=1) == 1;
        one_of(made, &cases).filter(|_| !none)
    }

    /// The function on the device.
    pub fn scores(self) -> CustomScores<'static> {
        match self {
            CustomCase::Alibi => CustomScores(&|k| {
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
        }
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
        let seen = match self.case {
            CustomCase::Alibi => return score - f64::from(self.slopes[head]) * (query as f64 - token as f64),
            CustomCase::Documents => document(token) == document(query),
            CustomCase::Prefix(prefix) => token < prefix as usize || token <= query,
        };
        if seen { score } else { f64::NEG_INFINITY }
    }

    /// Passes the parameters of the function.
    fn pass(&self, mut trial: Trial) -> Trial {
        match self.case {
            CustomCase::Alibi => {
                let slopes = trial.input("slopes", &self.slopes);
                trial.pass(slopes)
            }
            CustomCase::Documents => {
                let documents = trial.input("documents", &self.documents);
                trial.pass(documents).pass(self.width as u32)
            }
            CustomCase::Prefix(prefix) => trial.pass(prefix),
        }
    }
}
