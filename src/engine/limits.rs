//! Limits of a step's rows.

/// Rows of the programs that feed prompts on the host, largest first.
pub(super) const CHUNKS: [usize; 3] = [32, 8, 1];

/// Least rows of a graph of launches: fewer cost as much.
pub(super) const LEAST_GRAPH: usize = 32;

/// Most rows of a step on a device: those of an MMA's operand.
pub(super) const MOST_ROWS: usize = 16;

/// Rows of a chunk of a prompt that a graph feeds which has no weights of its own.
pub(super) const PACKED_CHUNK: usize = 64;
