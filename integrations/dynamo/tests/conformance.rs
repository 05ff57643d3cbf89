//! Dynamo's own conformance tests of an engine, with the models of this repository on the CPU.

use std::path::Path;
use std::time::Duration;

use dynamo_backend_common::testing::run_conformance;
use tilewright::engine::Device;
use tilewright_dynamo::engine::{EngineOptions, TilewrightEngine};

fn engine(name: &str) -> TilewrightEngine {
    TilewrightEngine::new(EngineOptions {
        model: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(name),
        name: name.to_owned(),
        device: Device::Cpu { workers: 2 },
        rows: 16,
        max_context: None,
        kv_tokens: None,
        prompt_chunk: None,
        kv: None,
        kv_events: true,
        drain: Duration::ZERO,
    })
}

#[tokio::test]
async fn tiny_llama_conforms() {
    run_conformance(|| engine("tiny-llama")).await.expect("conformance");
}

#[tokio::test]
async fn tiny_qwen3_conforms() {
    run_conformance(|| engine("tiny-qwen3")).await.expect("conformance");
}
