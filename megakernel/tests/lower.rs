//! Laws of the lowering: what every lowered program has, whatever the model, the batch and the
//! target.

use std::collections::{BTreeSet, HashMap};

use proptest::prelude::*;
use tilewright_codegen::target::Target;
use tilewright_graph::graph::HeadOrder;
use tilewright_graph::models::Llama;
use tilewright_graph::op::RopePairs;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerError, LowerOptions, lower};
use tilewright_megakernel::model::{Architecture, ModelSpec};
use tilewright_megakernel::ops::Embed;
use tilewright_megakernel::program::{Buffer, BufferKind, Operands, Program, Source, Span};

/// A small model of any shape the families allow.
fn small_spec() -> impl Strategy<Value = Llama> {
    let sizes = (1usize..4, 1usize..5, 1usize..8, 1usize..40, 1usize..80, 1usize..90);
    (sizes, 1usize..120, any::<[bool; 5]>()).prop_map(|((layers, kv_heads, group, half, hidden, mlp), vocab, flags)| {
        let [tied_embeddings, qkv_bias, o_bias, mlp_bias, qk_norm] = flags;
        Llama {
            qkv_bias,
            o_bias,
            mlp_bias,
            qk_norm,
            ..Llama::small()
                .hidden(hidden)
                .layers(layers)
                .head_dim(2 * half)
                .inner(mlp)
                .vocab(vocab)
                .max_positions(512)
                .tied(tied_embeddings)
                .heads(kv_heads * group, kv_heads)
        }
    })
}

fn lowered(spec: &Llama, sms: usize, options: &LowerOptions) -> Program {
    lower(spec, &|_| DType::BF16, Target::host(sms), options).expect("a consistent model lowers")
}

proptest! {
    #[test]
    fn every_tensor_is_a_weight_and_is_read_once(
        spec in small_spec(), sms in 1usize..40, rows in 1usize..5, sampling: bool,
    ) {
        let options = LowerOptions { rows, sampling, ..LowerOptions::for_context(100) };
        let program = lowered(&spec, sms, &options);
        let expected: BTreeSet<String> = spec.model().unwrap().tensors().into_iter().map(|t| t.name).collect();
        let weights = program.buffers.iter().filter(|b| b.kind == BufferKind::Weight);
        let found: BTreeSet<String> = weights
            .filter_map(|b| match &b.source {
                Some(Source::Tensor(name)) => Some(name.clone()),
                _ => None,
            })
            .collect();
        prop_assert_eq!(found, expected);

        // Matrices are the bytes of a step: each element is read by exactly one task, but for the
        // embedding table.
        let mut elements: HashMap<usize, usize> = HashMap::new();
        for task in &program.tasks {
            for region in &task.reads {
                let buffer = &program.buffers[region.buffer.index()];
                let is_matrix = buffer.kind == BufferKind::Weight && buffer.shape.len() == 2;
                if is_matrix && !task.op.is::<Embed>() {
                    *elements.entry(region.buffer.index()).or_default() += region.elements();
                }
            }
        }
        for buffer in program.buffers.iter().filter(|b| b.kind == BufferKind::Weight && b.shape.len() == 2) {
            let embedding_only = buffer.name == "model.embed_tokens.weight" && !spec.decoder.tied;
            let expected = if embedding_only { None } else { buffer.elements() };
            prop_assert_eq!(elements.get(&buffer.id.index()).copied(), expected, "{}", buffer.name);
        }
    }

    #[test]
    fn declared_regions_are_footprints_and_signals_meet_waits(
        spec in small_spec(), sms in 1usize..40, rows in 1usize..5, sampling: bool,
    ) {
        let program = lowered(&spec, sms, &LowerOptions { rows, sampling, ..LowerOptions::for_context(200) });
        let mut producers = vec![0u32; program.counters.len()];
        for task in &program.tasks {
            let footprint = task.op.footprint(&Operands::new(&program.buffers)).expect("operands fit");
            prop_assert_eq!((&footprint.reads, &footprint.writes), (&task.reads, &task.writes));
            task.signals.iter().for_each(|c| producers[c.index()] += 1);
        }
        for wait in program.tasks.iter().flat_map(|t| &t.waits) {
            prop_assert_eq!(wait.threshold, producers[wait.counter.index()], "{}", wait.counter);
        }
    }

    #[test]
    fn json_is_a_stable_round_trip(spec in small_spec(), sms in 1usize..9, sampling: bool) {
        let program = lowered(&spec, sms, &LowerOptions { sampling, ..LowerOptions::for_context(64) });
        let text = program.to_json().expect("writes");
        let read = Program::from_json(&text).expect("reads what it wrote");
        prop_assert_eq!(&read, &program);
        prop_assert_eq!(read.to_json().expect("writes"), text);
    }
}

#[test]
fn known_models_fill_an_h100_with_five_levels_a_layer() {
    for (name, layers) in [("llama-3.2-1b", 16), ("llama-3.1-8b", 32)] {
        let spec = ModelSpec::named(name).expect("a known model");
        let target = Target::named("h100").expect("a known target");
        let program = lower(&spec, &|_| DType::BF16, target, &LowerOptions::for_context(4096)).expect("lowers");
        // Per layer: 8 heads x 16 tiles of qkv, 8 x 16 splits of attention, 132 tiles each of o,
        // gate/up and down.
        assert_eq!(program.tasks.len(), 1 + layers * (128 + 128 + 3 * 132) + 132 + 1);
        assert_eq!(program.counters.len(), 1 + layers * (8 + 4) + 1);
    }
}

#[test]
fn options_out_of_bounds_are_refused_by_name() {
    let spec = ModelSpec::named("llama-3.2-1b").expect("a known model");
    let lower = |options: LowerOptions| {
        lower(&spec, &|_| DType::BF16, Target::host(2), &options).map(drop).expect_err("refused").to_string()
    };
    let base = LowerOptions::for_context(128);
    insta::assert_snapshot!(lower(LowerOptions { rows: 0, ..base.clone() }), @"option `rows` is 0, it must be from 1 to 4096");
    insta::assert_snapshot!(lower(LowerOptions { page_tokens: 8, ..base.clone() }), @"option `page_tokens` is 8, it must be from 16 to 256");
    insta::assert_snapshot!(lower(LowerOptions { context: 1 << 20, ..base.clone() }), @"option `context` is 1048576, it must be from 1 to 131072");
    insta::assert_snapshot!(lower(LowerOptions { splits: Some(1000), ..base.clone() }), @"option `splits` is 1000, it must be from 1 to 256");
    insta::assert_snapshot!(lower(LowerOptions { kv: DType::I8, ..base.clone() }), @"option `kv` is i8, it must be f32, f16, bf16 or f8e4m3");
    let layers = |lo, hi| LowerOptions { layers: Some(Span::new(lo, hi)), ..base.clone() };
    insta::assert_snapshot!(lower(layers(1, 1)), @"a stage has the layers 1:1, the model has 0:16; name at least one, and none beyond the last");
    insta::assert_snapshot!(lower(layers(0, 99)), @"a stage has the layers 0:99, the model has 0:16; name at least one, and none beyond the last");
}

/// A product of sizes that wrapped would be small again: within bounds, and with splits.
#[test]
fn products_of_options_saturate() {
    let spec = ModelSpec::named("llama-3.2-1b").expect("a known model");
    // 2^60 rows of 2^4 pages: 2^64.
    let wrapping = LowerOptions { rows: 1 << 60, page_tokens: 16, ..LowerOptions::for_context(256) };
    assert_eq!(wrapping.pool_pages(), usize::MAX);
    assert_eq!(wrapping.clone().splits_for_gpu(1 << 4, 132).splits, Some(1));
    let lowered = lower(&spec, &|_| DType::BF16, Target::host(2), &wrapping);
    assert!(matches!(lowered, Err(LowerError::Option { name: "rows", .. })), "{:?}", lowered.map(drop));
}

/// A model that rotates 32 of the 64 dimensions of a head: queries and keys come in the order of the
/// rotation, values as they are, and the other pairs have the frequency 0.
#[test]
fn a_rotation_of_a_part_reorders_queries_and_keys() {
    let mut part = Llama::named("llama-3.2-1b").expect("a known model").layers(1);
    part.decoder.rope.frequencies.truncate(16);
    let program = lowered(&part, 2, &LowerOptions::for_context(64));
    let order_of = |projection: &str| {
        let is_it = |source: &&Source| match source {
            Source::Tensor(tensor) | Source::Part { tensor, .. } | Source::Experts { tensor, .. } => {
                tensor.ends_with(projection)
            }
            Source::Heads { .. } | Source::Random(_) | Source::Values(_) => false,
        };
        match program.buffers.iter().filter_map(|buffer| buffer.source.as_ref()).find(is_it).expect("a weight") {
            Source::Part { order, .. } => *order,
            Source::Tensor(_) | Source::Experts { .. } | Source::Heads { .. } => None,
            Source::Random(_) | Source::Values(_) => None,
        }
    };
    let expected = HeadOrder { head_dim: 64, rotated: 32, pairs: RopePairs::Halves };
    let [q, k, v] = ["q_proj.weight", "k_proj.weight", "v_proj.weight"].map(order_of);
    assert_eq!([q, k, v], [Some(expected), Some(expected), None]);
    let values = |buffer: &Buffer| match &buffer.source {
        Some(Source::Values(values)) => Some(values.clone()),
        Some(Source::Tensor(_) | Source::Part { .. } | Source::Experts { .. } | Source::Heads { .. }) => None,
        Some(Source::Random(_)) | None => None,
    };
    let frequencies = program.buffers.iter().find_map(values).expect("a table");
    assert_eq!(frequencies[..16], part.decoder.rope.frequencies);
    assert_eq!(frequencies[16..], [0.0; 16]);
}

#[test]
fn inconsistent_models_and_weights_are_refused() {
    let good = Llama::named("llama-3.2-1b").expect("a known model");
    let refuse = |spec: &Llama, dtype| {
        let options = LowerOptions::for_context(128);
        lower(spec, &|_| dtype, Target::host(2), &options).map(drop).expect_err("refused")
    };
    let uneven = refuse(&good.clone().heads(32, 5), DType::BF16).to_string();
    assert!(uneven.contains("which does not fit `k` f32[positions, kv_heads 5, head_dim 64]"), "{uneven}");
    let mut odd = good.clone();
    odd.decoder.sizes.head_dim = 63;
    let odd = refuse(&odd, DType::BF16).to_string();
    assert!(odd.contains("head_dim 63"), "{odd}");
    insta::assert_snapshot!(refuse(&good.clone().layers(0), DType::BF16), @"the model has 0 of the axis `heads`; a decoder has from 1 to 2^28");
    insta::assert_snapshot!(refuse(&good, DType::I8), @"tensor `model.embed_tokens.weight` has dtype i8; weights may be f32, f16 or bf16");
    let mut no_sms = Target::host(1);
    no_sms.sms = 0;
    let error = lower(&good, &|_| DType::F32, no_sms, &LowerOptions::for_context(8)).map(drop);
    assert!(matches!(error, Err(LowerError::NoSms { .. })), "{error:?}");
}
