//! Decodes greedily with candle's own Llama and with tilewright's ops, and compares the tokens.
//!
//! Both compute in bf16 on a GPU, so that a token may differ where logits are close. A second run of
//! tilewright's model is fed candle's tokens: it counts the positions at which both choose the same one,
//! and says how close candle's logits are at the others.
//!
//! ```text
//! cargo run --release --example decode -- FOLDER [TOKENS] [PROMPT_TOKEN...]
//! cargo run --release --features cuda --example decode -- FOLDER 128 1 2 3
//! ```
//!
//! Without the feature `cuda`, candle computes in f32 on the CPU, and tilewright's ops run in its
//! simulator: use a small model such as `models/tiny-llama`.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{self as candle_llama, LlamaConfig};
use tilewright_candle::{Context, llama};

/// Decodes `count` tokens. Returns them with the time of the steps after the prompt.
fn decode(
    prompt: &[u32],
    count: usize,
    device: &Device,
    mut forward: impl FnMut(&Tensor, usize) -> candle_core::Result<Tensor>,
) -> candle_core::Result<(Vec<u32>, Duration)> {
    let (mut tokens, mut position, mut input) = (Vec::new(), 0, prompt.to_vec());
    let mut start = Instant::now();
    while tokens.len() < count {
        let logits = forward(&Tensor::new(input.as_slice(), device)?.unsqueeze(0)?, position)?;
        position += input.len();
        input = llama::Llama::greedy(&logits)?;
        tokens.extend(&input);
        // The first decode step compiles kernels: it is not part of the time.
        if tokens.len() <= 2 {
            start = Instant::now();
        }
    }
    Ok((tokens, start.elapsed()))
}

/// The tokens and the logits of steps after a prompt, each fed the token of `given`, or the likeliest.
fn logits(
    prompt: &[u32],
    count: usize,
    given: Option<&[u32]>,
    device: &Device,
    mut forward: impl FnMut(&Tensor, usize) -> candle_core::Result<Tensor>,
) -> candle_core::Result<(Vec<u32>, Vec<Tensor>)> {
    let (mut tokens, mut rows, mut position, mut input) = (Vec::new(), Vec::new(), 0, prompt.to_vec());
    for step in 0..count {
        let row = forward(&Tensor::new(input.as_slice(), device)?.unsqueeze(0)?, position)?.to_dtype(DType::F32)?;
        position += input.len();
        let token = llama::Llama::greedy(&row)?[0];
        tokens.push(token);
        input = vec![given.map_or(token, |given| given[step])];
        rows.push(row.flatten_all()?);
    }
    Ok((tokens, rows))
}

/// Says at how many positions both choose the same token, and how close the logits are elsewhere.
fn compare(expected: &[u32], found: &[u32], rows: &[Tensor]) -> candle_core::Result<()> {
    let mut apart = 0f32;
    let mut equal = 0;
    for ((&expected, &found), row) in expected.iter().zip(found).zip(rows) {
        let row: Vec<f32> = row.to_vec1()?;
        let largest = row.iter().fold(0f32, |most, x| most.max(x.abs()));
        equal += usize::from(expected == found);
        apart = apart.max((row[expected as usize] - row[found as usize]) / largest);
    }
    println!("{equal} of {} tokens are equal; candle's logits of the others differ by at most {apart:.1e}", rows.len());
    Ok(())
}

/// Loads the safetensors of a folder, in one file or several.
fn weights(folder: &Path, device: &Device) -> Result<std::collections::HashMap<String, Tensor>, Box<dyn Error>> {
    let mut weights = std::collections::HashMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_model = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("model"));
        if is_model && path.extension().is_some_and(|extension| extension == "safetensors") {
            weights.extend(candle_core::safetensors::load(&path, device)?);
        }
    }
    Ok(weights)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: decode FOLDER [TOKENS] [PROMPT_TOKEN...]")?;
    let folder = Path::new(&folder);
    let count = arguments.next().map_or(Ok(8), |count| count.parse())?;
    let mut prompt = arguments.map(|token| token.parse()).collect::<Result<Vec<u32>, _>>()?;
    if prompt.is_empty() {
        prompt = vec![11, 42, 7];
    }

    let is_gpu = cfg!(feature = "cuda");
    let device = if is_gpu { Device::new_cuda(0)? } else { Device::Cpu };
    let context = if is_gpu { Context::new(&device)? } else { Context::simulated(1)? };
    let config: LlamaConfig = serde_json::from_str(&std::fs::read_to_string(folder.join("config.json"))?)?;
    let config = config.into_config(false);
    let weights = weights(folder, &device)?;

    // candle has no bf16 matrix product on the CPU.
    let dtype = if is_gpu { DType::BF16 } else { DType::F32 };
    let theirs = candle_llama::Llama::load(VarBuilder::from_tensors(weights.clone(), dtype, &device), &config)?;
    let mut cache = candle_llama::Cache::new(true, dtype, &config, &device)?;
    let (expected, candle_time) =
        decode(&prompt, count, &device, |input, position| theirs.forward(input, position, &mut cache))?;
    let mut cache = candle_llama::Cache::new(true, dtype, &config, &device)?;
    let (chosen, rows) =
        logits(&prompt, count, None, &device, |input, position| theirs.forward(input, position, &mut cache))?;
    drop((theirs, cache));

    let ours = llama::Llama::load(&context, VarBuilder::from_tensors(weights, DType::BF16, &device), &config)?;
    let mut cache = llama::Cache::new(&context, &config, 1, prompt.len() + count, &device)?;
    let (found, our_time) =
        decode(&prompt, count, &device, |input, position| ours.forward(input, position, &mut cache))?;

    println!("candle:     {expected:?}");
    println!("tilewright: {found:?}");
    let mut cache = llama::Cache::new(&context, &config, 1, prompt.len() + count, &device)?;
    let (ours, _) =
        logits(&prompt, count, Some(&chosen), &device, |input, position| ours.forward(input, position, &mut cache))?;
    compare(&chosen, &ours, &rows)?;
    if is_gpu && count > 2 {
        let per_token = |time: Duration| time.as_secs_f64() * 1e6 / (count - 2) as f64;
        println!(
            "candle {:.0} µs per token, tilewright {:.0} µs per token",
            per_token(candle_time),
            per_token(our_time)
        );
    }
    Ok(())
}
