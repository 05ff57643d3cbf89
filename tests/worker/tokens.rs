//! Several processes compute the same tokens as one.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::{driver, driver_on, model, start, worker_on, workers};

#[derive(Deserialize)]
struct Reference {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    prompt: String,
    greedy_ids: Vec<u32>,
}

fn reference(name: &str) -> Vec<Case> {
    let text = fs::read_to_string(model(name).join("reference.json")).expect("the model has references");
    serde_json::from_str::<Reference>(&text).expect("the references are JSON").cases
}

/// The greedy tokens of all prompts of a model, batched, in the order of the prompts.
fn greedy(name: &str, world: usize, cases: &[Case]) -> Vec<Vec<u32>> {
    let dir = model(name);
    let mut args = vec!["generate", "--model", dir.to_str().expect("UTF-8"), "--max-new-tokens", "48", "--json"];
    cases.iter().for_each(|case| args.extend(["--prompt", &case.prompt]));
    let (driver, address) = driver(&args, world, "30");
    let workers = workers(name, world, &address, "30");
    let ended = driver.ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for worker in workers {
        let ended = worker.ended();
        assert_eq!(ended.code, Some(0), "a worker ends with its driver: {ended:?}");
    }
    let mut found = vec![Vec::new(); cases.len()];
    for line in ended.stdout.lines() {
        let object: Value = serde_json::from_str(line).expect("a line of JSON");
        let at = object["prompt"].as_u64().unwrap_or(0) as usize;
        found[at] = serde_json::from_value(object["token_ids"].clone()).expect("tokens");
    }
    found
}

#[test]
fn several_processes_give_the_reference_tokens() {
    for (name, world) in [("tiny-llama", 2), ("tiny-qwen3", 2), ("tiny-llama", 3), ("tiny-qwen3", 3), ("tiny-llama", 4)]
    {
        let cases = reference(name);
        let found = greedy(name, world, &cases);
        for (case, found) in cases.iter().zip(found) {
            assert_eq!(found, case.greedy_ids, "{name} in {world} processes: {}", case.prompt);
        }
    }
}

/// A session of one sequence, by text.
#[test]
fn a_single_prompt_streams_the_reference_text() {
    let name = "tiny-llama";
    let world = 3;
    let dir = model(name);
    let args = ["generate", "--model", dir.to_str().expect("UTF-8"), "--prompt", "In the beginning"];
    let alone = start(&args).wait_with_output().expect("ends");
    let (driver, address) = driver(&args, world, "30");
    let workers = workers(name, world, &address, "30");
    let ended = driver.ended();
    assert_eq!((ended.code, ended.stdout.as_bytes()), (Some(0), &alone.stdout[..]), "{}", ended.stderr);
    drop(workers.into_iter().map(|worker| worker.ended()).collect::<Vec<_>>());
}

/// 83 tokens: chunks of 32, 32, 8, 8, and three of one, with all logits. Not a bit is another.
#[test]
fn logits_have_the_bits_of_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let ids: Vec<String> = (0..83).map(|at| (at * 37 % 1024).to_string()).collect();
    let ids = ids.join(",");
    for name in ["tiny-llama", "tiny-qwen3"] {
        let dir = model(name);
        let [alone, shared] = ["alone", "shared"].map(|file| folder.path().join(format!("{name}-{file}")));
        let args = |out: &Path| {
            [
                "logits",
                "--model",
                dir.to_str().expect("UTF-8"),
                "--prompt-ids",
                &ids,
                "--out",
                out.to_str().expect("UTF-8"),
            ]
            .map(str::to_owned)
        };
        let first = args(&alone);
        let second = args(&shared);
        assert!(start(&first.each_ref().map(String::as_str)).wait().expect("ends").success());
        let (driver, address) = driver(&second.each_ref().map(String::as_str), 3, "30");
        let workers = workers(name, 3, &address, "30");
        let ended = driver.ended();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        drop(workers.into_iter().map(|worker| worker.ended()).collect::<Vec<_>>());
        assert!(fs::read(&alone).expect("logits") == fs::read(&shared).expect("logits"), "{name}");
    }
}

/// The decode machine on simulated GPUs: stages of one device, and stages that two devices share.
#[test]
fn stages_on_simulated_gpus_give_the_reference_tokens() {
    for (name, device) in [("tiny-qwen3", "sim:1"), ("tiny-llama", "sim:2x2")] {
        let case = &reference(name)[4];
        let dir = model(name);
        let args =
            ["generate", "--model", dir.to_str().expect("UTF-8"), "--prompt", &case.prompt, "--max-new-tokens", "2"];
        let (driver, address) = driver_on(device, &[&args[..], &["--json"]].concat(), 2, "60");
        let worker = worker_on(device, name, 1, 2, &address, "60");
        let ended = driver.ended();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let object: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
        let found: Vec<u32> = serde_json::from_value(object["token_ids"].clone()).expect("tokens");
        assert_eq!(found[..], case.greedy_ids[..2], "{name} on {device}");
        assert_eq!(worker.ended().code, Some(0));
    }
}

/// A prompt of 17 tokens is one step of a graph of launches on each rank, what follows the decode
/// machine's.
#[test]
fn prompts_come_in_by_graphs_of_launches_on_simulated_gpus() {
    let name = "tiny-qwen3";
    let case = &reference(name)[5];
    let dir = model(name);
    let args = ["generate", "--model", dir.to_str().expect("UTF-8"), "--prompt", &case.prompt, "--max-new-tokens", "2"];
    let (driver, address) = driver_on("sim:1", &[&args[..], &["--prompt-chunk", "32", "--json"]].concat(), 2, "60");
    let worker = worker_on("sim:2", name, 1, 2, &address, "60");
    let ended = driver.ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let object: Value = serde_json::from_str(&ended.stdout).expect("one JSON object");
    let found: Vec<u32> = serde_json::from_value(object["token_ids"].clone()).expect("tokens");
    assert_eq!(found[..], case.greedy_ids[..2]);
    assert_eq!(worker.ended().code, Some(0));
}
