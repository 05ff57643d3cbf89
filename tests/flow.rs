//! Flows in decode steps of the shipped models: with a budget that covers the sequence the tokens
//! are those of dense attention.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tilewright::engine::{Device, Engine, Request};
use tilewright_flow::memory::Budget;
use tilewright_flow::program::FlowSettings;
use tilewright_flow::{ModelShape, Parameters, algorithms};
use tilewright_kernels::naive::Sampling;

const MODELS: [&str; 2] = ["tiny-llama", "tiny-qwen3"];
/// Tokens that it takes for 6 blocks of 16 to be more than a first, a last and three winners.
const PROMPT: usize = 83;
const NEW: usize = 6;

fn folder(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(model)
}

fn engine(model: &str, workers: usize) -> Engine {
    Engine::load(&folder(model), Device::Cpu { workers }).expect("the model loads")
}

/// The block size that a flow requires.
fn block_tokens(name: &str) -> usize {
    match name {
        "h2o-tokens" => 1,
        "lserve" | "lserve-centroid" => 16,
        name if name.len().is_multiple_of(2) => 16,
        _ => 4,
    }
}

/// A flow with parameters of some kind: with a covering budget they do not matter.
fn flow(engine: &Engine, name: &str, top_k: u32) -> FlowSettings {
    flow_of_blocks(engine, name, top_k, block_tokens(name))
}

fn flow_of_blocks(engine: &Engine, name: &str, top_k: u32, block_tokens: usize) -> FlowSettings {
    let spec = engine.spec();
    let traced = algorithms::named(name).expect("a known flow").trace().expect("a flow without errors");
    let model = ModelShape { kv_heads: spec.kv_heads, group: spec.group(), head_dim: spec.head_dim, block_tokens };
    let extents = traced.extents(&model).expect("a model that fits");
    let declared = traced.declared.parameters.iter().zip(&extents.parameters);
    let value = |i: usize| ((i * 37 + 11) % 19) as f64 / 19.0 - 0.5;
    let layer: Parameters = declared
        .map(|(parameter, [d0, d1])| (parameter.name.clone(), (0..spec.kv_heads * d0 * d1).map(value).collect()))
        .collect();
    let budget = Budget::new(top_k, 0.0, 1, 1).expect("a budget");
    FlowSettings::new(traced, block_tokens, budget).expect("a flow").with_parameters(vec![layer; spec.layers])
}

/// Greedy tokens of prompts, the first of `PROMPT` tokens.
fn tokens(engine: &Engine, prompts: usize) -> Vec<Vec<u32>> {
    let vocab = engine.spec().vocab as u32;
    let prompt =
        |at: usize| (0..PROMPT as u32 - 20 * at as u32).map(|i| 2 + (i * i * 31 + i * 7) % (vocab - 2)).collect();
    let requests: Vec<Request> =
        (0..prompts).map(|at| Request { prompt_ids: prompt(at), max_new_tokens: NEW }).collect();
    let (completions, _) = engine.generate(&requests, Sampling::GREEDY, |_, _| ()).expect("an answer");
    completions.into_iter().map(|completion| completion.token_ids).collect()
}

#[test]
fn a_budget_that_covers_the_sequence_gives_the_tokens_of_dense_attention() {
    for model in MODELS {
        let dense = tokens(&engine(model, 2), 1);
        for algorithm in algorithms::ALL {
            let engine = engine(model, 2);
            let covering = flow(&engine, algorithm.name, 1024);
            // Observing the selection makes the device compute it.
            let engine = engine.with_flow(covering).expect("a flow that fits");
            assert_eq!(tokens(&engine, 1), dense, "{model}, {}", algorithm.name);
            let engine = engine.with_observer(Arc::new(|_| ()));
            assert_eq!(tokens(&engine, 1), dense, "{model}, {}", algorithm.name);
        }
    }
}

/// The GPU that `TILEWRIGHT_DEVICE` names, or a simulated one.
fn on_device() -> Device {
    let named = std::env::var("TILEWRIGHT_DEVICE").ok().and_then(|name| name.parse().ok());
    named.unwrap_or(Device::Sim { seed: 1 })
}

/// On a GPU every flow runs on both models, else two flows.
#[test]
fn a_budget_that_covers_the_sequence_gives_the_tokens_of_dense_attention_on_a_device() {
    let device = on_device();
    let all = !matches!(device, Device::Sim { .. });
    for model in if all { &MODELS[..] } else { &MODELS[..1] } {
        let engine = || Engine::load(&folder(model), device).expect("the model loads");
        let dense = few_tokens(&engine());
        for algorithm in algorithms::ALL.iter().filter(|algorithm| algorithm.name != "h2o-tokens") {
            if !all && !["quest", "running-average"].contains(&algorithm.name) {
                continue;
            }
            let engine = engine();
            let covering = flow_of_blocks(&engine, algorithm.name, 1024, 16);
            let engine = engine.with_flow(covering).expect("a flow that fits");
            if all {
                // As users run it: the selection is not observed.
                assert_eq!(few_tokens(&engine), dense, "{model}, {}", algorithm.name);
            }
            let engine = engine.with_observer(Arc::new(|_| ()));
            assert_eq!(few_tokens(&engine), dense, "{model}, {}", algorithm.name);
        }
    }
}

/// Greedy tokens of a short prompt, over the edge of a block.
fn few_tokens(engine: &Engine) -> Vec<u32> {
    let request = Request { prompt_ids: (2..30).collect(), max_new_tokens: 5 };
    let (completions, _) = engine.generate(&[request], Sampling::GREEDY, |_, _| ()).expect("an answer");
    completions.into_iter().flat_map(|completion| completion.token_ids).collect()
}

/// Small budgets: the same tokens on any number of workers, and whether or not another prompt is
/// there.
#[test]
fn what_a_flow_chooses_depends_on_its_own_request_alone() {
    for name in ["quest", "running-average", "h2o-tokens", "moba", "q-filter"] {
        let of = |workers, prompts| {
            let engine = engine("tiny-llama", workers);
            let small = flow(&engine, name, 2);
            tokens(&engine.with_flow(small).expect("a flow that fits"), prompts).swap_remove(0)
        };
        let alone = of(1, 1);
        assert_eq!((of(3, 1), of(2, 2)), (alone.clone(), alone), "{name}");
    }
}

#[test]
fn a_flow_that_does_not_fit_is_one_line() {
    let refused = |name: &str, block: usize| {
        let engine = engine("tiny-llama", 1);
        let traced = algorithms::named(name).expect("a known flow").trace().expect("a flow without errors");
        let budget = Budget::new(4, 0.0, 1, 1).expect("a budget");
        let flow = FlowSettings::new(traced, block, budget).expect("a flow");
        engine.with_flow(flow).err().expect("refused").to_string()
    };
    let pages = "pages of 16 tokens are not whole blocks of 32; choose blocks that divide a page";
    assert_eq!(refused("quest", 32), pages);
    assert_eq!(refused("quest", 0), pages.replace("32", "0"));
    assert!(refused("lserve", 8).starts_with("flow `lserve`: "));
    assert!(refused("q-filter", 16).contains("given for 0 layers; give them for each of 4"));
}
