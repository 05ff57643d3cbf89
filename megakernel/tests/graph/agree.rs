//! Logits agree with the reference machine.

use std::sync::Arc;

use proptest::prelude::*;
use tilewright_codegen::ir::Arch;
use tilewright_megakernel::lower::LOGITS;
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::schedule::schedule;
use tilewright_megakernel::testing::{small_families, small_family, small_mixtures, small_norms};
use tilewright_megakernel::vm::device::{DeviceMachine, DeviceOptions};
use tilewright_megakernel::vm::graph::{GraphMachine, GraphTuning, GraphWeights};
use tilewright_megakernel::vm::resident::DeviceWeights;

use super::lab::{
    PAGES, Reference, Rows, gemma2, gemma2_with, machine, normed, packed, planned, program, prompt, random, step, tiny,
    weights, worst,
};

/// Logits, relative, of the worst row: activations are bf16 between launches, the residual stream
/// is f32.
const BOUND: f64 = 2e-2;

const PAGES_OF: [[i32; PAGES]; 2] = [[5, 17, 2, 9, 23, 0, 11, 14], [1, 3, 20, 4, 22, 6, 8, 7]];

/// A prompt in chunks of these sizes.
fn feed(machine: &mut GraphMachine, tokens: &[i32], chunks: &[usize]) -> Vec<Vec<f32>> {
    let mut first = 0;
    let mut all = Vec::new();
    for &chunk in chunks.iter().cycle() {
        let end = tokens.len().min(first + chunk);
        let mut rows = Rows::default();
        rows.add(&tokens[first..end], first, &PAGES_OF[0]);
        all.extend(step(machine, &rows));
        first = end;
        if first == tokens.len() {
            break;
        }
    }
    all
}

fn agrees(spec: &impl Architecture, arch: Arch, tokens: usize, chunks: &[usize], seed: u64) {
    let prompt = prompt(tokens, seed as i32);
    let mut machine = machine(&mut weights(spec, arch, seed), spec, 32);
    let found = feed(&mut machine, &prompt, chunks);
    let mut rows = Rows::default();
    rows.add(&prompt, 0, &PAGES_OF[0]);
    let error = worst(&found, &Reference::new(spec, tokens).step(&rows));
    println!("{tokens} tokens in chunks of {chunks:?}, {arch}: {error:.1e}");
    assert!(error < BOUND, "{tokens} tokens in chunks of {chunks:?}, seed {seed}: {error}");
}

#[test]
fn a_prompt_in_chunks_agrees_with_the_reference() {
    agrees(&tiny(64), Arch::Sm90a, 70, &[32], 0);
    agrees(&tiny(32), Arch::Sm90a, 70, &[32, 1, 17], 1);
}

/// Prompts go beyond the window, by tensor maps and by copies.
#[test]
fn gemma_2_agrees_with_the_reference() {
    agrees(&gemma2(64), Arch::Sm90a, 70, &[32], 21);
    agrees(&gemma2(64), Arch::Sm90a, 44, &[32, 1, 7], 22);
    agrees(&gemma2(32), Arch::Sm80, 40, &[32], 23);
}

/// Parts of weights, rows of heads in another order, two rotations and none, norms of the stream
/// divided by a factor.
#[test]
fn families_by_their_graphs_agree_with_the_reference() {
    for (seed, spec) in (31..).zip(small_families(64)) {
        let chunks: &[usize] = if seed % 2 == 0 { &[32] } else { &[32, 1, 7] };
        agrees(&spec, if seed == 33 { Arch::Sm80 } else { Arch::Sm90a }, 40, chunks, seed);
    }
}

/// Norms that a launch has for itself, or none; of whole queries and keys.
#[test]
fn other_norms_agree_with_the_reference() {
    for (seed, spec) in (71..).zip(small_norms(64)) {
        agrees(&spec, Arch::Sm90a, 40, &[32, 1, 7], seed);
        agrees(&spec, Arch::Sm80, 24, &[17, 7], seed + 10);
        // By products of packed weights, which are added to the residual stream at once.
        let prompt = prompt(40, seed as i32);
        let mut shared = weights(&spec, Arch::Sm90a, seed);
        shared.share(&packed(&spec, shared.device().clone()));
        let found = feed(&mut machine(&mut shared, &spec, 32), &prompt, &[32, 7, 1]);
        let mut rows = Rows::default();
        rows.add(&prompt, 0, &PAGES_OF[0]);
        let error = worst(&found, &Reference::new(&spec, 40).step(&rows));
        assert!(error < BOUND, "{}, packed, seed {seed}: {error}", spec.name());
    }
}

/// Choices sorted by expert, and grouped products, by tensor maps and by copies. Activations are
/// bf16, so a row whose logits of two experts are close may choose another than the reference: these
/// prompts have none.
#[test]
fn mixtures_of_experts_agree_with_the_reference() {
    let [mixtral, qwen, gpt_oss, shared] = &small_mixtures(64)[..] else { panic!("four families") };
    agrees(mixtral, Arch::Sm90a, 40, &[32, 1, 7], 57);
    agrees(qwen, Arch::Sm80, 24, &[17, 7], 58);
    agrees(gpt_oss, Arch::Sm90a, 24, &[17, 7], 62);
    agrees(shared, Arch::Sm90a, 24, &[17, 7], 63);
    agrees(shared, Arch::Sm80, 24, &[7, 17], 66);
}

/// A layer that rotates by the table of another shows: norms of heads make scores so large that
/// rotations count.
#[test]
fn a_rotation_of_another_layer_shows() {
    let spec = |theta: f64, local: f64| {
        let own = serde_json::json!({
            "model_type": "gemma3_text", "query_pre_attn_scalar": 64, "sliding_window": 40, "sliding_window_pattern": 2,
            "rope_theta": theta, "rope_local_base_freq": local,
        });
        small_family(64, &own)
    };
    let right = spec(1e6, 10.0);
    let prompt = prompt(40, 21);
    let found = feed(&mut machine(&mut weights(&right, Arch::Sm90a, 21), &right, 32), &prompt, &[32]);
    let mut rows = Rows::default();
    rows.add(&prompt, 0, &PAGES_OF[0]);
    let error = |spec: &ModelSpec| worst(&found, &Reference::new(spec, 40).step(&rows));
    // Large scores are sharp: rounding of keys to bf16 shows more than in other models.
    let of_right = error(&right);
    assert!(of_right < 3.0 * BOUND, "{of_right:.1e}");
    for theta in [10.0, 1e6] {
        let error = error(&spec(theta, theta));
        assert!(error > 20.0 * BOUND, "{theta} for both: {error:.1e} would pass unnoticed");
    }
}

/// The bound of the test of Gemma 2 notices each of these.
#[test]
fn a_modifier_of_gemma_2_that_is_left_out_shows() {
    let spec = gemma2(64);
    let prompt = prompt(40, 21);
    let found = feed(&mut machine(&mut weights(&spec, Arch::Sm90a, 21), &spec, 32), &prompt, &[32]);
    let mut rows = Rows::default();
    rows.add(&prompt, 0, &PAGES_OF[0]);
    for key in ["attn_logit_softcapping", "final_logit_softcapping", "sliding_window"] {
        let without = gemma2_with(64, &serde_json::json!({ key: null }));
        let error = worst(&found, &Reference::new(&without, 40).step(&rows));
        assert!(error > 2.0 * BOUND, "without {key}: {error:.1e} would pass unnoticed");
    }
}

#[test]
fn depths_whose_rows_are_swizzled_by_lines_agree_with_the_reference() {
    let spec = tiny(128).layers(1).heads(2, 1);
    agrees(&spec, Arch::Sm90a, 45, &[32], 2);
}

#[test]
fn norms_of_heads_and_biases_agree_with_the_reference() {
    agrees(&normed(tiny(64)), Arch::Sm90a, 40, &[32, 5], 3);
}

/// A launch takes any number of query heads of a key/value head: rows of their own go to the decode
/// kernel up to 16, and to the prefill kernel beyond.
#[test]
fn groups_of_17_and_more_query_heads_agree_with_the_reference() {
    for (group, arch) in [(16, Arch::Sm80), (17, Arch::Sm90a)] {
        let spec = tiny(64).layers(1).heads(group, 1);
        agrees(&spec, arch, 5, &[4, 1], 6);
    }
}

#[test]
fn other_architectures_agree_with_the_reference() {
    agrees(&tiny(64).layers(1), Arch::Sm80, 40, &[32], 4);
    agrees(&normed(tiny(32)), Arch::Sm89, 33, &[20], 5);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    #[test]
    fn prompts_of_any_length_in_chunks_of_any_size_agree(
        tokens in 1usize..=70,
        chunks in prop::collection::vec(1usize..=32, 1..=3),
        seed in 0u64..1000,
    ) {
        agrees(&tiny(64).layers(1), Arch::Sm90a, tokens, &chunks, seed);
    }
}

/// A graph beside a decode machine reads that one's weights, has no copy of its own, and gives what
/// the reference gives.
#[test]
fn packed_weights_of_a_decode_machine_agree_with_the_reference() {
    let shares = GraphTuning::SHARES;
    let small = GraphTuning { tile: 16, stages: 3, ..shares };
    let staying = GraphTuning { staying: 2, ..shares };
    let specs = [(tiny(64), 10, small), (normed(tiny(32)), 11, shares), (tiny(32).inner(160), 12, staying)];
    for (spec, seed, tuning) in specs {
        let prompt = prompt(40, seed as i32);
        let mut shared = weights(&spec, Arch::Sm90a, seed);
        shared.tune(Some(tuning));
        shared.share(&packed(&spec, shared.device().clone()));
        let mut machine = machine(&mut shared, &spec, 32);
        assert_eq!((shared.bytes(), machine.plan().matrices.len()), (0, 0));
        let found = feed(&mut machine, &prompt, &[32, 7, 1]);
        let mut rows = Rows::default();
        rows.add(&prompt, 0, &PAGES_OF[0]);
        let error = worst(&found, &Reference::new(&spec, 40).step(&rows));
        println!("packed, head dim {}: {error:.1e}", spec.decoder.sizes.head_dim);
        assert!(error < BOUND, "seed {seed}: {error}");
    }
}

/// Rows of two sequences, one after a prefix, with idle rows between and after them; then both go
/// on, in another order.
#[test]
fn rows_of_several_sequences_agree_with_the_reference() {
    let spec = tiny(64).layers(1);
    let mut machine = machine(&mut weights(&spec, Arch::Sm90a, 6), &spec, 32);
    let mut reference = Reference::new(&spec, 32);
    let [a, b] = [prompt(30, 1), prompt(30, 2)];
    let mut steps = vec![Rows::default(); 3];
    steps[0].add(&a[..19], 0, &PAGES_OF[0]);
    steps[1].add(&b[..7], 0, &PAGES_OF[1]);
    steps[1] = std::mem::take(&mut steps[1]).idle(10);
    steps[1].add(&a[19..28], 19, &PAGES_OF[0]);
    steps[2].add(&b[7..18], 7, &PAGES_OF[1]);
    steps[2].add(&a[28..], 28, &PAGES_OF[0]);
    for (at, rows) in steps.iter().enumerate() {
        let error = worst(&step(&mut machine, rows), &reference.step(rows));
        assert!(error < BOUND, "step {at}: {error}");
    }
}

/// Kernels that a prompt does not need are compiled when they are first launched: attention of a
/// single row.
#[test]
fn kernels_are_compiled_when_they_are_needed() {
    let spec = tiny(64).layers(1);
    let mut shared = weights(&spec, Arch::Sm90a, 1);
    let mut machine = machine(&mut shared, &spec, 32);
    let compiled = |shared: &GraphWeights, name: &str| {
        shared.kernels().compilations().iter().filter(|one| one.name.starts_with(name)).count()
    };
    feed(&mut machine, &prompt(20, 1), &[20]);
    assert_eq!([compiled(&shared, "decode_"), compiled(&shared, "prefill_")], [0, 1]);
    feed(&mut machine, &prompt(1, 1), &[1]);
    assert_eq!([compiled(&shared, "decode_"), compiled(&shared, "prefill_")], [1, 1]);
}

/// Of a chunk's rows one is asked for, or none.
#[test]
fn the_logits_of_the_last_row_are_those_of_all_rows() {
    let spec = tiny(32).layers(1);
    let mut machine = machine(&mut weights(&spec, Arch::Sm90a, 7), &spec, 32);
    let mut rows = Rows::default();
    rows.add(&prompt(21, 3), 0, &PAGES_OF[1]);
    let rows = rows.idle(32);
    let all = step(&mut machine, &rows);
    let mut last = Vec::new();
    machine.step(&rows.view(), &[20], &mut |row, logits| last.push((row, logits.to_vec()))).unwrap();
    assert_eq!(last[0].0, 20);
    let error = worst(&[last[0].1.clone()], &all[20..]);
    // Another product: the same operands in another order of sums.
    assert!(last.len() == 1 && error < 1e-5, "{error}");
    machine.step(&rows.view(), &[], &mut |_, _| panic!("no row was asked for")).unwrap();
    machine.submit(&rows.view()).unwrap();
    machine.wait().unwrap();
    let error = machine.step(&rows.view(), &[32], &mut |_, _| ()).unwrap_err().to_string();
    assert!(error.contains("32"), "{error}");
}

/// A prompt by one machine, tokens by the other, on the same pools, whichever of them made these.
#[test]
fn decoding_goes_on_after_a_prompt() {
    for (head_dim, seed) in [(64, 8), (32, 9)] {
        let spec = tiny(head_dim);
        let prompt = prompt(40, 5);
        let mut graphs = weights(&spec, Arch::Sm90a, seed);
        let mut decoding = DeviceWeights::new(graphs.device().clone(), Arc::new(random(&spec)));
        let placed = schedule(program(&spec, 1, 4), 64).unwrap();
        let options = DeviceOptions { stage_bytes: 2048, ..DeviceOptions::for_simulator() };
        let one = |decode: &mut DeviceMachine, at: usize| {
            let mut row = Rows::default();
            row.add(&prompt[at..=at], at, &PAGES_OF[0]);
            decode.step(&row.view()).unwrap();
            decode.f32_row(LOGITS, 0).unwrap()
        };
        let load = |weights: &mut GraphWeights, kv| weights.machine(planned(&spec, 32), kv, &mut |_, _| ()).unwrap();
        let (mut prefill, mut decode) = if seed == 8 {
            let prefill = load(&mut graphs, None);
            let decode = decoding.machine(placed, Some(prefill.kv()), options, &mut |_, _| ()).unwrap();
            (prefill, decode)
        } else {
            let decode = decoding.machine(placed, None, options, &mut |_, _| ()).unwrap();
            (load(&mut graphs, Some(decode.kv())), decode)
        };
        let mut rows = Rows::default();
        rows.add(&prompt, 0, &PAGES_OF[0]);
        let expected = Reference::new(&spec, 40).step(&rows);
        // 20 tokens by the graph, 2 by the other, 16 by the graph again, 2 by the other.
        let mut found = Vec::new();
        for (first, end) in [(0, 20), (22, 38)] {
            let mut rows = Rows::default();
            rows.add(&prompt[first..end], first, &PAGES_OF[0]);
            found.extend(step(&mut prefill, &rows));
            found.extend((end..end + 2).map(|at| one(&mut decode, at)));
        }
        let error = worst(&found, &expected);
        assert!(error < BOUND, "head dim {head_dim}: {error}");
    }
}

/// Kernels and matrices are made once, whatever rows, pages and contexts the programs have.
#[test]
fn machines_share_matrices_and_kernels() {
    let spec = tiny(32).layers(1);
    let mut shared = weights(&spec, Arch::Sm90a, 1);
    let first = machine(&mut shared, &spec, 32);
    let bytes = shared.bytes();
    let kernels = shared.kernels().compilations().len();
    let matrices: usize = 64 * (136 + 10 * 32 + 192 + 192 + 96);
    assert_eq!(bytes, matrices as u64 * 2);
    let none = &mut |_, _| panic!("the weights are on the device already");
    let second = shared.machine(planned(&spec, 32), Some(first.kv()), none).unwrap();
    assert_eq!((shared.bytes(), shared.kernels().compilations().len()), (bytes, kernels));
    assert_eq!(second.plan().launches, first.plan().launches);
}
