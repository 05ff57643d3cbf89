//! A model that says a given text: each token has one successor, which its head knows by heart.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::tiny;

/// Tokens of the model, and as many columns.
const SIZE: usize = 320;
/// The token that ends a reply.
const END: usize = 1;

/// What a model says after every prompt that its template makes.
pub struct Script {
    /// The chat template, whose text must end with `<|reply|>`.
    pub template: &'static str,
    /// Different pieces, a token each.
    pub pieces: &'static [&'static str],
    /// Those of them that decoding leaves out.
    pub special: &'static [&'static str],
}

impl Script {
    /// Writes the checkpoint.
    pub fn folder(&self) -> TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("it is written");
        write("config.json", config().to_string().as_bytes());
        write("chat_template.jinja", self.template.as_bytes());
        let (tokenizer, first) = self.tokenizer();
        write("tokenizer.json", tokenizer.to_string().as_bytes());
        write("model.safetensors", &weights(&self.successors(first)));
        folder
    }

    /// The bytes as tokens, and the pieces from the token `first` on.
    fn tokenizer(&self) -> (Value, usize) {
        let text = fs::read_to_string(tiny("tokenizer.json")).expect("a file");
        let mut tokenizer: Value = serde_json::from_str(&text).expect("JSON");
        let vocabulary = tokenizer["model"]["vocab"].as_object().expect("an object").clone();
        let bytes = vocabulary.keys().filter(|token| token.chars().count() == 1);
        let names = ["<|begin|>", "<|end|>"].into_iter().map(str::to_owned).chain(bytes.cloned());
        let vocabulary: BTreeMap<String, usize> = names.zip(0..).collect();
        let first = vocabulary.len();
        tokenizer["model"]["vocab"] = json!(vocabulary);
        tokenizer["model"]["merges"] = json!([]);
        let added = tokenizer["added_tokens"].as_array_mut().expect("a list");
        for (id, piece) in (first..).zip(["<|reply|>"].iter().chain(self.pieces)) {
            let mut token = added[0].clone();
            token["id"] = id.into();
            token["content"] = (*piece).into();
            token["special"] = (self.special.contains(piece) || *piece == "<|reply|>").into();
            added.push(token);
        }
        (tokenizer, first)
    }

    /// The token after each token.
    fn successors(&self, first: usize) -> Vec<usize> {
        let last = first + self.pieces.len();
        assert!(last < SIZE, "the pieces fit");
        (0..SIZE).map(|token| if (first..last).contains(&token) { token + 1 } else { END }).collect()
    }
}

fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "mlp_bias": false,
        "bos_token_id": 0, "eos_token_id": END, "dtype": "float32", "head_dim": 16, "hidden_act": "silu", "hidden_size": SIZE,
        "intermediate_size": 32, "max_position_embeddings": 1024, "num_attention_heads": 2, "num_hidden_layers": 1,
        "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
        "vocab_size": SIZE,
    })
}

/// Weights with which a token's column leads to its successor's row; layers add nothing.
fn weights(successors: &[usize]) -> Vec<u8> {
    let square = |columns: &dyn Fn(usize) -> usize| -> Vec<f32> {
        let mut matrix = vec![0.0; SIZE * SIZE];
        (0..SIZE).for_each(|token| matrix[columns(token) * SIZE + token] = 1.0);
        matrix
    };
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let zeros = |rows: usize, columns: usize| (vec![rows, columns], vec![0.0; rows * columns]);
    let ones = || (vec![SIZE], vec![1.0; SIZE]);
    let tensors = [
        ("model.embed_tokens.weight".to_owned(), (vec![SIZE, SIZE], square(&|token| token))),
        ("lm_head.weight".to_owned(), (vec![SIZE, SIZE], square(&|token| successors[token]))),
        ("model.norm.weight".to_owned(), ones()),
        (layer("input_layernorm"), ones()),
        (layer("post_attention_layernorm"), ones()),
        (layer("self_attn.q_proj"), zeros(32, SIZE)),
        (layer("self_attn.k_proj"), zeros(16, SIZE)),
        (layer("self_attn.v_proj"), zeros(16, SIZE)),
        (layer("self_attn.o_proj"), zeros(SIZE, 32)),
        (layer("mlp.gate_proj"), zeros(32, SIZE)),
        (layer("mlp.up_proj"), zeros(32, SIZE)),
        (layer("mlp.down_proj"), zeros(SIZE, 32)),
    ];
    let mut head = serde_json::Map::new();
    let mut data = Vec::new();
    for (name, (shape, values)) in tensors {
        let begin = data.len();
        data.extend(values.iter().flat_map(|value| f32::to_le_bytes(*value)));
        head.insert(name, json!({ "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()] }));
    }
    let head = Value::Object(head).to_string();
    let padded = format!("{head:width$}", width = head.len().next_multiple_of(8));
    [&(padded.len() as u64).to_le_bytes()[..], padded.as_bytes(), &data].concat()
}
