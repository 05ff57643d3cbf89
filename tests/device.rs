//! The shipped checkpoints through the generated megakernel, on the simulator, all checks on.
//!
//! With `TILEWRIGHT_DEVICE=cuda:0` the same runs on a GPU, with all prompts and all tokens;
//! `TILEWRIGHT_MODELS` says where the models are if not in the repository that the test was built
//! in.
//!
//! A device multiplies bf16 operands, and its KV pools are bf16; the references are f32. So a token
//! may differ where the reference's own choice is that close: its margin over the device's choice
//! is at most [`MARGIN`] of the largest logit, one rounding of bf16 (2^-8) for each of the two.

mod measure;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use measure::relative_l2;
use serde::Deserialize;
use tilewright::checkpoint::{Checkpoint, Scheme};
use tilewright::engine::{
    BatchOptions, Completion, DecodePlan, Device, EndTokens, Engine, EngineError, Event, Finish, LogitsHook,
    LogitsProcessor, PlanOptions, PlanPart, Request, Session, Submission, Ticket, TokenMask,
};
use tilewright_codegen::sample::Sample;
use tilewright_kernels::naive::{Sampling, sample};
use tilewright_megakernel::vm::LaunchError;

/// The margin within which a device may choose another token than the reference.
const MARGIN: f32 = 2.0 / 256.0;
/// The largest relative L2 error of logits that bf16 operands and pools make.
const LIMIT: f64 = 2e-2;
const MODELS: [&str; 2] = ["tiny-llama", "tiny-qwen3"];
/// Codes of 4 bits with zeros and without, and of 8, by groups of 32, 64 and blocks of 128.
const QUANTISED: [&str; 4] =
    ["quant/tiny-llama-awq", "quant/tiny-llama-gptq", "quant/tiny-llama-w4a16", "quant/tiny-llama-fp8block"];

#[derive(Deserialize)]
struct Reference {
    cases: Vec<Case>,
}

#[derive(Clone, Deserialize)]
struct Case {
    prompt_ids: Vec<u32>,
    greedy_ids: Vec<u32>,
}

fn folder(model: &str) -> PathBuf {
    let models = std::env::var_os("TILEWRIGHT_MODELS").map(PathBuf::from);
    models.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("models")).join(model)
}

fn cases(model: &str) -> Vec<Case> {
    let text = std::fs::read_to_string(folder(model).join("reference.json")).expect("the model has references");
    let reference: Reference = serde_json::from_str(&text).expect("the references are JSON");
    reference.cases
}

/// A GPU, if one is asked for.
fn gpu() -> Option<Device> {
    std::env::var("TILEWRIGHT_DEVICE").ok().map(|name| name.parse().expect("a device"))
}

/// The devices of a test: the GPU that is asked for, or simulators of these seeds.
fn devices(seeds: &[u64]) -> Vec<Device> {
    gpu().map_or_else(|| seeds.iter().map(|&seed| Device::Sim { seed }).collect(), |gpu| vec![gpu])
}

/// The cases of a test: on a GPU all, on simulators one of `parts` parts.
fn sampled<T: Clone>(parts: usize, all: &[T]) -> Vec<T> {
    let sample = if gpu().is_some() { Sample::ALL } else { Sample::one_of(parts) };
    sample.of(all)
}

fn engine(model: &str, device: Device) -> Engine {
    Engine::load(&folder(model), device).expect("the model loads")
}

fn cpu(model: &str) -> Engine {
    engine(model, Device::Cpu { workers: 2 })
}

fn generate(engine: &Engine, prompt: &[u32], tokens: usize) -> Completion {
    let request = Request { prompt_ids: prompt.to_vec(), max_new_tokens: tokens };
    engine.generate(&[request], Sampling::GREEDY, |_, _| ()).expect("generates").0.remove(0)
}

fn argmax(logits: &[f32]) -> usize {
    (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("logits")
}

/// Whether the reference's logits are that close between its choice and another.
fn is_close(logits: &[f32], other: usize) -> bool {
    let largest = logits.iter().fold(0f32, |most, x| most.max(x.abs()));
    logits[argmax(logits)] - logits[other] <= MARGIN * largest
}

/// Generates, and compares with the reference up to a choice that is close; whether there was one.
fn tokens_agree(model: &str, device: Device, case: &Case, tokens: usize) -> bool {
    let found = generate(&engine(model, device), &case.prompt_ids, tokens).token_ids;
    let expected = &case.greedy_ids[..tokens.min(case.greedy_ids.len())];
    let Some(at) = found.iter().zip(expected).position(|(a, b)| a != b) else {
        assert_eq!(found.len(), expected.len(), "{model} on {device}");
        return false;
    };
    let prefix = [&case.prompt_ids, &case.greedy_ids[..at]].concat();
    let reference = cpu(model);
    let logits = reference.logits(&prefix).expect("computes");
    let last = &logits[logits.len() - reference.spec().vocab..];
    println!("{model} on {device}: token {at} is {}, the reference's is {}", found[at], expected[at]);
    assert!(is_close(last, found[at] as usize), "{model} on {device}: token {at} differs, and not closely");
    true
}

#[test]
fn greedy_tokens_equal_the_reference() {
    let mut differ = 0;
    let mut all = 0;
    for model in sampled(2, &MODELS) {
        let cases = cases(model);
        // On the simulator: prompts of one chunk and of several, under several seeds.
        let few = [(0, 0, 5), (1, 100, 4), (2, 200, 3)];
        for (at, case) in cases.iter().enumerate() {
            let plan = match gpu() {
                Some(gpu) => Some((gpu, case.greedy_ids.len())),
                None => few.iter().find(|(case, ..)| *case == at).map(|&(_, seed, n)| (Device::Sim { seed }, n)),
            };
            let Some((device, tokens)) = plan else { continue };
            differ += usize::from(tokens_agree(model, device, case, tokens));
            all += 1;
        }
    }
    println!("{differ} of {all} continuations leave the reference at a close choice");
    assert!(gpu().is_some() || differ == 0, "none of the simulated ones does");
}

#[test]
fn a_model_that_two_devices_share_gives_the_tokens_of_the_reference() {
    for (seed, case) in (0..).zip(cases("tiny-llama").iter().take(2)) {
        let left = tokens_agree("tiny-llama", Device::SimPeers { seed: 1000 * seed, count: 2 }, case, 3);
        assert!(!left, "no choice is close");
    }
}

/// Graphs of two devices prefill a prompt, and tokens are decoded on the same pools. The prompt
/// includes the beginning of the reference's continuation, so that it has more rows than the decode
/// machine.
#[test]
fn prompts_by_graphs_of_two_devices_give_the_tokens_of_the_reference() {
    const CONTINUED: usize = 20;
    for (at, case) in cases("tiny-llama").iter().enumerate().take(3) {
        let device: Device = format!("sim:{}x2", 2000 + at).parse().expect("a device");
        let engine = engine("tiny-llama", device).with_prompt_chunk(32).expect("a chunk that a device takes");
        let prompt = [&case.prompt_ids, &case.greedy_ids[..CONTINUED]].concat();
        let found = generate(&engine, &prompt, 3).token_ids;
        assert_eq!(found, case.greedy_ids[CONTINUED..CONTINUED + 3], "{device}, case {at}");
    }
}

/// A prompt in chunks of more rows than a decode step has, the last chunk padded; then decoded
/// tokens.
#[test]
fn prompts_in_chunks_of_many_rows_are_near_the_reference() {
    for (model, tokens) in [("tiny-llama", 70), ("tiny-qwen3", 37)] {
        let cases = cases(model);
        let mut ids: Vec<u32> =
            cases.iter().flat_map(|case| [&case.prompt_ids[..], &case.greedy_ids].concat()).collect();
        ids.truncate(tokens);
        let expected = cpu(model).logits(&ids).expect("computes");
        let two = Device::SimPeers { seed: 6, count: 2 };
        for device in devices(&[5]).into_iter().chain((model == "tiny-llama").then_some(two)) {
            let chunked = || engine(model, device).with_prompt_chunk(32).expect("a chunk that a device takes");
            let found = chunked().logits(&ids).expect("computes");
            let error = relative_l2(&found, &expected);
            println!("{model} on {device}: {tokens} tokens in chunks of 32, relative L2 error {error:.2e}");
            assert!(error <= LIMIT, "{model} on {device}: {error:.2e}");
            // Of a prompt the last row's logits alone are computed; then tokens are decoded on the
            // same pages.
            let found = generate(&chunked(), &ids, 3).token_ids;
            let expected = generate(&engine(model, Device::Cpu { workers: 2 }), &ids, 3).token_ids;
            println!("{model} on {device}: {found:?}, the reference's are {expected:?}");
            let vocab = cpu(model).spec().vocab;
            let last = &cpu(model).logits(&ids).expect("computes")[(tokens - 1) * vocab..];
            assert!(found[0] == expected[0] || is_close(last, found[0] as usize), "{model} on {device}");
            assert!(found == expected || gpu().is_some(), "{model} on {device}: none of the simulated ones differs");
        }
    }
    let refused =
        |device: Device, rows| engine("tiny-llama", device).with_prompt_chunk(rows).err().map(|e| e.to_string());
    let text = refused(Device::Cpu { workers: 1 }, 32).expect("the host has no such chunks");
    assert!(text.contains("17 to 4096 on GPUs"), "{text}");
    assert!(refused(Device::Sim { seed: 0 }, 16).is_some() && refused(Device::Sim { seed: 0 }, 4097).is_some());
}

/// Codes are multiplied exactly, so quantised checkpoints are as near as bf16 weights are.
#[test]
fn quantised_checkpoints_are_as_near_as_dense_ones() {
    for (seed, model) in (0..).zip(sampled(4, &QUANTISED)) {
        for device in devices(&[40 + seed]) {
            let all = cases(model);
            let (few, tokens) = if gpu().is_some() { (&all[..], usize::MAX) } else { (&all[..1], 3) };
            for case in few {
                let agree = !tokens_agree(model, device, case, tokens.min(case.greedy_ids.len()));
                assert!(agree || gpu().is_some(), "{model} on {device}: a choice differs");
                let mut ids = [&case.prompt_ids[..], &case.greedy_ids].concat();
                ids.truncate(if gpu().is_some() { usize::MAX } else { 5 });
                let expected = cpu(model).logits(&ids).expect("computes");
                let found = engine(model, device).logits(&ids).expect("computes");
                let error = relative_l2(&found, &expected);
                println!("{model} on {device}: relative L2 error {error:.2e}");
                assert!(error <= LIMIT, "{model} on {device}: {error:.2e}");
            }
        }
    }
}

/// Devices have rows and columns of codes: `o` has groups that lie on both. Tokens by decode steps
/// alone, and after a prompt that graphs prefill.
#[test]
fn quantised_checkpoints_that_two_devices_share_give_the_tokens_of_the_reference() {
    const CONTINUED: usize = 20;
    for (seed, model) in (60..).zip(Sample::one_of(4).of(&QUANTISED)) {
        let device = Device::SimPeers { seed, count: 2 };
        let case = &cases(model)[0];
        assert!(!tokens_agree(model, device, case, 3), "{model} on {device}: a choice differs");
        let prompt = [&case.prompt_ids, &case.greedy_ids[..CONTINUED]].concat();
        let engine = engine(model, device).with_prompt_chunk(32).expect("a chunk that a device takes");
        let found = generate(&engine, &prompt, 2).token_ids;
        assert_eq!(found, case.greedy_ids[CONTINUED..CONTINUED + 2], "{model} on {device}, by graphs");
    }
}

/// Weights that are quantised while loading are near the same codes on the reference machine.
#[test]
fn what_is_quantised_while_loading_is_shared_by_two_devices() {
    for (seed, scheme) in (70..).zip(Sample::one_of(3).of(&[Scheme::W4A16, Scheme::W8A16, Scheme::Fp8])) {
        let logits = |device| {
            let dense = Checkpoint::open(&folder("tiny-llama"), &mut |_| ()).expect("opens");
            let quantised = dense.quantised(scheme, None).expect("quantises");
            let engine = Engine::new(quantised, device, Box::new(|_| ())).expect("loads");
            engine.logits(&cases("tiny-llama")[0].prompt_ids[..4]).expect("computes")
        };
        let device = Device::SimPeers { seed, count: 2 };
        let error = relative_l2(&logits(device), &logits(Device::Cpu { workers: 2 }));
        println!("{scheme:?} on {device}: relative L2 error {error:.2e}");
        assert!(error <= LIMIT, "{scheme:?} on {device}: {error:.2e}");
    }
}

/// Teacher-forced: every position of prompt and continuation, so that one close choice hides no
/// other.
#[test]
fn logits_are_near_the_reference_and_choices_equal_where_they_are_not_close() {
    let mut close = 0;
    let mut choices = 0;
    for model in MODELS {
        let reference = cpu(model);
        let vocab = reference.spec().vocab;
        for device in devices(&[7]) {
            let cases = cases(model);
            let cases = if gpu().is_some() { &cases[..] } else { &cases[3..4] };
            for case in cases {
                let mut ids = [&case.prompt_ids[..], &case.greedy_ids].concat();
                ids.truncate(if gpu().is_some() { usize::MAX } else { 18 });
                let expected = reference.logits(&ids).expect("computes");
                let found = engine(model, device).logits(&ids).expect("computes");
                let error = relative_l2(&found, &expected);
                println!("{model} on {device}: relative L2 error {error:.2e}");
                assert!(error <= LIMIT, "{model} on {device}: {error:.2e}");
                for (found, expected) in found.chunks_exact(vocab).zip(expected.chunks_exact(vocab)) {
                    let found = argmax(found);
                    let wanted = argmax(expected);
                    choices += 1;
                    close += usize::from(found != wanted);
                    assert!(found == wanted || is_close(expected, found), "{model} on {device}");
                }
            }
        }
    }
    println!("{close} of {choices} choices differ; each is closer than {MARGIN} of the largest logit");
}

#[test]
fn sequences_of_a_batch_continue_as_they_do_alone() {
    let model = "tiny-qwen3";
    let cases = cases(model);
    for device in devices(&[3]) {
        let engine = engine(model, device);
        let requests: Vec<Request> = [(0, 2), (2, 4)]
            .map(|(at, max_new_tokens)| Request { prompt_ids: cases[at].prompt_ids.clone(), max_new_tokens })
            .to_vec();
        let mut streamed = vec![Vec::new(); 2];
        let (batch, speed) =
            engine.generate(&requests, Sampling::GREEDY, |at, token| streamed[at].push(token)).expect("generates");
        assert_eq!(speed.tokens, 6);
        for ((request, completion), streamed) in requests.iter().zip(&batch).zip(&streamed) {
            assert_eq!(*completion, generate(&engine, &request.prompt_ids, request.max_new_tokens));
            assert_eq!(*streamed, completion.token_ids);
        }
    }
}

/// A prompt and tokens drawn one by one by the host, each from the device's logits.
fn drawn_by_the_host(engine: &Engine, prompt: &[u32], sampling: &Sampling, row: u32, tokens: usize) -> Vec<u32> {
    let mut session = Session::of(engine, 1, prompt.len() + tokens).expect("a session");
    let mut logits = Vec::new();
    let mut drawn = Vec::new();
    session.feed(0, prompt, |all| logits = all.to_vec()).expect("feeds");
    for step in 0..tokens {
        let token = sample(&logits, sampling, step as u64, row).expect("there are logits") as u32;
        drawn.push(token);
        if engine.is_end(token) {
            break;
        }
        session.feed(0, &[token], |all| logits = all.to_vec()).expect("feeds");
    }
    drawn
}

/// The kernel, which draws many tokens in one launch, draws those that the host draws from the same
/// logits.
#[test]
fn the_kernel_draws_as_the_host_would() {
    let tokens = if gpu().is_some() { 200 } else { 4 };
    for (model, device) in sampled(2, &MODELS).into_iter().zip(devices(&[11, 12]).into_iter().cycle()) {
        let engine = engine(model, device);
        let prompts: Vec<Vec<u32>> = cases(model).iter().take(2).map(|case| case.prompt_ids.clone()).collect();
        let requests = prompts.iter().map(|prompt| Request { prompt_ids: prompt.clone(), max_new_tokens: tokens });
        let requests: Vec<Request> = requests.collect();
        for (seed, top_k, top_p) in [(1, None, 1.0), (2, Some(40), 0.95)] {
            let sampling = Sampling::new(1.2, top_k, top_p, seed).expect("valid options");
            let batch = engine.generate(&requests, sampling, |_, _| ()).expect("generates").0;
            for (row, (prompt, found)) in prompts.iter().zip(batch).enumerate() {
                let expected = drawn_by_the_host(&engine, prompt, &sampling, row as u32, tokens);
                assert_eq!(found.token_ids, expected, "{model} on {device}, seed {seed}, row {row}");
            }
            if gpu().is_none() {
                break;
            }
        }
    }
}

/// Every third token, or so; which ones depends on the token before.
#[derive(Default)]
struct Third(Vec<u32>);

impl Third {
    fn allows(new: &[u32], token: usize) -> bool {
        (token + new.last().map_or(0, |&last| last as usize)).is_multiple_of(3)
    }
}

impl LogitsProcessor for Third {
    fn process(&mut self, new: &[u32], logits: &mut [f32]) -> Result<(), String> {
        let hidden = logits.iter_mut().enumerate().filter(|(token, _)| !Third::allows(new, *token));
        hidden.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
        Ok(())
    }
}

impl TokenMask for Third {
    fn allow(&mut self, new: &[u32], mask: &mut [u32]) -> Result<(), String> {
        assert!(new.starts_with(&self.0), "{new:?} after {:?}", self.0);
        self.0 = new.to_vec();
        let allowed = (0..mask.len() * 32).filter(|&token| Third::allows(new, token));
        allowed.for_each(|token| mask[token / 32] |= 1 << (token % 32));
        Ok(())
    }
}

/// The tokens of each submission, all of them together.
fn together(engine: &Engine, submissions: Vec<Submission>) -> BTreeMap<Ticket, Vec<u32>> {
    let options = BatchOptions { rows: submissions.len(), ..BatchOptions::for_context(256) };
    let mut batcher = engine.batcher(&options).expect("a batcher");
    submissions.into_iter().for_each(|submission| _ = batcher.submit(submission).expect("it fits"));
    let mut found = BTreeMap::new();
    while batcher.step(|ticket, event| match event {
        Event::End(completion) => drop(found.insert(ticket, completion.token_ids)),
        Event::Fault(error) => panic!("{error:?}"),
        Event::Token(_) => {}
    }) {}
    found
}

/// The kernel, which chooses many tokens of a launch by masks that are made meanwhile, chooses those
/// that the host chooses from the same logits by the same rule. Rows without a rule are beside them.
#[test]
fn the_kernel_chooses_by_masks_as_the_host_would() {
    let on_gpu = gpu().is_some();
    // Steps of more than 16 rows are graphs of launches.
    let sizes = if on_gpu { &[(3, 200), (12, 200), (40, 200)][..] } else { &[(3, 4), (17, 2)] };
    let models: Vec<&str> = if on_gpu { MODELS.to_vec() } else { sampled(2, &MODELS) };
    for ((model, device), &(rows, tokens)) in models
        .into_iter()
        .zip(devices(&[21, 22]).into_iter().cycle())
        .flat_map(|one| sizes.iter().map(move |size| (one, size)))
    {
        let engine = engine(model, device);
        let hot = Sampling::new(1.1, None, 1.0, 7).expect("valid options");
        let submissions = |hook: fn() -> LogitsHook| {
            let rows = cases(model).into_iter().cycle().take(rows).enumerate();
            let submission = |(row, case): (usize, Case)| Submission {
                processor: (row % 4 != 1).then(hook),
                sampling: (if row % 4 == 2 { hot } else { Sampling::GREEDY }).into(),
                ends: EndTokens { ignore_model: true, ..EndTokens::default() },
                row: row as u32,
                ..Submission::from(Request { prompt_ids: case.prompt_ids, max_new_tokens: tokens })
            };
            rows.map(submission).collect::<Vec<_>>()
        };
        let masked = together(&engine, submissions(|| LogitsHook::masking(|| Box::new(Third::default()))));
        let hosted = together(&engine, submissions(|| LogitsHook::new(|| Box::new(Third::default()))));
        assert_eq!(masked, hosted, "{model} on {device}");
        let ruled = masked.values().next().expect("three");
        assert!((0..tokens).all(|at| Third::allows(&ruled[..at], ruled[at] as usize)), "{ruled:?}");
    }
}

/// A copy of a checkpoint whose sequences end at other tokens.
fn ending_at(model: &str, ends: &[u32], device: Device) -> Engine {
    let dir = tempfile::tempdir().expect("a folder");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(folder(model).join(file), dir.path().join(file)).expect("copies");
    }
    let ends = serde_json::json!({ "eos_token_id": ends });
    std::fs::write(dir.path().join("generation_config.json"), ends.to_string()).expect("writes");
    // What is mapped stays after its file is gone.
    Engine::load(dir.path(), device).expect("the model loads")
}

/// Rows end in the kernel, each at its own step; with more ends than the kernel looks for, the host
/// sees the others.
#[test]
fn sequences_of_a_batch_end_where_the_checkpoint_says() {
    let model = "tiny-qwen3";
    let tokens = if gpu().is_some() { 40 } else { 5 };
    for device in devices(&[31]) {
        let cases = cases(model);
        let request = |at: usize| Request { prompt_ids: cases[at].prompt_ids.clone(), max_new_tokens: tokens };
        let requests = [request(0), request(2)];
        let whole = engine(model, device).generate(&requests, Sampling::GREEDY, |_, _| ()).expect("generates").0;
        let early = whole[0].token_ids[1];
        let late = whole[1].token_ids[tokens - 2];
        let unused = (1..2000).filter(|id| whole.iter().all(|w| !w.token_ids.contains(id)));
        let many: Vec<u32> = unused.take(8).chain([early, late]).collect();
        for ends in sampled(3, &[&[early, late][..], &[early], &many]) {
            let engine = ending_at(model, ends, device);
            let found = engine.generate(&requests, Sampling::GREEDY, |_, _| ()).expect("generates").0;
            for (found, whole) in found.iter().zip(&whole) {
                let at = whole.token_ids.iter().position(|token| ends.contains(token));
                let expected = &whole.token_ids[..at.map_or(tokens, |at| at + 1)];
                assert_eq!(found.token_ids, expected, "{device}, {ends:?}");
                assert_eq!(matches!(found.finish, Finish::Stop(_)), at.is_some());
                assert!(at.is_some() || found.finish == Finish::Length);
            }
        }
    }
}

#[test]
fn a_cleared_sequence_starts_anew_and_a_full_one_is_refused() {
    for device in devices(&[13]) {
        let engine = engine("tiny-qwen3", device);
        let mut session = Session::of(&engine, 1, 6).expect("a session");
        let mut runs = Vec::new();
        for _ in 0..2 {
            let mut logits = Vec::new();
            session.feed(0, &[5, 6, 7, 8, 9], |row| logits.extend_from_slice(row)).expect("feeds");
            runs.push(logits);
            assert!(matches!(session.feed(0, &[1, 2], |_| ()), Err(EngineError::ContextFull { context: 6, .. })));
            session.clear(0);
        }
        assert!(relative_l2(&runs[0], &runs[1]) < 1e-6);
    }
}

#[test]
fn an_abort_ends_a_generation_and_the_engine_goes_on() {
    for device in devices(&[17]) {
        let engine = engine("tiny-qwen3", device);
        let prompt = &cases("tiny-qwen3")[0].prompt_ids;
        let request = Request { prompt_ids: prompt.clone(), max_new_tokens: 900 };
        let abort = engine.abort_handle();
        let seen = AtomicUsize::new(0);
        // In mid-flight from another thread; the simulator runs a launch to its end before the host
        // is heard.
        let least = if gpu().is_some() { 100 } else { 2 };
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while seen.load(Ordering::Relaxed) < least {
                    std::thread::yield_now();
                }
                abort.abort();
            });
            engine.generate(&[request], Sampling::GREEDY, |_, _| _ = seen.fetch_add(1, Ordering::Relaxed))
        });
        let seen = seen.into_inner();
        println!("aborted after {seen} tokens");
        // Where a launch is short, so is what still comes.
        let most = if gpu().is_some() { 900 } else { 10 };
        assert!((least..most).contains(&seen), "{seen} tokens");
        let error = result.expect_err("the generation is aborted");
        assert!(matches!(error, EngineError::Launch(LaunchError::Aborted { .. })), "{error:?}");
        assert_eq!(generate(&engine, prompt, 2).token_ids.len(), 2);
    }
}

/// Writes and reads buffers of a plan.
struct Hand<'p>(&'p mut DecodePlan);

impl Hand<'_> {
    fn write<T: bytemuck::Pod>(&self, name: &str, values: &[T]) {
        let memory = self.0.buffer(name).expect("a buffer").memory;
        self.0.stream().upload(values, &memory.cast().expect("whole elements")).expect("uploads");
    }

    fn read<T: bytemuck::Pod>(&self, name: &str) -> Vec<T> {
        let memory = self.0.buffer(name).expect("a buffer").memory;
        self.0.stream().read(&memory.cast().expect("whole elements")).expect("reads")
    }

    fn step(&mut self) {
        let stream = self.0.stream().clone();
        self.0.queue(&stream).expect("queues");
        stream.wait().expect("ends");
        self.0.check().expect("no step failed");
    }
}

#[test]
fn a_plan_of_the_model_gives_the_tokens_of_the_engine() {
    for device in devices(&[19]) {
        let engine = engine("tiny-llama", device);
        let prompt = &cases("tiny-llama")[0].prompt_ids[..4];
        let expected = generate(&engine, prompt, 3).token_ids;
        let mut plan = engine.decode_plan(&PlanOptions::for_context(64)).expect("a plan");
        let mut found = Vec::new();
        for position in 0..prompt.len() + expected.len() - 1 {
            let token = prompt.get(position).or(found.last()).copied().expect("a token");
            let mut hand = Hand(&mut plan);
            hand.write("token", &[token]);
            hand.write("position", &[position as i32]);
            hand.step();
            if position + 1 >= prompt.len() {
                found.extend(hand.read::<u32>("next_token"));
            }
        }
        assert_eq!(found, expected, "{device}");
        let again = plan.run(&[prompt[3] as i32], &[3], 3).expect("runs");
        assert_eq!(again, expected, "{device}, in one launch");
    }
}

#[test]
fn plans_of_layers_and_of_halves_of_them_agree() {
    for device in devices(&[23]) {
        let engine = engine("tiny-qwen3", device);
        let layers = engine.spec().layers;
        let rows = 3;
        let plan = |part| {
            let options = PlanOptions { part, rows, ..PlanOptions::for_context(48) };
            engine.decode_plan(&options).expect("a plan")
        };
        let mut whole = plan(PlanPart::Layers(0..layers));
        let mut parts = [plan(PlanPart::Attention(0)), plan(PlanPart::Mlp(0)), plan(PlanPart::Layers(1..layers))];
        assert!(parts[1].buffer("position").is_ok_and(|cell| cell.shape == [rows]));
        assert!(parts[1].buffer("layers.0.k").is_err(), "an MLP keeps no keys");
        for step in 0..3 {
            let hidden: Vec<f32> = (0..rows * engine.spec().hidden).map(|at| ((at + step) % 17) as f32 - 8.0).collect();
            let run = |plan: &mut DecodePlan, hidden: &[f32]| {
                let mut hand = Hand(plan);
                hand.write("hidden.in", hidden);
                hand.write("position", &vec![step as i32; rows]);
                hand.step();
                hand.read::<f32>("hidden.out")
            };
            let expected = run(&mut whole, &hidden);
            let found = parts.iter_mut().fold(hidden, |hidden, part| run(part, &hidden));
            // Programs differ in the order of sums.
            let error = relative_l2(&found, &expected);
            assert!(error < 1e-6, "step {step} on {device}: {error:e}");
        }
    }
}

#[test]
fn a_plan_of_what_there_is_not_is_refused() {
    let error = |engine: &Engine, options| match engine.decode_plan(&options) {
        Ok(_) => panic!("there is no such plan"),
        Err(error) => tilewright::chain(&error),
    };
    let engine = engine("tiny-llama", Device::Sim { seed: 1 });
    let part = |part| PlanOptions { part, ..PlanOptions::for_context(64) };
    let layers = error(&engine, part(PlanPart::Layers(1..9)));
    assert!(layers.contains("a stage has the layers 1:9"), "{layers}");
    let none = error(&engine, PlanOptions { rows: 0, ..PlanOptions::for_context(64) });
    assert!(none.contains("option `rows` is 0"), "{none}");
    let many = error(&engine, PlanOptions { rows: 17, ..PlanOptions::for_context(64) });
    assert!(many.contains("1 to 16 rows, 17 were asked for"), "{many}");
    let host = error(&cpu("tiny-llama"), PlanOptions::for_context(64));
    assert!(host.contains("a plan is of one GPU"), "{host}");
}
