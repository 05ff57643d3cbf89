//! End to end: the checkpoints of this repository against the tokens and logits of another
//! implementation.
//!
//! `models/*/reference.json` and `reference.safetensors` were computed by transformers in float32,
//! eager attention.

mod measure;

use std::ops::ControlFlow::Continue;
use std::path::{Path, PathBuf};

use measure::relative_l2;
use safetensors::SafeTensors;
use serde::Deserialize;
use tilewright::checkpoint::{Scheme, quantize};
use tilewright::engine::{Device, Engine, Request, Session};
use tilewright_kernels::naive::Sampling;

const MODELS: [&str; 2] = ["tiny-llama", "tiny-qwen3"];
/// Checkpoints of the formats that people publish, with references of their exact weights.
const QUANTISED: [&str; 4] =
    ["quant/tiny-llama-awq", "quant/tiny-llama-gptq", "quant/tiny-llama-w4a16", "quant/tiny-llama-fp8block"];

#[derive(Deserialize)]
struct Reference {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    prompt: String,
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
    text: String,
}

fn folder(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(model)
}

fn reference(model: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(folder(model).join("reference.json")).expect("the model has references");
    let reference: Reference = serde_json::from_str(&text).expect("the references are JSON");
    assert_eq!(reference.cases.len(), 6);
    reference.cases
}

fn engine(model: &str, workers: usize) -> Engine {
    Engine::load(&folder(model), Device::Cpu { workers }).expect("the model loads")
}

fn request(case: &Case) -> Request {
    Request { prompt_ids: case.prompt_ids.clone(), max_new_tokens: case.greedy_ids.len() }
}

#[test]
fn greedy_tokens_and_text_equal_the_reference() {
    let dense = MODELS.iter().flat_map(|model| [1, 2, 3].map(|workers| (*model, workers)));
    for (model, workers) in dense.chain(QUANTISED.map(|model| (model, 2))) {
        let engine = engine(model, workers);
        for case in reference(model) {
            let prompt_ids = engine.tokenizer().encode(&case.prompt).expect("the prompt encodes");
            assert_eq!(prompt_ids, case.prompt_ids, "{model}: {}", case.prompt);
            let (completions, speed) =
                engine.generate(&[request(&case)], Sampling::GREEDY, |_, _| ()).expect("generates");
            assert_eq!(completions[0].token_ids, case.greedy_ids, "{model}: {}", case.prompt);
            assert_eq!(speed.tokens, 48);
            let text = engine.tokenizer().decode(&completions[0].token_ids).expect("decodes");
            assert_eq!(text, case.text, "{model}: {}", case.prompt);
        }
    }
}

#[test]
fn logits_equal_the_reference() {
    for model in MODELS.into_iter().chain(QUANTISED) {
        let engine = engine(model, 2);
        let bytes = std::fs::read(folder(model).join("reference.safetensors")).expect("the model has logits");
        let tensors = SafeTensors::deserialize(&bytes).expect("the logits are safetensors");
        for (at, case) in reference(model).iter().enumerate() {
            let tensor = tensors.tensor(&format!("logits.{at}")).expect("one tensor a case");
            assert_eq!(tensor.shape(), [case.prompt_ids.len(), engine.spec().vocab]);
            let expected = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            let expected: Vec<f32> = expected.collect();
            let found = engine.logits(&case.prompt_ids).expect("computes");
            let error = relative_l2(&found, &expected);
            println!("{model} prompt {at}: relative L2 error {error:.2e}");
            assert!(error <= 1e-5, "{model} prompt {at}: {error:.2e}");
        }
    }
}

/// The cost of rounding to nearest; this test prints the table of docs/quantization.md.
#[test]
fn quantising_a_model_costs_what_the_page_says() {
    // Scheme, group, and the relative L2 that the logits of both models stay below.
    let cases = [
        (Scheme::W4A16, Some(32), 0.20),
        (Scheme::W4A16, Some(64), 0.25),
        (Scheme::W4A16, None, 0.25),
        (Scheme::W8A16, None, 0.02),
        (Scheme::Fp8, None, 0.06),
    ];
    println!("| scheme | group | {} |\n|---|---|---|---|", MODELS.join(" | "));
    for (scheme, group, limit) in cases {
        let mut line = format!("| {scheme} | {} |", group.map_or("default".to_owned(), |group| group.to_string()));
        for model in MODELS {
            let folder = tempfile::tempdir().expect("a folder");
            let out = folder.path().join("made");
            quantize(&self::folder(model), &out, scheme, group, &mut |_| Continue(())).expect("quantises");
            let made = Engine::load(&out, Device::Cpu { workers: 2 }).expect("the model loads");
            let dense = engine(model, 2);
            let mut found = Vec::new();
            let mut expected = Vec::new();
            for case in &reference(model)[..3] {
                found.extend(made.logits(&case.prompt_ids).expect("computes"));
                expected.extend(dense.logits(&case.prompt_ids).expect("computes"));
            }
            let error = relative_l2(&found, &expected);
            assert!(error < limit, "{model} {scheme} {group:?}: {error:.2e}");
            line += &format!(" {error:.2e} |");
        }
        println!("{line}");
    }
}

#[test]
fn logits_do_not_depend_on_the_number_of_workers() {
    for model in MODELS {
        let ids = &reference(model)[5].prompt_ids;
        let one = engine(model, 1).logits(ids).expect("computes");
        for workers in [2, 5] {
            let many = engine(model, workers).logits(ids).expect("computes");
            assert!(one.iter().map(|x| x.to_bits()).eq(many.iter().map(|x| x.to_bits())), "{model}, {workers} workers");
        }
    }
}

#[test]
fn a_batch_equals_its_single_runs_token_for_token() {
    for model in MODELS {
        let engine = engine(model, 2);
        let cases = reference(model);
        // Different prompt lengths, and different numbers of new tokens, so that rows fall idle one
        // after another.
        let requests: Vec<Request> = [(0, 30), (2, 48), (5, 11)]
            .map(|(at, max_new_tokens)| Request { prompt_ids: cases[at].prompt_ids.clone(), max_new_tokens })
            .to_vec();
        let lengths: std::collections::HashSet<usize> = requests.iter().map(|r| r.prompt_ids.len()).collect();
        assert!(lengths.len() >= 2);
        let mut streamed = vec![Vec::new(); 3];
        let (batch, _) =
            engine.generate(&requests, Sampling::GREEDY, |at, token| streamed[at].push(token)).expect("generates");
        for (at, request) in requests.iter().enumerate() {
            let (single, _) =
                engine.generate(std::slice::from_ref(request), Sampling::GREEDY, |_, _| ()).expect("generates");
            assert_eq!(batch[at], single[0], "{model}, request {at}");
            assert_eq!(streamed[at], single[0].token_ids);
        }
    }
}

/// 600 tokens: the model's own continuation of a prompt, so that the text is not noise.
fn long_prompt(engine: &Engine, case: &Case) -> Vec<u32> {
    let request = Request { prompt_ids: case.prompt_ids.clone(), max_new_tokens: 600 - case.prompt_ids.len() };
    let sampling = Sampling::new(0.8, Some(50), 1.0, 7).expect("valid options");
    let (completions, _) = engine.generate(&[request], sampling, |_, _| ()).expect("generates");
    let mut ids = case.prompt_ids.clone();
    ids.extend(&completions[0].token_ids);
    // An early end of sequence leaves the prompt short: repeat what there is.
    (0..600).map(|at| ids[at % ids.len()]).collect()
}

#[test]
fn a_long_prompt_equals_the_same_prompt_fed_in_two_pieces() {
    for model in MODELS {
        let engine = engine(model, 2);
        let ids = long_prompt(&engine, &reference(model)[1]);
        let whole = engine.logits(&ids).expect("computes");
        for cut in [1, 299, 587] {
            let mut session = Session::of(&engine, 1, ids.len()).expect("a session");
            let mut pieces = Vec::new();
            for piece in [&ids[..cut], &ids[cut..]] {
                session.feed(0, piece, |logits| pieces.extend_from_slice(logits)).expect("feeds");
            }
            assert_eq!(session.len(0), 600);
            assert!(whole.iter().map(|x| x.to_bits()).eq(pieces.iter().map(|x| x.to_bits())), "{model}, cut {cut}");
        }
    }
}

#[test]
fn a_cleared_sequence_starts_anew_in_pages_that_were_used() {
    let engine = engine("tiny-llama", 2);
    let cases = reference("tiny-llama");
    let expected = engine.logits(&cases[5].prompt_ids).expect("computes");
    // Room for one sequence only: the second can only run in the pages of the first.
    let mut session = Session::of(&engine, 1, 16).expect("a session");
    session.feed(0, &cases[1].prompt_ids, |_| ()).expect("feeds");
    session.clear(0);
    let mut found = Vec::new();
    session.feed(0, &cases[5].prompt_ids, |logits| found.extend_from_slice(logits)).expect("feeds");
    assert_eq!(found, expected);
    assert!(session.feed(0, &[5], |_| ()).is_err(), "the session holds 16 tokens");
}

#[test]
fn sampling_repeats_with_its_seed_and_differs_between_seeds() {
    let engine = engine("tiny-llama", 2);
    let case = &reference("tiny-llama")[0];
    let run = |seed| {
        let sampling = Sampling::new(1.0, Some(40), 0.95, seed).expect("valid options");
        let (completions, _) = engine.generate(&[request(case)], sampling, |_, _| ()).expect("generates");
        completions[0].token_ids.clone()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_generation_ends_at_the_last_position() {
    let engine = engine("tiny-qwen3", 2);
    let max = engine.spec().max_positions;
    let ids: Vec<u32> = (0..max as u32 - 2).map(|i| 2 + i % 1000).collect();
    let request = Request { prompt_ids: ids, max_new_tokens: 10 };
    let (completions, _) = engine.generate(&[request], Sampling::GREEDY, |_, _| ()).expect("generates");
    // The token after the last position is still predicted; it cannot be fed.
    assert!(completions[0].token_ids.len() <= 3);
    assert_eq!(completions[0].finish, tilewright::engine::Finish::Positions);
}
