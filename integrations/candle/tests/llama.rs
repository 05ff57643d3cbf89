//! The Llama of the integration against candle-transformers' own, on the repository's small model.
#![cfg(feature = "llama")]

use std::path::Path;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{self as candle_llama, LlamaConfig};
use tilewright_candle::{Context, llama};

/// Differences of bf16 and f32 logits, as a share of the largest logit.
const BOUND: f32 = 0.03;

#[test]
fn logits_agree_with_candle() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/tiny-llama");
    let config: LlamaConfig = serde_json::from_str(&std::fs::read_to_string(folder.join("config.json"))?)
        .map_err(candle_core::Error::wrap)?;
    let config = config.into_config(false);
    let device = Device::Cpu;
    let weights = candle_core::safetensors::load(folder.join("model.safetensors"), &device)?;
    let context = Context::simulated(1)?;

    let vb = |dtype| VarBuilder::from_tensors(weights.clone(), dtype, &device);
    let expected_model = candle_llama::Llama::load(vb(DType::F32), &config)?;
    let mut expected_cache = candle_llama::Cache::new(true, DType::F32, &config, &device)?;
    let model = llama::Llama::load(&context, vb(DType::BF16), &config)?;
    let mut cache = llama::Cache::new(&context, &config, 1, 32, &device)?;

    // More than 16 rows: the prompt runs through matrix products, later steps through packed weights.
    let prompt: Vec<u32> = (0..18).map(|i| 7 + i * 101).collect();
    let (mut tokens, mut position) = (prompt, 0);
    for step in 0..3 {
        let input = Tensor::new(tokens.as_slice(), &device)?.unsqueeze(0)?;
        let expected = expected_model.forward(&input, position, &mut expected_cache)?;
        let found = model.forward(&input, position, &mut cache)?;
        position += tokens.len();
        let allowed = BOUND * expected.abs()?.max_all()?.to_scalar::<f32>()?;
        let error = (&found - &expected)?.abs()?.max_all()?.to_scalar::<f32>()?;
        assert!(error <= allowed, "step {step}: error {error}, allowed {allowed}");
        let mut sorted = expected.squeeze(0)?.to_vec1::<f32>()?;
        sorted.sort_by(|a, b| b.total_cmp(a));
        tokens = llama::Llama::greedy(&expected)?;
        if sorted[0] - sorted[1] > 2.0 * error {
            assert_eq!(llama::Llama::greedy(&found)?, tokens, "step {step}");
        }
    }
    let full = Tensor::new(&[[1u32; 13]], &device)?;
    let refused = model.forward(&full, position, &mut cache).map_or_else(|error| error.to_string(), |_| String::new());
    assert!(refused.contains("the KV cache has 32 positions"), "{refused}");
    Ok(())
}
