//! Changes of the pages that requests find by their tokens, for a router that sends requests to the
//! server that has their prefix.

/// A change of the full KV pages that later requests can share, in the order of the changes.
///
/// A block is a full page that follows a prefix. Its number is never used twice by a batcher, and
/// means nothing to another one. [`Server::page_tokens`](super::Server::page_tokens) is its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEvent {
    /// A block can be shared from now on.
    Stored {
        /// The number of the block.
        block: u64,
        /// The block before it; none for the first block of a sequence.
        parent: Option<u64>,
        /// The tokens of the block, without those before it.
        tokens: Box<[u32]>,
    },
    /// A block was evicted. Blocks that follow it can no longer be shared, and are evicted later.
    Removed {
        /// The number of the block.
        block: u64,
    },
    /// All blocks were dropped, since a step failed.
    Cleared,
}
