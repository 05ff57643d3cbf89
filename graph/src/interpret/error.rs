//! Why a graph cannot be run.

use thiserror::Error;

use super::weights::WeightError;
use crate::dim::ExtentError;

/// Why a graph cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RunError {
    /// A weight is not there or is not what the graph declares.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// An id that a table does not have.
    #[error("{op}: id {id} is out of range; the weight `{weight}` has {count} entries")]
    Id {
        /// The op.
        op: &'static str,
        /// The id.
        id: u64,
        /// The table.
        weight: String,
        /// Its entries.
        count: usize,
    },
    /// An extent that has no number in the model.
    #[error(transparent)]
    Extent(#[from] ExtentError),
    /// An op on rows in a run of tokens, or an op on tokens in a run of blocks.
    #[error("the graph has ops on rows of blocks and is run on tokens, or the other way round")]
    Blocks,
    /// A source of rows with another number of elements than its shape has.
    #[error("{name}: {found} numbers were given; give {expected}")]
    Source {
        /// The source.
        name: &'static str,
        /// How many were given.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// A step without tokens.
    #[error("a step has no tokens; give at least 1")]
    Empty,
}
