//! Laws of weights: shares outlive their makers, types and sizes are checked, random values are
//! what they promise.

use std::sync::Arc;

use half::bf16;
use proptest::prelude::*;
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::model::Architecture;
use tilewright_megakernel::weights::{RandomWeights, SharedBytes, WeightError, WeightTensor, Weights};

fn spec() -> Llama {
    Llama {
        qkv_bias: true,
        qk_norm: true,
        ..Llama::small().hidden(96).inner(200).vocab(1000).max_positions(64).tied(false)
    }
}

#[test]
fn a_share_outlives_its_maker_and_copies_nothing() {
    let owner = Arc::new(vec![7u8; 64]);
    let address = owner.as_ptr();
    let share = SharedBytes::new(owner, 16..32).unwrap();
    let tensor = WeightTensor::new(DType::U8, vec![16], share).unwrap();
    assert_eq!(tensor.bytes().as_ref(), [7; 16]);
    assert_eq!(tensor.bytes().as_ref().as_ptr(), address.wrapping_add(16));
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "a reversed range is the case under test")]
fn a_range_outside_its_owner_is_refused() {
    let owner = Arc::new(vec![0u8; 8]);
    assert!(SharedBytes::new(owner.clone(), 0..8).is_some());
    assert!(SharedBytes::new(owner.clone(), 0..9).is_none());
    assert!(SharedBytes::new(owner, 5..3).is_none());
}

#[test]
fn sizes_are_checked() {
    let bytes = SharedBytes::aligned_copy(&[0; 12]);
    let error = WeightTensor::new(DType::F32, vec![2, 2], bytes.clone()).unwrap_err();
    insta::assert_snapshot!(error, @"tensor of f32 with shape [2, 2] has 12 bytes, 16 are needed");
    let error = WeightTensor::new(DType::F32, vec![usize::MAX, 2], bytes).unwrap_err();
    insta::assert_snapshot!(error, @"tensor of f32 with shape [18446744073709551615, 2] has more bytes than fit 64 bits");
    let error = RandomWeights::new(&spec(), DType::I8, 0).unwrap_err();
    insta::assert_snapshot!(error, @"element type of random weights is i8; use f32, f16 or bf16");
    assert_eq!(error, WeightError::RandomDtype { found: DType::I8 });
}

proptest! {
    /// Wherever the bytes lie, the elements are the ones that were stored; only misaligned bytes
    /// are copied.
    #[test]
    fn elements_survive_any_alignment(values in prop::collection::vec(any::<f32>(), 0..50), offset in 0usize..9) {
        let mut memory = vec![0; offset + values.len() * 4];
        memory[offset..].copy_from_slice(bytemuck::cast_slice(&values));
        let owner = Arc::new(memory);
        let address = owner.as_ptr().wrapping_add(offset);
        let share = SharedBytes::new(owner, offset..offset + values.len() * 4).unwrap();
        let tensor = WeightTensor::new(DType::F32, vec![values.len()], share).unwrap();
        let read: Vec<u32> = tensor.as_f32().unwrap().iter().map(|v| v.to_bits()).collect();
        prop_assert_eq!(read, values.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
        prop_assert!(tensor.as_bf16().is_none() && tensor.as_f16().is_none());
        prop_assert_eq!(tensor.bytes().as_ref().as_ptr() == address, address.addr().is_multiple_of(4));
    }
}

#[test]
fn random_weights_are_complete_and_have_the_promised_spread() {
    let spec = spec();
    let weights = RandomWeights::new(&spec, DType::F32, 3).unwrap();
    for tensor in spec.model().unwrap().tensors() {
        let values = weights.tensor(&tensor.name).unwrap();
        assert_eq!(values.shape(), tensor.shape, "{}", tensor.name);
        let values = values.as_f32().unwrap();
        let count = values.len() as f64;
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
        let deviation = (values.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / count).sqrt();
        let (expected_mean, expected_deviation) = match tensor.shape[..] {
            [_, columns] => (0.0, 1.0 / (columns as f64).sqrt()),
            _ if tensor.name.ends_with(".bias") => (0.0, 0.02 / 3f64.sqrt()),
            _ => (1.0, 0.1 / 3f64.sqrt()),
        };
        let error = 4.0 * expected_deviation / count.sqrt();
        assert!((mean - expected_mean).abs() < error, "{}: mean {mean}", tensor.name);
        assert!(
            (deviation / expected_deviation - 1.0).abs() < 2.0 / count.sqrt() + 1e-3,
            "{}: {deviation}",
            tensor.name
        );
    }
    assert!(weights.tensor("model.layers.2.input_layernorm.weight").is_none());
}

#[test]
fn random_weights_depend_on_name_and_seed_alone() {
    let one = RandomWeights::new(&spec(), DType::BF16, 1).unwrap();
    let again = RandomWeights::new(&spec(), DType::BF16, 1).unwrap();
    let other = RandomWeights::new(&spec(), DType::BF16, 2).unwrap();
    let bits = |weights: &RandomWeights, name: &str| weights.tensor(name).unwrap().bytes().as_ref().to_vec();
    let gate = "model.layers.0.mlp.gate_proj.weight";
    let up = "model.layers.0.mlp.up_proj.weight";
    assert_eq!(bits(&one, gate), bits(&again, gate));
    assert_ne!(bits(&one, gate), bits(&other, gate));
    assert_ne!(bits(&one, gate), bits(&one, up));
    // A golden value, so that the stream cannot change unnoticed between machines or versions.
    let first: Vec<bf16> = one.tensor(gate).unwrap().as_bf16().unwrap()[..4].to_vec();
    insta::assert_debug_snapshot!(first, @"
    [
        -0.05859375,
        0.005645752,
        -0.16699219,
        -0.13476563,
    ]
    ");
}

/// The time that a model the size of Llama-3.2-1B takes:
/// `cargo test --release -p tilewright-megakernel -- --ignored --nocapture`.
#[test]
#[ignore = "2.5 GB of memory"]
fn a_model_of_one_billion_is_made_in_seconds() {
    let spec = Llama {
        qkv_bias: false,
        qk_norm: false,
        ..spec().hidden(2048).layers(16).head_dim(64).inner(8192).vocab(128_256).tied(true).heads(32, 8)
    };
    let start = std::time::Instant::now();
    let weights = RandomWeights::new(&spec, DType::BF16, 1).unwrap();
    let bytes: usize =
        spec.model().unwrap().tensors().iter().map(|t| weights.tensor(&t.name).unwrap().bytes().as_ref().len()).sum();
    println!("{bytes} bytes in {:.2?}", start.elapsed());
    assert_eq!(bytes, 2_471_628_800);
}
