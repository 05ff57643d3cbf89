//! Several ranks compute the same tokens as one process.

use std::fs;

use serde::Deserialize;
use tilewright::engine::{Device, Engine, Request};
use tilewright_kernels::naive::Sampling;

use crate::{Launch, engine, engine_on, model};

#[derive(Deserialize)]
struct Reference {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
pub struct Case {
    pub prompt_ids: Vec<u32>,
    pub greedy_ids: Vec<u32>,
}

pub fn reference(name: &str) -> Vec<Case> {
    let text = fs::read_to_string(model(name).join("reference.json")).expect("the model has references");
    serde_json::from_str::<Reference>(&text).expect("the references are JSON").cases
}

/// The greedy tokens of requests, batched, in their order.
pub fn greedy(engine: &Engine, requests: &[Request]) -> Vec<Vec<u32>> {
    let (completions, _) = engine.generate(requests, Sampling::GREEDY, |_, _| ()).expect("answers");
    completions.into_iter().map(|completion| completion.token_ids).collect()
}

#[test]
fn several_ranks_give_the_reference_tokens() {
    for (name, size) in [("tiny-llama", 2), ("tiny-qwen3", 2), ("tiny-llama", 3), ("tiny-qwen3", 3), ("tiny-llama", 4)]
    {
        let cases = reference(name);
        let request =
            |case: &Case| Request { prompt_ids: case.prompt_ids.clone(), max_new_tokens: case.greedy_ids.len() };
        let requests: Vec<_> = cases.iter().map(request).collect();
        let found = Launch::new(size).run(|| engine(name), |engine| greedy(&engine, &requests));
        for (case, found) in cases.iter().zip(found) {
            assert_eq!(found, case.greedy_ids, "{name} in {size} processes");
        }
    }
}

/// 83 tokens: chunks of 32, 32, 8, 8, and three of one, with all logits. Not a bit differs, and a
/// second session gives the same.
#[test]
fn logits_have_the_bits_of_one_process() {
    let ids: Vec<u32> = (0..83).map(|at| at * 37 % 1024).collect();
    for name in ["tiny-llama", "tiny-qwen3"] {
        let alone = engine(name).logits(&ids).expect("logits");
        let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        Launch::new(3).run(
            || engine(name),
            |engine| {
                for _ in 0..2 {
                    let shared = engine.logits(&ids).expect("logits");
                    assert!(bits(&shared) == bits(&alone), "{name}");
                }
            },
        );
    }
}

/// A prompt of 130 tokens is four chunks of 32 rows and one of 2. Rank 0 waits for the logits of
/// the last one alone.
#[test]
fn rank_0_does_not_wait_for_chunks_of_a_prompt() {
    let launch = Launch::new(2);
    let request = Request { prompt_ids: (0..130).collect(), max_new_tokens: 2 };
    let requests = [request];
    let alone = greedy(&engine("tiny-qwen3"), &requests);
    let found = launch.run(|| engine("tiny-qwen3"), |engine| greedy(&engine, &requests));
    assert_eq!(found, alone);
    assert_eq!(launch.network.sent(), [6, 2], "five chunks and a token; logits of two tokens");
}

/// The decode machine on simulated GPUs: stages of one device, and stages that two devices share.
#[test]
fn stages_on_simulated_gpus_give_the_reference_tokens() {
    for (name, device) in [("tiny-qwen3", "sim:1"), ("tiny-llama", "sim:2x2")] {
        let device: Device = device.parse().expect("a device");
        let case = &reference(name)[4];
        let request = Request { prompt_ids: case.prompt_ids.clone(), max_new_tokens: 2 };
        let found = Launch::new(2).run(|| engine_on(name, device), |engine| greedy(&engine, &[request]));
        assert_eq!(found, [&case.greedy_ids[..2]], "{name} on {device:?}");
    }
}

/// A prompt of 17 tokens is one step of a graph of launches on each rank, what follows the decode
/// machine's.
#[test]
fn prompts_are_prefilled_by_graphs_of_launches_on_simulated_gpus() {
    let case = &reference("tiny-qwen3")[5];
    let request = Request { prompt_ids: case.prompt_ids.clone(), max_new_tokens: 2 };
    let device: Device = "sim:1".parse().expect("a device");
    let made = || engine_on("tiny-qwen3", device).with_prompt_chunk(32).expect("a graph takes 32 rows");
    let found = Launch::new(2).run(made, |engine| greedy(&engine, &[request]));
    assert_eq!(found, [&case.greedy_ids[..2]]);
}
