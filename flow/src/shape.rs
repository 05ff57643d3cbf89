//! The extents of a model's attention that a flow is bound to.

use std::fmt;

/// Heads and blocks of one attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelShape {
    /// Key heads. Each selects its own blocks.
    pub kv_heads: usize,
    /// Query heads that share a key head.
    pub group: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Tokens of a block, the unit of a selection.
    pub block_tokens: usize,
}

impl fmt::Display for ModelShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ModelShape { kv_heads, group, head_dim, block_tokens } = self;
        write!(f, "G = {group}, D = {head_dim}, B = {block_tokens}, {kv_heads} key heads")
    }
}
