//! Checkpoint folders to break: copies of a shipped model, and a synthetic one of a few kilobytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tilewright::checkpoint::{Checkpoint, CheckpointError};

/// A temporary folder that holds a checkpoint.
pub struct Folder(TempDir);

/// A tensor in the making: the format's name of the element type, shape, bytes.
pub type Tensors = BTreeMap<String, (String, Vec<usize>, Vec<u8>)>;

pub fn shipped(model: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(model)
}

impl Folder {
    pub fn empty() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// A copy of a shipped model.
    pub fn copy_of(model: &str) -> Folder {
        Folder::copy_of_folder(&shipped(model))
    }

    /// A copy of a checkpoint.
    pub fn copy_of_folder(from: &Path) -> Folder {
        let folder = Folder::empty();
        for file in ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"] {
            fs::copy(from.join(file), folder.path(file)).unwrap();
        }
        folder
    }

    /// A llama of a few kilobytes with tied embeddings, every file in place.
    pub fn synthetic() -> Folder {
        let folder = Folder::empty();
        folder.write("config.json", synthetic_config().to_string());
        folder.write("generation_config.json", r#"{"eos_token_id": [1, 2], "temperature": 0.7}"#);
        folder.write("tokenizer.json", byte_level_tokenizer().to_string());
        folder.write("model.safetensors", safetensors(&synthetic_tensors()));
        folder
    }

    /// The synthetic checkpoint with its weights in two files and an index.
    pub fn sharded() -> Folder {
        let folder = Folder::synthetic();
        folder.remove("model.safetensors");
        let mut first = Tensors::new();
        let mut second = Tensors::new();
        let mut weight_map = Map::new();
        for (i, (name, tensor)) in synthetic_tensors().into_iter().enumerate() {
            let (shard, file) = if i % 3 == 0 { (&mut second, SHARDS[1]) } else { (&mut first, SHARDS[0]) };
            weight_map.insert(name.clone(), file.into());
            shard.insert(name, tensor);
        }
        folder.write(SHARDS[0], safetensors(&first));
        folder.write(SHARDS[1], safetensors(&second));
        let index = json!({"metadata": {"total_size": 1}, "weight_map": weight_map});
        folder.write("model.safetensors.index.json", index.to_string());
        folder
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Writes a new file; a map of the old one stays as it was.
    pub fn write(&self, file: &str, bytes: impl AsRef<[u8]>) {
        self.remove(file);
        fs::write(self.path(file), bytes).unwrap();
    }

    pub fn remove(&self, file: &str) {
        if self.path(file).exists() {
            fs::remove_file(self.path(file)).unwrap();
        }
    }

    pub fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.path(file)).unwrap()
    }

    /// Changes a JSON file.
    pub fn edit(&self, file: &str, change: impl FnOnce(&mut Value)) {
        let mut value: Value = serde_json::from_slice(&self.read(file)).unwrap();
        change(&mut value);
        self.write(file, value.to_string());
    }

    /// Changes the header of `model.safetensors` and leaves the data as it is.
    pub fn edit_header(&self, change: impl FnOnce(&mut Map<String, Value>)) {
        let bytes = self.read("model.safetensors");
        let (mut header, data) = split(&bytes);
        change(&mut header);
        self.write("model.safetensors", join(&Value::Object(header).to_string(), data));
    }

    /// Rewrites `model.safetensors` with changed tensors.
    pub fn edit_tensors(&self, change: impl FnOnce(&mut Tensors)) {
        let bytes = self.read("model.safetensors");
        let mut tensors = tensors_of(&bytes);
        change(&mut tensors);
        self.write("model.safetensors", safetensors(&tensors));
    }

    pub fn open(&self) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::open(self.0.path(), &mut |_| {})
    }

    /// The text of the error that opening gives, the folder's path written as `DIR`.
    pub fn error(&self) -> String {
        let error = self.open().expect_err("the checkpoint is broken");
        error.to_string().replace(&*self.0.path().to_string_lossy(), "DIR")
    }
}

pub const SHARDS: [&str; 2] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];

/// Header and data of a safetensors file.
pub fn split(bytes: &[u8]) -> (Map<String, Value>, &[u8]) {
    let (length, rest) = bytes.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    (serde_json::from_slice(header).unwrap(), data)
}

/// A safetensors file of a header's text and data.
pub fn join(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// A safetensors file of tensors, in the order of their names.
pub fn safetensors(tensors: &Tensors) -> Vec<u8> {
    let mut header = Map::new();
    let mut data = Vec::new();
    for (name, (dtype, shape, bytes)) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(name.clone(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
        data.extend(bytes);
    }
    // Padded as the format's writer pads, so that the data are aligned.
    let text = Value::Object(header).to_string();
    let padded = text.len().next_multiple_of(8);
    join(&format!("{text:padded$}"), &data)
}

fn tensors_of(bytes: &[u8]) -> Tensors {
    let (mut header, data) = split(bytes);
    header.remove("__metadata__");
    let tensor = |info: &Value| {
        let shape: Vec<usize> = serde_json::from_value(info["shape"].clone()).unwrap();
        let [begin, end]: [usize; 2] = serde_json::from_value(info["data_offsets"].clone()).unwrap();
        (info["dtype"].as_str().unwrap().to_owned(), shape, data[begin..end].to_vec())
    };
    header.iter().map(|(name, info)| (name.clone(), tensor(info))).collect()
}

pub fn synthetic_config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 40, "hidden_size": 8,
        "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true,
        "hidden_act": "silu", "torch_dtype": "bfloat16", "eos_token_id": 1,
        "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32},
    })
}

fn synthetic_tensors() -> Tensors {
    let config = tilewright::checkpoint::ModelConfig::from_json(synthetic_config().to_string().as_bytes()).unwrap();
    let tensor = |shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        let bytes = (0..count).flat_map(|i| half::bf16::from_f32(i as f32 / 64.0).to_le_bytes()).collect();
        ("BF16".to_owned(), shape.to_vec(), bytes)
    };
    config.spec.tensors().into_iter().map(|t| (t.name, tensor(&t.shape))).collect()
}

/// Byte-level BPE over the letters a to z: 32 tokens.
pub fn byte_level_tokenizer() -> Value {
    let mut vocab = Map::new();
    let special = ["<|begin|>", "<|end|>", "<|pad|>"];
    let letters = ('a'..='z').map(String::from);
    for token in special.map(String::from).into_iter().chain(letters).chain(["Ġ", "th", "the"].map(String::from)) {
        vocab.insert(token, vocab.len().into());
    }
    let added: Vec<_> = (0..3).map(|id| added_token(id, special[id])).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [0], "tokens": ["<|begin|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": [["t", "h"], ["th", "e"]]},
    })
}

/// BPE in the manner of sentencepiece: `▁` for a space, a token for each byte; 3 + 256 + 8 tokens.
pub fn byte_fallback_tokenizer() -> Value {
    let mut vocab = Map::new();
    let special = ["<unk>", "<s>", "</s>"];
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let pieces = ["▁", "a", "b", "▁a", "▁b", "é", "界", "▁▁"].map(String::from);
    for token in special.map(String::from).into_iter().chain(bytes).chain(pieces) {
        vocab.insert(token, vocab.len().into());
    }
    let added: Vec<_> = (0..3).map(|id| added_token(id, special[id])).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": [["▁", "a"], ["▁", "b"], ["▁", "▁"]]},
    })
}

fn added_token(id: usize, content: &str) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true})
}
