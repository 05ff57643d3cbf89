//! Ranks that have a shard of every layer each, on simulated GPUs: tokens and logits are those of one
//! process; what cannot be shared is refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use half::bf16;
use proptest::prelude::*;
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;
use tilewright::engine::{
    BatchOptions, Batcher, Device, Engine, EngineError, Event, Exchange, Request, Sampling, Submission, Ticket,
};

use crate::tokens::{greedy, reference};
use crate::{Launch, engine, engine_on, model, simulated};

/// What `accuracy` allows of logits, relative to their norm.
const BOUND: f64 = 2e-2;

/// A random model of one layer that four ranks can share: each kv head is on two of them.
pub fn wide(dir: &Path) {
    let (heads, kv_heads, head_dim, hidden, inner, vocab) = (8, 2, 32, 64, 128, 2048);
    let config = serde_json::json!({
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        "hidden_act": "silu", "eos_token_id": 1, "bos_token_id": 0,
    });
    fs::write(dir.join("config.json"), config.to_string()).expect("the folder is writable");
    fs::copy(model("tiny-llama").join("tokenizer.json"), dir.join("tokenizer.json")).expect("a tokenizer");
    let mut state = 7u32;
    let mut random = |shape: Vec<usize>| {
        let mut draw = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        // Norms are vectors near one.
        let [offset, scale] = if shape.len() == 1 { [1.0, 0.2] } else { [0.0, 0.3] };
        let count = shape.iter().product::<usize>();
        let bytes: Vec<u8> = (0..count).flat_map(|_| bf16::from_f32(offset + scale * draw()).to_le_bytes()).collect();
        (shape, bytes)
    };
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let tensors = [
        ("model.embed_tokens.weight".to_owned(), vec![vocab, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
        (layer("input_layernorm"), vec![hidden]),
        (layer("post_attention_layernorm"), vec![hidden]),
        (layer("self_attn.q_proj"), vec![heads * head_dim, hidden]),
        (layer("self_attn.k_proj"), vec![kv_heads * head_dim, hidden]),
        (layer("self_attn.v_proj"), vec![kv_heads * head_dim, hidden]),
        (layer("self_attn.o_proj"), vec![hidden, heads * head_dim]),
        (layer("mlp.gate_proj"), vec![inner, hidden]),
        (layer("mlp.up_proj"), vec![inner, hidden]),
        (layer("mlp.down_proj"), vec![hidden, inner]),
    ]
    .map(|(name, shape)| (name, random(shape)));
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        (name, TensorView::new(Dtype::BF16, shape.clone(), bytes).expect("as many bytes"))
    });
    let file = safetensors::serialize(views, None).expect("tensors");
    fs::write(dir.join("model.safetensors"), file).expect("the folder is writable");
}

/// The worst row's distance of logits from those expected, relative to their norm.
fn worst(found: &[f32], expected: &[f32], vocab: usize) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let of_row = |(found, expected): (&[f32], &[f32])| {
        let off = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
        off / norm(&mut expected.iter().map(|&x| f64::from(x)))
    };
    found.chunks(vocab).zip(expected.chunks(vocab)).map(of_row).fold(0.0, f64::max)
}

#[test]
fn two_shards_give_the_reference_tokens() {
    let cases = reference("tiny-llama");
    let requests: Vec<_> = [&cases[0], &cases[4], &cases[5]]
        .iter()
        .map(|case| Request { prompt_ids: case.prompt_ids.clone(), max_new_tokens: case.greedy_ids.len().min(4) })
        .collect();
    let launch = Launch::new(2).sharded();
    let found = launch.run(|| simulated("tiny-llama", 3), |engine| greedy(&engine, &requests));
    for ((found, request), case) in found.iter().zip(&requests).zip([&cases[0], &cases[4], &cases[5]]) {
        assert_eq!(found, &case.greedy_ids[..request.max_new_tokens]);
    }
}

/// Steps of 80 rows read weights row by row in both: not a bit differs from two devices of one
/// process that add up in NCCL's order. A prompt of 100 tokens is two steps.
#[test]
fn logits_of_two_shards_have_the_bits_of_two_devices_of_one_process() {
    let ids: Vec<u32> = (0..100).map(|at| at * 37 % 1024).collect();
    let wide_steps = |engine: Engine| engine.with_prompt_chunk(80).expect("a graph takes 80 rows");
    let device: Device = "sim:5x2".parse().expect("a device");
    let alone = wide_steps(engine_on("tiny-llama", device)).with_exchange(Exchange::Nccl).expect("several devices");
    let alone = alone.logits(&ids).expect("logits");
    let made = || wide_steps(simulated("tiny-llama", 5));
    let shared = Launch::new(2).sharded().run(made, |engine| engine.logits(&ids).expect("logits"));
    let vocab = 2048;
    let whole = 80 * vocab;
    assert!(shared[..whole] == alone[..whole], "the first step has the same kernels");
    let error = worst(&shared, &alone, vocab);
    println!("the rest, whose kernels are others: {error:.1e}");
    assert!(error < BOUND, "{error}");
    // The roundings of bf16 alone bring the logits of this model further than the bound.
    let expected = engine("tiny-llama").logits(&ids).expect("logits");
    let [error, of_one] = [&shared, &alone].map(|found| worst(found, &expected, vocab));
    println!("from the reference: {error:.1e}, and one process {of_one:.1e}");
    assert!(error < BOUND.max(1.5 * of_one), "{error}");
}

#[test]
fn logits_of_four_shards_are_those_of_the_reference() {
    let folder = TempDir::new().expect("a folder");
    wide(folder.path());
    let ids: Vec<u32> = (0..40).map(|at| at * 41 % 1024).collect();
    let load = |device: Device| Engine::load(folder.path(), device).expect("the model loads");
    let expected = load(Device::Cpu { workers: 1 }).logits(&ids).expect("logits");
    let found = Launch::new(4).sharded().run(|| load(Device::Sim { seed: 2 }), |engine| engine.logits(&ids));
    let error = worst(&found.expect("logits"), &expected, 2048);
    println!("four ranks from the reference: {error:.1e}");
    assert!(error < BOUND, "{error}");
}

/// The texts of requests, each submitted after a number of steps, some cancelled after a number of
/// tokens.
fn texts(engine: &Engine, asked: &[(Submission, usize, Option<usize>)]) -> Vec<Vec<u32>> {
    let options = BatchOptions { rows: 4, deterministic: true, ..BatchOptions::for_context(96) };
    let mut batcher = engine.batcher(&options).expect("a batcher");
    let mut tickets: Vec<Ticket> = Vec::new();
    let mut tokens: BTreeMap<Ticket, Vec<u32>> = BTreeMap::new();
    let step = |batcher: &mut Batcher, tickets: &[Ticket], tokens: &mut BTreeMap<Ticket, Vec<u32>>| {
        let goes_on = batcher.step(|ticket, event| match event {
            Event::Token(token) => tokens.entry(ticket).or_default().push(token.id),
            Event::End(_) => {}
            Event::Fault(error) => panic!("{error}"),
        });
        for (ticket, (_, _, after)) in tickets.iter().zip(asked) {
            if after.is_some_and(|after| tokens.get(ticket).map_or(0, Vec::len) >= after) {
                // One that has ended by itself is gone already.
                let _ = batcher.cancel(*ticket);
            }
        }
        goes_on
    };
    for (submission, steps, _) in asked {
        tickets.push(batcher.submit(submission.clone()).expect("it fits"));
        for _ in 0..*steps {
            step(&mut batcher, &tickets, &mut tokens);
        }
    }
    while step(&mut batcher, &tickets, &mut tokens) {}
    tickets.iter().map(|ticket| tokens.remove(ticket).unwrap_or_default()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if std::env::var_os("TILEWRIGHT_LONG").is_some() { 24 } else { 2 }, ..ProptestConfig::default() })]

    /// Random requests, greedy and sampled, that come and are cancelled while others run: each text is
    /// that of the request alone, to the token where it was cancelled.
    #[test]
    fn texts_of_shards_do_not_depend_on_the_requests_beside_them(
        asked in prop::collection::vec((2usize..12, 1usize..5, any::<bool>(), 0usize..3, prop::option::of(1usize..3)), 2..5),
        seed in 0u64..100,
    ) {
        let folder = TempDir::new().expect("a folder");
        wide(folder.path());
        let of = |(at, (prompt, count, is_greedy, steps, cancelled)): (usize, (usize, usize, bool, usize, Option<usize>))| {
            let prompt_ids = (0..prompt).map(|token| ((token * 31 + at * 7) % 900 + 3) as u32).collect();
            let sampling = Sampling::default().temperature(0.8).seed(seed + at as u64);
            let sampling = if is_greedy { Sampling::GREEDY } else { sampling };
            let request = Request { prompt_ids, max_new_tokens: count };
            (Submission { sampling, ..Submission::from(request) }, steps, cancelled)
        };
        let asked: Vec<_> = asked.into_iter().enumerate().map(of).collect();
        let made = || Engine::load(folder.path(), Device::Sim { seed }).expect("the model loads");
        let (together, alone) = Launch::new(2).sharded().run(made, |engine| {
            let alone: Vec<_> = asked.iter().map(|one| texts(&engine, &[(one.0.clone(), 0, None)]).remove(0)).collect();
            (texts(&engine, &asked), alone)
        });
        for ((found, expected), (_, _, cancelled)) in together.iter().zip(&alone).zip(&asked) {
            let expected = &expected[..cancelled.unwrap_or(usize::MAX).min(expected.len())];
            prop_assert_eq!(found, expected);
        }
    }
}

/// The error of a rank that does not join.
fn refused(launch: &Launch, engine: Engine) -> String {
    launch.driver(engine).err().map(|error| tilewright::chain(&error)).expect("it is refused")
}

#[test]
fn what_cannot_be_shared_is_refused_before_any_rank_joins() {
    let shards = || Launch::new(2).sharded();
    let error = refused(&Launch { size: 4, ..shards() }, simulated("tiny-llama", 0));
    assert!(error.contains("--tensor-parallel is 2, and the process group has 4 processes; give 4"), "{error}");
    for engine in [engine("tiny-llama"), engine_on("tiny-llama", "sim:0x2".parse().expect("a device"))] {
        assert!(refused(&shards(), engine).contains("a process has one shard of the model, on one GPU"));
    }
    let error = refused(&shards(), simulated("tiny-qwen3", 0));
    assert!(error.contains("`heads` is 5, which 2 devices cannot share evenly"), "{error}");
    let error = refused(&shards(), simulated("quant/tiny-llama-w4a16", 0));
    assert!(error.contains("quantised weights have no shards in several processes"), "{error}");
}

#[test]
fn ranks_that_cut_the_model_otherwise_are_refused_on_both_sides() {
    let launch = Launch::new(2);
    std::thread::scope(|scope| {
        let driver = scope.spawn(|| launch.driver(simulated("tiny-llama", 0)));
        let sharded = launch.clone().sharded();
        let error = |result: Result<(), EngineError>| result.expect_err("they differ").to_string();
        let rank = error(sharded.stage(1, simulated("tiny-llama", 0)).map(drop));
        let driver = error(driver.join().expect("no panic").map(drop));
        let reason = "it was started with --tensor-parallel 2, rank 0 with 1; give all ranks the same";
        assert_eq!(driver, format!("rank 1 cannot join: {reason}"));
        assert_eq!(rank, format!("rank 0 refuses rank 1: {reason}"));
    });
}
