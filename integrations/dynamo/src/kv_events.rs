//! KV events: which blocks of tokens this worker holds, for the frontend's KV-aware router.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use dynamo_backend_common::{DynamoError, KvEventPublisher, KvEventSource};
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, compute_block_hash_for_seq, compute_next_seq_hash,
};
use tilewright::engine::KvEvent;

/// The rank of a worker that is not data parallel.
pub const RANK: u32 = 0;

/// A hash of all tokens up to the end of a block.
type PrefixHash = u64;

/// Passes the engine's KV events to Dynamo's publisher, once there is one.
#[derive(Default)]
pub struct KvEventFeed {
    publisher: Arc<OnceLock<Arc<KvEventPublisher>>>,
    blocks: Blocks,
}

/// The source of events that Dynamo asks an engine for, and the feed that fills it.
pub fn source(publisher: &Arc<OnceLock<Arc<KvEventPublisher>>>) -> KvEventSource {
    let slot = Arc::clone(publisher);
    let on_ready = move |publisher: Arc<KvEventPublisher>| -> Result<(), DynamoError> {
        // A second publisher would be one of the same worker.
        let _ = slot.set(publisher);
        Ok(())
    };
    KvEventSource::Push { on_ready: Box::new(on_ready), dp_rank: RANK }
}

impl KvEventFeed {
    /// A feed of a publisher that is not there yet.
    pub fn new(publisher: &Arc<OnceLock<Arc<KvEventPublisher>>>) -> KvEventFeed {
        KvEventFeed { publisher: Arc::clone(publisher), blocks: Blocks::default() }
    }

    /// Publishes events in their order.
    pub fn publish(&mut self, events: Vec<KvEvent>) {
        let events: Vec<KvCacheEventData> = events.into_iter().filter_map(|event| self.blocks.data(event)).collect();
        // No request runs before Dynamo has made the publisher.
        let Some(publisher) = self.publisher.get() else { return };
        let numbered = |data| KvCacheEvent { event_id: publisher.next_event_id(), data, dp_rank: RANK };
        if publisher.publish_batch(events.into_iter().map(numbered).collect()).is_err() {
            tracing::debug!("the publisher of KV events has ended");
        }
    }
}

/// The blocks of the engine, with the hashes by which the router names them.
///
/// The router needs the same name from every worker, so it is a hash of all tokens up to the end of
/// the block. The engine's own numbers are those of one worker.
#[derive(Debug, Default)]
struct Blocks {
    hashes: HashMap<u64, PrefixHash>,
    /// Blocks of each hash. There are two where a block was evicted and computed again while one
    /// that follows it was not evicted.
    holders: HashMap<PrefixHash, usize>,
}

impl Blocks {
    /// An event in the router's terms; none where the router's view does not change.
    fn data(&mut self, event: KvEvent) -> Option<KvCacheEventData> {
        match event {
            KvEvent::Stored { block, parent, tokens } => {
                let size = u32::try_from(tokens.len()).ok()?;
                let hash = *compute_block_hash_for_seq(&tokens, size, BlockHashOptions::default()).first()?;
                let parent = match parent {
                    Some(parent) => Some(*self.hashes.get(&parent)?),
                    None => None,
                };
                let name = parent.map_or(hash.0, |parent| compute_next_seq_hash(parent, hash));
                self.hashes.insert(block, name);
                *self.holders.entry(name).or_default() += 1;
                Some(KvCacheEventData::Stored(KvCacheStoreData {
                    parent_hash: parent.map(ExternalSequenceBlockHash),
                    start_position: None,
                    blocks: vec![KvCacheStoredBlockData {
                        block_hash: ExternalSequenceBlockHash(name),
                        tokens_hash: hash,
                        mm_extra_info: None,
                    }],
                }))
            }
            KvEvent::Removed { block } => {
                let name = self.hashes.remove(&block)?;
                let holders = self.holders.get_mut(&name)?;
                *holders -= 1;
                if *holders > 0 {
                    return None;
                }
                self.holders.remove(&name);
                let block_hashes = vec![ExternalSequenceBlockHash(name)];
                Some(KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }))
            }
            KvEvent::Cleared => {
                *self = Blocks::default();
                Some(KvCacheEventData::Cleared)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dynamo_kv_router::protocols::compute_seq_hash_for_block;

    use super::*;

    const PROMPT: [u32; 8] = [5, 6, 7, 8, 9, 10, 11, 12];

    fn stored(block: u64, parent: Option<u64>, tokens: &[u32]) -> KvEvent {
        KvEvent::Stored { block, parent, tokens: tokens.into() }
    }

    #[test]
    fn blocks_have_the_hashes_by_which_the_router_looks_for_a_prompt() {
        let local = compute_block_hash_for_seq(&PROMPT, 4, BlockHashOptions::default());
        let names = compute_seq_hash_for_block(&local);
        let mut blocks = Blocks::default();
        let events = [stored(3, None, &PROMPT[..4]), stored(4, Some(3), &PROMPT[4..])];
        for (at, event) in events.into_iter().enumerate() {
            let Some(KvCacheEventData::Stored(stored)) = blocks.data(event) else { panic!("a stored block") };
            let parent = at.checked_sub(1).map(|before| ExternalSequenceBlockHash(names[before]));
            assert_eq!(stored.parent_hash, parent);
            assert_eq!(stored.blocks[0].tokens_hash, local[at]);
            assert_eq!(stored.blocks[0].block_hash, ExternalSequenceBlockHash(names[at]));
        }
    }

    #[test]
    fn a_name_is_removed_with_its_last_block() {
        let mut blocks = Blocks::default();
        assert!(blocks.data(stored(1, None, &PROMPT)).is_some());
        assert!(blocks.data(stored(2, None, &PROMPT)).is_some());
        assert_eq!(blocks.data(KvEvent::Removed { block: 1 }), None);
        assert!(matches!(blocks.data(KvEvent::Removed { block: 2 }), Some(KvCacheEventData::Removed(_))));
        assert_eq!(blocks.data(KvEvent::Removed { block: 2 }), None);
    }
}
