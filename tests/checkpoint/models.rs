//! The shipped models: what they are, and that their tokenizers give what the reference recorded.

use serde_json::Value;
use tilewright::checkpoint::{Checkpoint, ModelConfig, Progress};
use tilewright_graph::models::Llama;
use tilewright_layout::DType;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::weights::Weights;

use crate::folder::{Folder, shipped};

fn open(model: &str) -> Checkpoint {
    Checkpoint::open(&shipped(model), &mut |_| {}).unwrap()
}

/// The frequencies are compared to the last bit but one, everything else exactly.
fn assert_spec(found: &ModelSpec, family: &str, mut expected: Llama) {
    let frequencies = found.graph().parts().ropes[0].frequencies.clone();
    assert_eq!(frequencies.len(), expected.decoder.rope.frequencies.len());
    for (found, expected) in frequencies.iter().zip(&expected.decoder.rope.frequencies) {
        assert!((found / expected - 1.0).abs() < 3e-7, "{found} {expected}");
    }
    expected.decoder.rope.frequencies = frequencies;
    let graph = expected.graph(family).unwrap();
    assert_eq!(found, &ModelSpec::new(graph, expected.decoder.max_positions).unwrap());
}

/// The quantised shapes are the dense one, and say how its linear layers are stored.
#[test]
fn quantised_shapes_are_those_of_the_dense_model() {
    let read = |form: &str| ModelConfig::read(&shipped(&format!("shapes/llama-3.1-8b{form}.json"))).unwrap();
    let dense = read("");
    assert_eq!(dense.quantization, None);
    for (form, scheme) in [("-gptq", "GPTQ"), ("-nvfp4", "nvfp4-pack-quantized"), ("-mxfp4", "mxfp4-pack-quantized")] {
        let config = read(form);
        assert_eq!((&config.spec, &config.eos_ids), (&dense.spec, &dense.eos_ids), "{form}");
        let plan = config.quantization.unwrap();
        assert_eq!(plan.len(), 32 * 7, "{form}");
        assert!(plan.schemes().iter().all(|name| name.starts_with(scheme)), "{:?}", plan.schemes());
    }
}

#[test]
fn tiny_llama_is_what_it_was_saved_as() {
    let checkpoint = open("tiny-llama");
    let expected = Llama::small().hidden(192).layers(4).head_dim(32).inner(512).vocab(2048).max_positions(1024);
    assert_spec(checkpoint.spec(), "llama", expected);
    assert_eq!(checkpoint.eos_ids(), [1]);
    assert_eq!(checkpoint.tensors().len(), 4 * 9 + 2);
}

#[test]
fn tiny_qwen3_is_what_it_was_saved_as() {
    let checkpoint = open("tiny-qwen3");
    let mut expected = Llama::small().hidden(128).layers(3).heads(5, 1).head_dim(32).inner(352).vocab(1024);
    expected = Llama { qk_norm: true, ..expected.max_positions(1024).tied(false) };
    expected.decoder.eps = 1e-6;
    assert_spec(checkpoint.spec(), "qwen3", expected);
    assert_eq!(checkpoint.tensors().len(), 3 * 11 + 3);
}

/// Names, shapes, types and bytes are those that the format's own reader gives, and the bytes are
/// not copies.
#[test]
fn tensors_are_those_of_the_file_and_outlive_the_checkpoint() {
    for model in ["tiny-llama", "tiny-qwen3"] {
        let checkpoint = open(model);
        let bytes = std::fs::read(shipped(model).join("model.safetensors")).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(checkpoint.tensors().len(), file.len());
        let kept: Vec<_> = file.names().into_iter().map(|name| (name, checkpoint.tensor(name).unwrap())).collect();
        let again = checkpoint.tensor("model.norm.weight").unwrap();
        let norm = &kept.iter().find(|(name, _)| *name == "model.norm.weight").unwrap().1;
        assert_eq!(again.bytes().as_ref().as_ptr(), norm.bytes().as_ref().as_ptr());
        drop(checkpoint);
        for (name, tensor) in kept {
            let view = file.tensor(name).unwrap();
            assert_eq!(tensor.dtype(), DType::BF16);
            assert_eq!(tensor.shape(), view.shape());
            assert_eq!(tensor.bytes().as_ref(), view.data(), "{name}");
            assert_eq!(tensor.as_bf16().unwrap().len(), view.shape().iter().product::<usize>());
        }
    }
}

#[test]
fn progress_rises_to_the_bytes_of_the_weights() {
    let mut steps: Vec<Progress> = Vec::new();
    let checkpoint = Checkpoint::open(&shipped("tiny-llama"), &mut |step| steps.push(step)).unwrap();
    let bytes: u64 = checkpoint.tensors().map(|(_, tensor)| tensor.bytes().as_ref().len() as u64).sum();
    assert_eq!(steps.first(), Some(&Progress { done: 0, total: bytes }));
    assert_eq!(steps.last(), Some(&Progress { done: bytes, total: bytes }));
    assert!(steps.is_sorted_by_key(|step| step.done) && steps.len() > checkpoint.tensors().len());
    let mut touched = Vec::new();
    checkpoint.read_ahead(&mut |step| touched.push(step));
    assert_eq!(touched.last(), Some(&Progress { done: bytes, total: bytes }));
}

#[test]
fn tokenizers_give_the_recorded_ids_and_text() {
    for model in ["tiny-llama", "tiny-qwen3"] {
        let checkpoint = open(model);
        let text = std::fs::read(shipped(model).join("reference.json")).unwrap();
        let reference: Value = serde_json::from_slice(&text).unwrap();
        let cases = reference["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 6);
        for case in cases {
            let ids = |key: &str| serde_json::from_value::<Vec<u32>>(case[key].clone()).unwrap();
            let prompt = case["prompt"].as_str().unwrap();
            let tokenizer = checkpoint.tokenizer();
            assert_eq!(tokenizer.encode(prompt).unwrap(), ids("prompt_ids"), "{model}: {prompt}");
            assert_eq!(tokenizer.decode(&ids("greedy_ids")).unwrap(), case["text"], "{model}: {prompt}");
        }
    }
}

#[test]
fn a_checkpoint_in_several_files_equals_the_same_in_one() {
    let one = Folder::synthetic().open().unwrap();
    let many = Folder::sharded().open().unwrap();
    assert_eq!(one.spec(), many.spec());
    assert_eq!(one.eos_ids(), [1, 2]);
    assert_eq!(one.tensors().len(), many.tensors().len());
    for (name, tensor) in one.tensors() {
        assert_eq!(tensor.bytes().as_ref(), many.tensor(name).unwrap().bytes().as_ref(), "{name}");
    }
}

/// A header of odd length puts every tensor at an odd address: the values must survive, and typed
/// reading must work.
#[test]
fn misaligned_weights_are_read_rightly() {
    let folder = Folder::synthetic();
    let aligned = folder.open().unwrap();
    let bytes = folder.read("model.safetensors");
    let (header, data) = crate::folder::split(&bytes);
    let text = serde_json::Value::Object(header).to_string();
    for padding in 0..4 {
        folder.write("model.safetensors", crate::folder::join(&format!("{text}{:padding$}", ""), data));
        let checkpoint = folder.open().unwrap();
        for (name, tensor) in aligned.tensors() {
            assert_eq!(checkpoint.tensor(name).unwrap().as_bf16().unwrap(), tensor.as_bf16().unwrap());
        }
    }
}

#[test]
fn weights_may_be_f32_f16_or_bf16_each_by_itself() {
    let folder = Folder::synthetic();
    folder.edit_tensors(|tensors| {
        let norm = tensors.get_mut("model.norm.weight").unwrap();
        *norm = ("F32".to_owned(), vec![8], [0.5f32; 8].iter().flat_map(|v| v.to_le_bytes()).collect());
        tensors.get_mut("model.layers.0.mlp.up_proj.weight").unwrap().0 = "F16".to_owned();
    });
    let checkpoint = folder.open().unwrap();
    assert_eq!(checkpoint.tensor("model.norm.weight").unwrap().as_f32(), Some(&[0.5; 8][..]));
    assert!(checkpoint.tensor("model.layers.0.mlp.up_proj.weight").unwrap().as_f16().is_some());
    assert!(checkpoint.tensor("model.layers.1.mlp.up_proj.weight").unwrap().as_bf16().is_some());
}

#[test]
fn generation_config_says_which_tokens_end_a_sequence() {
    let folder = Folder::synthetic();
    for (text, expected) in [
        (r#"{"eos_token_id": 3}"#, vec![3]),
        (r#"{"eos_token_id": [3, 4]}"#, vec![3, 4]),
        (r#"{"eos_token_id": null}"#, vec![1]),
        (r#"{"top_p": 0.9}"#, vec![1]),
    ] {
        folder.write("generation_config.json", text);
        assert_eq!(folder.open().unwrap().eos_ids(), expected, "{text}");
    }
    folder.remove("generation_config.json");
    assert_eq!(folder.open().unwrap().eos_ids(), [1]);
    folder.edit("config.json", |config| config["eos_token_id"] = serde_json::json!([5, 6]));
    assert_eq!(folder.open().unwrap().eos_ids(), [5, 6]);
    folder.edit("config.json", |config| config["eos_token_id"] = Value::Null);
    assert_eq!(folder.open().unwrap().eos_ids(), [0u32; 0]);
}

#[test]
fn tensors_that_are_derived_or_repeat_the_embedding_are_allowed() {
    let folder = Folder::synthetic();
    folder.edit_tensors(|tensors| {
        tensors.insert("lm_head.weight".into(), tensors["model.embed_tokens.weight"].clone());
        let buffer = ("F32".to_owned(), vec![2], vec![0; 8]);
        tensors.insert("model.layers.1.self_attn.rotary_emb.inv_freq".into(), buffer.clone());
        tensors.insert("model.rotary_emb.inv_freq".into(), buffer);
    });
    let checkpoint = folder.open().unwrap();
    assert_eq!(checkpoint.tensors().len(), checkpoint.spec().tensors().len());
    assert!(checkpoint.tensor("lm_head.weight").is_none());
}
