//! The flows that are known by name, each in a file of its own.

mod block_sparse;
mod calibrate;
mod centered;
mod double_sparsity;
mod gqa_block_sparse;
mod gqa_h2o;
mod h2o;
mod h2o_tokens;
mod keydiff;
mod knorm;
mod lserve;
mod lserve_centroid;
mod masked_quest;
mod moba;
mod q_filter;
mod quest;
mod running_average;
mod streaming_llm;
mod value_energy;

use thiserror::Error;

pub use block_sparse::BlockSparse;
pub use calibrate::{CalibrateError, CalibrationSample};
pub use centered::Centered;
pub use double_sparsity::DoubleSparsity;
pub use gqa_block_sparse::GqaBlockSparse;
pub use gqa_h2o::GqaH2o;
pub use h2o::H2o;
pub use h2o_tokens::H2oTokens;
pub use keydiff::Keydiff;
pub use knorm::Knorm;
pub use lserve::Lserve;
pub use lserve_centroid::LserveCentroid;
pub use masked_quest::MaskedQuest;
pub use moba::Moba;
pub use q_filter::QFilter;
pub use quest::Quest;
pub use running_average::RunningAverage;
pub use streaming_llm::StreamingLlm;
pub use value_energy::ValueEnergy;

use crate::error::FlowErrors;
use crate::flow::{Traced, trace};

/// A flow that is known by name, with the constants that it ships with.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// Its name.
    pub name: &'static str,
    /// A one-line description of its fields.
    pub about: &'static str,
    trace: fn() -> Result<Traced, FlowErrors>,
}

impl Algorithm {
    /// Traces it.
    ///
    /// # Errors
    /// [`FlowErrors`]; the flows that ship have none.
    pub fn trace(&self) -> Result<Traced, FlowErrors> {
        (self.trace)()
    }
}

/// A name that no flow has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no flow `{name}`; there are {known}")]
pub struct UnknownFlow {
    name: String,
    known: String,
}

macro_rules! algorithms {
    ($($name:literal $about:literal $flow:expr;)*) => {
        /// Every flow that is known by name.
        pub const ALL: &[Algorithm] = &[$(Algorithm { name: $name, about: $about, trace: || trace(&$flow) },)*];
    };
}

algorithms! {
    "block-sparse" "mean key · mean query" BlockSparse;
    "gqa-block-sparse" "largest weight of a query head on the mean key" GqaBlockSparse;
    "quest" "upper bound of the logits from the keys' box" Quest;
    "masked-quest" "quest without the first 8 features" MaskedQuest { features: 8 };
    "lserve" "quest's bound of the best 16 tokens of a block" Lserve { tokens: 16 };
    "lserve-centroid" "mean key of the best 16 tokens of a block" LserveCentroid { tokens: 16 };
    "centered" "block-sparse with scores less their mean" Centered;
    "running-average" "block-sparse, half of the last score stays" RunningAverage { decay: 0.5 };
    "value-energy" "block-sparse times the norm of the values" ValueEnergy;
    "h2o" "mean key's score and quest's bound, half each" H2o { average: 0.5, peak: 0.5 };
    "gqa-h2o" "h2o by query head" GqaH2o { average: 0.5, peak: 0.5 };
    "h2o-tokens" "attention weights gathered over steps, blocks of one token" H2oTokens { decay: 1.0 - 1.0 / 64.0 };
    "streaming-llm" "the first and the latest blocks" StreamingLlm;
    "knorm" "keys of small norm" Knorm;
    "keydiff" "keys that point away from the mean direction" Keydiff;
    "q-filter" "projection on the queries' direction, a parameter" QFilter;
    "double-sparsity" "logits from 16 channels, a parameter" DoubleSparsity { channels: 16 };
    "moba" "mean key · query of the head that wants it most" Moba;
}

/// The flow of a name.
///
/// # Errors
/// [`UnknownFlow`], which lists those there are.
pub fn named(name: &str) -> Result<&'static Algorithm, UnknownFlow> {
    ALL.iter().find(|algorithm| algorithm.name == name).ok_or_else(|| {
        let known = ALL.iter().map(|algorithm| algorithm.name).collect::<Vec<_>>().join(", ");
        UnknownFlow { name: name.into(), known }
    })
}
