//! Broken checkpoints: one case for each way to break one, with the text that a person reads.

use std::fs;

use serde_json::{Value, json};
use tilewright::checkpoint::{Checkpoint, CheckpointError};

use crate::folder::{Folder, SHARDS, byte_level_tokenizer, join};

fn llama() -> Folder {
    Folder::copy_of("tiny-llama")
}

fn description(dtype: &str, shape: &[u64], offsets: [u64; 2]) -> Value {
    json!({"dtype": dtype, "shape": shape, "data_offsets": offsets})
}

#[test]
fn missing_folder() {
    let error = Checkpoint::open("no/such/folder".as_ref(), &mut |_| {}).unwrap_err();
    insta::assert_snapshot!(error, @"checkpoint no/such/folder is not a folder; give the folder that holds config.json");
    let file = llama().path("config.json");
    assert!(
        matches!(Checkpoint::open(&file, &mut |_| {}), Err(CheckpointError::NotAFolder { path, .. }) if path == file)
    );
}

#[test]
fn missing_files() {
    let folder = llama();
    folder.remove("model.safetensors");
    insta::assert_snapshot!(folder.error(), @"folder DIR has neither model.safetensors nor model.safetensors.index.json; a checkpoint needs its weights in this format");
    folder.remove("tokenizer.json");
    insta::assert_snapshot!(folder.error(), @"file DIR/tokenizer.json does not exist; a checkpoint needs it");
    folder.remove("config.json");
    insta::assert_snapshot!(folder.error(), @"file DIR/config.json does not exist; a checkpoint needs it");
}

#[test]
fn a_folder_where_a_file_should_be() {
    let folder = llama();
    folder.remove("model.safetensors");
    fs::create_dir(folder.path("model.safetensors")).unwrap();
    insta::assert_snapshot!(folder.error(), @"path DIR/model.safetensors is not a regular file; replace it by one");
}

#[test]
fn broken_json() {
    let folder = llama();
    folder.write("generation_config.json", r#"{"eos_token_id": 1,}"#);
    insta::assert_snapshot!(folder.error(), @"file DIR/generation_config.json is not valid JSON: trailing comma at line 1 column 20");
    folder.write("config.json", &folder.read("config.json")[..100]);
    insta::assert_snapshot!(folder.error(), @"file DIR/config.json is not valid JSON: EOF while parsing a value at line 6 column 22");
    folder.write("config.json", b"\xff\xfe");
    insta::assert_snapshot!(folder.error(), @"file DIR/config.json is not valid JSON: expected value at line 1 column 1");
}

#[test]
fn unsupported_configuration() {
    let folder = llama();
    folder.edit("config.json", |config| {
        config["attention_multiplier"] = json!(0.0078125);
        config["clip_qkv"] = json!(8);
    });
    insta::assert_snapshot!(folder.error(), @"configuration DIR/config.json cannot be used: key attention_multiplier is 0.0078125, which scales the attention's scores; supported is null; and key clip_qkv (value 8) is not known, so it may change the mathematics; remove it if it does not");
}

#[test]
fn end_of_sequence_outside_the_vocabulary() {
    let folder = llama();
    folder.write("generation_config.json", r#"{"eos_token_id": [1, 2048, -1]}"#);
    insta::assert_snapshot!(folder.error(), @"configuration DIR/generation_config.json cannot be used: key eos_token_id is 2048; it must be 0 to 2047; and key eos_token_id is -1; it must be 0 to 2047");
    folder.write("generation_config.json", "[]");
    insta::assert_snapshot!(folder.error(), @"configuration DIR/generation_config.json cannot be used: configuration is []; it must be a JSON object");
}

#[test]
fn truncated_weights() {
    let folder = llama();
    let bytes = folder.read("model.safetensors");
    for (length, expected) in
        [(0, "at least 8"), (7, "at least 8"), (8, "cut short"), (1000, "cut short"), (bytes.len() - 1, "cut short")]
    {
        folder.write("model.safetensors", &bytes[..length]);
        let error = folder.error();
        assert!(error.contains(expected), "{length}: {error}");
    }
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: tensor model.norm.weight ends at byte 3935616 of the data; the file has 3935615 bytes of data, so it is cut short");
}

#[test]
fn header_longer_than_the_file() {
    let folder = llama();
    let mut bytes = folder.read("model.safetensors");
    bytes[..8].copy_from_slice(&(4_000_000u64).to_le_bytes());
    folder.write("model.safetensors", &bytes);
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: header has 4000000 bytes by its length field; 3939688 bytes follow it, so the file is cut short");
    bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    folder.write("model.safetensors", &bytes);
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: header has 18446744073709551615 bytes by its length field; at most 100000000 are read");
    folder.write("model.safetensors", b"1234567");
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: file has 7 bytes; a safetensors file has at least 8, the length of its header");
}

#[test]
fn header_that_is_no_object() {
    let folder = llama();
    folder.write("model.safetensors", join("[]", &[]));
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: header is []; it must be a JSON object");
    folder.write("model.safetensors", join("{\"a", &[]));
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: header is not valid JSON: EOF while parsing a string at line 1 column 3");
    folder.write("model.safetensors", join(r#"{"__metadata__": {"format": 1}}"#, &[]));
    insta::assert_snapshot!(folder.error(), @r#"weights DIR/model.safetensors are malformed: __metadata__ holds {"format":1}; it must be an object of strings"#);
    folder.write(
        "model.safetensors",
        join(r#"{"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}, "a": 0}"#, &[]),
    );
    insta::assert_snapshot!(folder.error(), @r#"weights DIR/model.safetensors are malformed: header is not valid JSON: key "a" appears twice at line 1 column 64"#);
}

#[test]
fn descriptions_that_are_malformed() {
    let broken = |change: fn(&mut Value)| {
        let folder = llama();
        folder.edit_header(|header| change(&mut header["model.norm.weight"]));
        folder.error()
    };
    insta::assert_snapshot!(broken(|info| *info = json!(1)), @"weights DIR/model.safetensors are malformed: tensor model.norm.weight has the description 1; it must be an object");
    insta::assert_snapshot!(broken(|info| info["shape"] = json!([-192])), @"weights DIR/model.safetensors are malformed: tensor model.norm.weight has shape [-192]; it must be a list of dimensions");
    insta::assert_snapshot!(broken(|info| info["data_offsets"] = json!([1, 2, 3])), @"weights DIR/model.safetensors are malformed: tensor model.norm.weight has data_offsets [1, 2, 3]; it must be a list of two offsets");
    insta::assert_snapshot!(broken(|info| info["dtype"] = json!(null)), @"weights DIR/model.safetensors are malformed: tensor model.norm.weight has dtype null; it must be a name");
    insta::assert_snapshot!(broken(|info| info["stride"] = json!([1])), @"weights DIR/model.safetensors are malformed: tensor model.norm.weight has a field stride; the format knows dtype, shape and data_offsets alone");
}

#[test]
fn unknown_dtype() {
    let folder = llama();
    folder.edit_header(|header| header["model.norm.weight"]["dtype"] = json!("F4"));
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: tensor model.norm.weight has dtype F4, which is not known; known are F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8_E8M0");
}

#[test]
fn offsets_that_overlap_leave_gaps_or_pass_the_end() {
    let with = |a: [u64; 2], b: [u64; 2], data: usize| {
        let folder = llama();
        let header = json!({"a": description("U8", &[a[1].saturating_sub(a[0])], a), "b": description("U8", &[b[1].saturating_sub(b[0])], b)});
        folder.write("model.safetensors", join(&header.to_string(), &vec![0; data]));
        folder.error()
    };
    insta::assert_snapshot!(with([0, 8], [4, 16], 16), @"weights DIR/model.safetensors are malformed: tensor b begins at byte 4 of the data; a before it ends at 8, they overlap");
    insta::assert_snapshot!(with([0, 8], [0, 8], 8), @"weights DIR/model.safetensors are malformed: tensor b begins at byte 0 of the data; a before it ends at 8, they overlap");
    insta::assert_snapshot!(with([0, 8], [12, 16], 16), @"weights DIR/model.safetensors are malformed: data has bytes 8 to 12 that belong to no tensor; the format allows no gaps");
    insta::assert_snapshot!(with([4, 8], [8, 16], 16), @"weights DIR/model.safetensors are malformed: data has bytes 0 to 4 that belong to no tensor; the format allows no gaps");
    insta::assert_snapshot!(with([0, 8], [8, 16], 24), @"weights DIR/model.safetensors are malformed: data has bytes 16 to 24 that belong to no tensor; the format allows no gaps");
    insta::assert_snapshot!(with([0, 8], [8, 17], 16), @"weights DIR/model.safetensors are malformed: tensor b ends at byte 17 of the data; the file has 16 bytes of data, so it is cut short");
    insta::assert_snapshot!(with([0, 8], [16, 8], 16), @"weights DIR/model.safetensors are malformed: tensor b begins at byte 16 and ends at 8; the end must not come first");
}

/// Eight tensors of nearly 2^61 bytes end to end: their sum reaches 2^64, which must not be
/// computed carelessly.
#[test]
fn offsets_near_the_end_of_the_address_space() {
    let folder = llama();
    let size = (1u64 << 61) - 1;
    let header: serde_json::Map<_, _> =
        (0..8).map(|i| (format!("t{i}"), description("U8", &[size], [i * size, (i + 1) * size]))).collect();
    folder.write("model.safetensors", join(&Value::from(header).to_string(), &[]));
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: tensor t0 ends at byte 2305843009213693951 of the data; the file has 0 bytes of data, so it is cut short");
    let header = json!({"a": description("F32", &[1 << 33, 1 << 33], [0, 0])});
    folder.write("model.safetensors", join(&header.to_string(), &[]));
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: tensor a has shape [8589934592, 8589934592] of f32; its bytes do not fit 64 bits");
}

#[test]
fn shape_that_contradicts_the_offsets() {
    let folder = llama();
    folder.edit_header(|header| header["model.norm.weight"]["shape"] = json!([191]));
    insta::assert_snapshot!(folder.error(), @"weights DIR/model.safetensors are malformed: tensor model.norm.weight has 384 bytes by its offsets; shape [191] of bf16 needs 382");
}

#[test]
fn wrong_shape() {
    let folder = llama();
    folder.edit_header(|header| header["model.layers.1.mlp.down_proj.weight"]["shape"] = json!([512, 192]));
    insta::assert_snapshot!(folder.error(), @"tensors of DIR are not those that config.json describes: tensor model.layers.1.mlp.down_proj.weight in DIR/model.safetensors has shape [512, 192]; [192, 512] is expected");
}

#[test]
fn wrong_dtype() {
    let folder = llama();
    folder.edit_header(|header| header["model.norm.weight"]["dtype"] = json!("I16"));
    insta::assert_snapshot!(folder.error(), @"tensors of DIR are not those that config.json describes: tensor model.norm.weight in DIR/model.safetensors has elements of i16; weights must be f32, f16 or bf16");
}

#[test]
fn missing_tensor() {
    let folder = llama();
    folder.edit_tensors(|tensors| drop(tensors.remove("model.layers.2.self_attn.k_proj.weight")));
    insta::assert_snapshot!(folder.error(), @"tensors of DIR are not those that config.json describes: tensor model.layers.2.self_attn.k_proj.weight is missing; shape [64, 192] is expected");
    folder.edit("config.json", |config| config["tie_word_embeddings"] = json!(false));
    insta::assert_snapshot!(folder.error(), @"tensors of DIR are not those that config.json describes: tensor model.layers.2.self_attn.k_proj.weight is missing; shape [64, 192] is expected; and tensor lm_head.weight is missing; shape [2048, 192] is expected");
}

#[test]
fn extra_tensors() {
    let folder = llama();
    folder.edit_tensors(|tensors| {
        for name in ["model.layers.0.self_attn.q_norm.weight", "model.layers.4.input_layernorm.weight"] {
            tensors.insert(name.into(), ("F32".into(), vec![1], vec![0; 4]));
        }
        tensors.insert("model.layers.9.self_attn.rotary_emb.inv_freq".into(), ("F32".into(), vec![0], vec![]));
    });
    insta::assert_snapshot!(folder.error(), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.q_norm.weight (f32, shape [1]) in DIR/model.safetensors is not part of the model; leaving it out would change the result; and tensor model.layers.4.input_layernorm.weight (f32, shape [1]) in DIR/model.safetensors is not part of the model; leaving it out would change the result; and tensor model.layers.9.self_attn.rotary_emb.inv_freq (f32, shape [0]) in DIR/model.safetensors is not part of the model; leaving it out would change the result");
}

/// A known mistake of another system: a Qwen3 read as a Llama loses its q and k norms.
#[test]
fn qwen3_passed_off_as_llama() {
    let folder = Folder::copy_of("tiny-qwen3");
    folder.edit("config.json", |config| {
        config["model_type"] = json!("llama");
        config["architectures"] = json!(["LlamaForCausalLM"]);
        config.as_object_mut().unwrap().remove("max_window_layers");
    });
    insta::assert_snapshot!(folder.error(), @"tensors of DIR are not those that config.json describes: tensor model.layers.0.self_attn.k_norm.weight (bf16, shape [32]) in DIR/model.safetensors is not part of the model; leaving it out would change the result; and tensor model.layers.0.self_attn.q_norm.weight (bf16, shape [32]) in DIR/model.safetensors is not part of the model; leaving it out would change the result; and tensor model.layers.1.self_attn.k_norm.weight (bf16, shape [32]) in DIR/model.safetensors is not part of the model; leaving it out would change the result; and tensor model.layers.1.self_attn.q_norm.weight (bf16, shape [32]) in DIR/model.safetensors is not part of the model; leaving it out would change the result; and tensor model.layers.2.self_attn.k_norm.weight (bf16, shape [32]) in DIR/model.safetensors is not part of the model; leaving it out would change the result; and 1 more");
}

#[test]
fn output_projection_that_differs_from_the_tied_embedding() {
    let folder = llama();
    folder.edit_tensors(|tensors| {
        let mut head = tensors["model.embed_tokens.weight"].clone();
        *head.2.last_mut().unwrap() ^= 1;
        tensors.insert("lm_head.weight".into(), head);
    });
    insta::assert_snapshot!(folder.error(), @"tensors of DIR are not those that config.json describes: tensor lm_head.weight in DIR/model.safetensors differs from model.embed_tokens.weight; with tie_word_embeddings true it must be the same bits, or set it to false");
    folder.edit_header(|header| header["lm_head.weight"]["dtype"] = json!("F16"));
    assert!(folder.error().contains("differs from model.embed_tokens.weight"));
}

#[test]
fn more_faults_than_are_shown() {
    let folder = llama();
    folder.edit_tensors(|tensors| tensors.retain(|name, _| !name.contains("mlp")));
    let error = folder.open().unwrap_err();
    let CheckpointError::Tensors { faults, .. } = &error else { panic!("{error}") };
    assert_eq!(faults.iter().count(), 12);
    assert!(error.to_string().ends_with("; and 7 more"), "{error}");
}

#[test]
fn index_that_names_a_missing_file() {
    let folder = Folder::sharded();
    folder.remove(SHARDS[1]);
    insta::assert_snapshot!(folder.error(), @"index DIR/model.safetensors.index.json is wrong: tensor model.embed_tokens.weight is listed in model-00002-of-00002.safetensors, which does not exist; download that file");
}

#[test]
fn index_that_contradicts_the_files() {
    let index = "model.safetensors.index.json";
    let folder = Folder::sharded();
    folder.edit(index, |index| index["weight_map"]["model.embed_tokens.weight"] = json!(SHARDS[0]));
    insta::assert_snapshot!(folder.error(), @"index DIR/model.safetensors.index.json is wrong: tensor model.embed_tokens.weight is listed in model-00001-of-00002.safetensors and is in model-00002-of-00002.safetensors; the index must name the file that holds it");
    let folder = Folder::sharded();
    folder.edit(index, |index| drop(index["weight_map"].as_object_mut().unwrap().remove("model.norm.weight")));
    insta::assert_snapshot!(folder.error(), @"index DIR/model.safetensors.index.json is wrong: tensor model.norm.weight is in model-00001-of-00002.safetensors and not in the index; every tensor must be listed");
    let folder = Folder::sharded();
    folder.edit(index, |index| index["weight_map"]["lm_head.weight"] = json!(SHARDS[0]));
    insta::assert_snapshot!(folder.error(), @"index DIR/model.safetensors.index.json is wrong: tensor lm_head.weight is listed in model-00001-of-00002.safetensors, which does not hold it, nor does another file");
}

#[test]
fn index_that_is_malformed() {
    let broken = |text: &str| {
        let folder = Folder::sharded();
        folder.write("model.safetensors.index.json", text);
        folder.error()
    };
    insta::assert_snapshot!(broken("[]"), @"index DIR/model.safetensors.index.json is wrong: file holds []; it must be a JSON object");
    insta::assert_snapshot!(broken("{}"), @"index DIR/model.safetensors.index.json is wrong: weight_map holds null; it must be an object from tensor names to file names");
    insta::assert_snapshot!(broken(r#"{"weight_map": {}}"#), @"index DIR/model.safetensors.index.json is wrong: weight_map holds nothing; it must be an object from tensor names to file names");
    insta::assert_snapshot!(broken(r#"{"weight_map": {"a": 1}, "total": 2}"#), @"index DIR/model.safetensors.index.json is wrong: key total is not known; an index has weight_map and metadata alone; and weight_map holds 1; it must be an object from tensor names to file names");
    insta::assert_snapshot!(broken(r#"{"weight_map": {"a": "x", "a": "y"}}"#), @r#"file DIR/model.safetensors.index.json is not valid JSON: key "a" appears twice at line 1 column 29"#);
}

#[test]
fn index_that_leads_out_of_the_folder() {
    for file in ["../x.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "a\\b", "C:x", "a\0b"] {
        let folder = Folder::sharded();
        folder.edit("model.safetensors.index.json", |index| index["weight_map"]["model.norm.weight"] = json!(file));
        let error = folder.open().unwrap_err();
        assert!(
            matches!(&error, CheckpointError::Index { .. }) && error.to_string().contains("without folders"),
            "{error}"
        );
    }
    let folder = Folder::sharded();
    folder.edit("model.safetensors.index.json", |index| index["weight_map"]["model.norm.weight"] = json!("../x"));
    insta::assert_snapshot!(folder.error(), @r#"index DIR/model.safetensors.index.json is wrong: tensor model.norm.weight is listed in file "../x"; a file name without folders is needed"#);
}

#[test]
fn broken_tokenizer() {
    let folder = llama();
    folder.write("tokenizer.json", "{}");
    insta::assert_snapshot!(folder.error(), @"tokenizer DIR/tokenizer.json cannot be used: file is not a tokenizer that can be read: Model missing. at line 1 column 2");
    folder.write("tokenizer.json", "\u{feff}{");
    insta::assert_snapshot!(folder.error(), @"tokenizer DIR/tokenizer.json cannot be used: file is not a tokenizer that can be read: expected value at line 1 column 1");
}

#[test]
fn vocabulary_larger_than_the_embedding() {
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", |tokenizer| {
        let vocab = tokenizer["model"]["vocab"].as_object_mut().unwrap();
        (0..10).for_each(|i| drop(vocab.insert(format!("extra{i}"), json!(32 + i))));
    });
    insta::assert_snapshot!(folder.error(), @r#"tokenizer DIR/tokenizer.json cannot be used: token "extra9" has id 41; the embedding has 40 rows, so ids must be less"#);
}

#[test]
fn token_id_outside_the_embedding() {
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", |tokenizer| tokenizer["model"]["vocab"]["the"] = json!(40));
    insta::assert_snapshot!(folder.error(), @r#"tokenizer DIR/tokenizer.json cannot be used: token "the" has id 40; the embedding has 40 rows, so ids must be less"#);
    // The id that a template adds need not be in the vocabulary at all.
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", |tokenizer| {
        tokenizer["post_processor"]["special_tokens"]["<|begin|>"]["ids"] = json!([4_000_000]);
    });
    insta::assert_snapshot!(folder.error(), @r#"tokenizer DIR/tokenizer.json cannot be used: token "<|begin|>" has id 4000000; the embedding has 40 rows, so ids must be less"#);
}

/// The token that the id decodes to would depend on the order of a hash table.
#[test]
fn two_tokens_with_one_id() {
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", |tokenizer| tokenizer["model"]["vocab"]["the"] = json!(5));
    insta::assert_snapshot!(folder.error(), @r#"tokenizer DIR/tokenizer.json cannot be used: token "c" and token "the" both have id 5; decoding needs one token for each id"#);
}

/// An added token whose id leaves a gap would silently get another one.
#[test]
fn added_token_with_another_id_than_listed() {
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", |tokenizer| {
        let mut token = tokenizer["added_tokens"][0].clone();
        token["content"] = json!("<|think|>");
        token["id"] = json!(39);
        tokenizer["added_tokens"].as_array_mut().unwrap().push(token);
    });
    insta::assert_snapshot!(folder.error(), @r#"tokenizer DIR/tokenizer.json cannot be used: token "<|think|>" is listed with id 39; the vocabulary gives it 32, they must agree"#);
}

#[test]
fn tokenizer_that_encodes_at_random() {
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", |tokenizer| tokenizer["model"]["dropout"] = json!(0.5));
    insta::assert_snapshot!(folder.error(), @"tokenizer DIR/tokenizer.json cannot be used: model of the tokenizer has dropout 0.5; it would encode at random, so it must be null or 0");
}

/// The library that reads tokenizers cuts a prefix from each merge without looking whether it is
/// there.
#[test]
fn tokenizer_that_makes_its_reader_panic() {
    let folder = Folder::synthetic();
    folder.edit("tokenizer.json", |tokenizer| tokenizer["model"]["continuing_subword_prefix"] = json!("####"));
    let error = folder.error();
    assert!(error.contains("inconsistent"), "{error}");
}

#[test]
fn tokenizer_that_cannot_encode() {
    let folder = Folder::synthetic();
    let mut tokenizer = byte_level_tokenizer();
    tokenizer["model"]["unk_token"] = json!("<unk>");
    tokenizer["model"]["vocab"].as_object_mut().unwrap().remove("a");
    folder.write("tokenizer.json", tokenizer.to_string());
    insta::assert_snapshot!(folder.error(), @"tokenizer DIR/tokenizer.json cannot be used: text of 1 bytes cannot be encoded: Unk token `<unk>` not found in the vocabulary");
}

/// The language model of a multimodal checkpoint under a plain configuration: one sentence, and no
/// list of missing tensors.
#[test]
fn a_language_model_inside_of_a_larger_one_is_named() {
    for prefix in ["language_model.", "model.language_model."] {
        let folder = Folder::synthetic();
        folder.edit_tensors(|tensors| {
            let renamed = std::mem::take(tensors).into_iter().map(|(name, tensor)| (format!("{prefix}{name}"), tensor));
            tensors.extend(renamed);
        });
        let error = folder.error();
        let expected = format!("tensors of DIR are named {prefix}…, as the language model of a larger model; save");
        assert!(error.starts_with(&expected), "{error}");
    }
}
