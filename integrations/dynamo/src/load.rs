//! Publishes how many KV pages a worker holds: a load signal for the router, and gauges.

use std::sync::{Arc, Weak};
use std::time::Duration;

use dynamo_backend_common::{ComponentSnapshot, MetricsBindings, SnapshotPublisher};
use tilewright::engine::BatcherLoad;

use crate::kv_events::RANK;

/// The time between two snapshots.
const INTERVAL: Duration = Duration::from_millis(250);

/// A worker whose load can be read.
pub trait Loaded: Send + Sync + 'static {
    /// Requests, pages and counters as of the last step.
    fn load(&self) -> BatcherLoad;
}

/// Publishes the load of a worker from the time at which Dynamo has made the publisher until the
/// worker is gone.
pub fn bindings(worker: Weak<impl Loaded>) -> MetricsBindings {
    let on_ready = move |publisher: Arc<SnapshotPublisher>| {
        tokio::spawn(async move {
            let mut interval = tokio::time::interval(INTERVAL);
            loop {
                interval.tick().await;
                let Some(load) = worker.upgrade().map(|worker| worker.load()) else { return };
                publisher.publish(RANK, snapshot(&load));
            }
        });
        Ok(())
    };
    MetricsBindings { dp_ranks: vec![RANK], on_publisher_ready: Some(Box::new(on_ready)) }
}

fn snapshot(load: &BatcherLoad) -> ComponentSnapshot {
    let statistics = &load.statistics;
    // Tokens of prompts are computed, which is a row, or found in a page.
    let seen = statistics.rows + statistics.shared_tokens;
    ComponentSnapshot {
        kv_used_blocks: load.held_pages as u64,
        kv_total_blocks: load.pages as u64,
        gpu_cache_usage: if load.pages > 0 { load.held_pages as f32 / load.pages as f32 } else { 0.0 },
        kv_cache_hit_rate: (seen > 0).then(|| statistics.shared_tokens as f32 / seen as f32),
        dp_rank: RANK,
    }
}
