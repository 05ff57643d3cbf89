//! Quantised checkpoints of one layer in a few hundred bytes: random modules of any scheme and
//! size.

use serde_json::{Value, json};
use tilewright::checkpoint::ModelConfig;

use crate::folder::{Folder, Tensors, byte_level_tokenizer, safetensors};
use crate::quant_pack::{Drawn, Row, dense};

/// Extents of a model of one layer.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub hidden: usize,
    pub head_dim: usize,
    pub heads: usize,
    pub intermediate: usize,
    pub group: usize,
}

/// Small extents that every scheme has, K a multiple of the group.
pub const SMALL: Sizes = Sizes { hidden: 16, head_dim: 8, heads: 2, intermediate: 24, group: 8 };

/// The distribution from which modules are drawn.
#[derive(Clone, Copy)]
pub struct Drawing {
    /// The least number that a scale has, and how many there are.
    pub scales: [usize; 2],
    /// The factor of embeddings.
    pub embedding: f32,
    /// Whether matrices of equal K have their columns in groups in one order, as those that share
    /// an input have.
    pub one_order: bool,
}

/// Any scales, columns in groups in any order.
pub const ANY: Drawing = Drawing { scales: [0, 1 << 20], embedding: 1.0, one_order: false };

/// Random numbers of a seed.
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

pub fn config(sizes: Sizes, quantization: Value) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 40, "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate, "num_hidden_layers": 1, "num_attention_heads": sizes.heads,
        "num_key_value_heads": 1, "head_dim": sizes.head_dim, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": true, "eos_token_id": 1, "quantization_config": quantization,
    })
}

/// A random module of a scheme; its first codes are all codes there are.
pub fn drawn(row: &Row, [n, k]: [usize; 2], group: usize, draw: &mut Draw, how: Drawing) -> Drawn {
    let cover = (row.cover)(n, k, group);
    let cells = n.div_ceil(cover[0]) * k.div_ceil(cover[1]);
    let count = 1 << row.bits;
    let code = |at: usize, draw: &mut Draw| if at < count { at } else { draw.below(count) } as u8;
    let number = |code: u8| if row.nan && code & 0x7f == 0x7f { code - 1 } else { code };
    let codes = (0..n * k).map(|at| number(code(at, draw))).collect();
    let mut groups: Vec<usize> = (0..k).map(|column| column / cover[1]).collect();
    if row.ordered {
        let mut one = Draw(k as u64);
        let order = if how.one_order { &mut one } else { &mut *draw };
        (1..k).for_each(|at| groups.swap(at, order.below(at + 1)));
    }
    let scales = (0..cells).map(|_| (how.scales[0] + draw.below(how.scales[1])) as u32).collect();
    let zeros = (0..cells).map(|_| draw.below(count) as u8).collect();
    Drawn { n, k, cover, codes, scales, zeros, groups }
}

/// A folder whose linear layers are of a scheme, and the modules as they were drawn.
pub fn folder(row: &Row, sizes: Sizes, seed: u64) -> (Folder, Vec<(String, Drawn)>) {
    folder_as(row, sizes, seed, ANY)
}

/// A folder of a scheme, with modules drawn as `how` says.
pub fn folder_as(row: &Row, sizes: Sizes, seed: u64, how: Drawing) -> (Folder, Vec<(String, Drawn)>) {
    let group = row.group.unwrap_or(sizes.group);
    let config = config(sizes, (row.config)(group));
    let mut draw = Draw(seed);
    let mut tensors = Tensors::new();
    let mut modules = Vec::new();
    let dense_config = self::config(sizes, Value::Null);
    let spec = ModelConfig::from_json(dense_config.to_string().as_bytes()).expect("a sound configuration").spec;
    for tensor in spec.tensors() {
        match tensor.name.strip_suffix("_proj.weight") {
            Some(module) => {
                let module = format!("{module}_proj");
                let drawn = drawn(row, [tensor.shape[0], tensor.shape[1]], group, &mut draw, how);
                (row.pack)(&drawn, &module, &mut tensors);
                modules.push((module, drawn));
            }
            None => {
                let factor = if tensor.name.contains("embed") { how.embedding } else { 1.0 };
                tensors.insert(tensor.name, dense(&tensor.shape, factor));
            }
        }
    }
    let folder = Folder::empty();
    folder.write("config.json", config.to_string());
    folder.write("tokenizer.json", byte_level_tokenizer().to_string());
    folder.write("model.safetensors", safetensors(&tensors));
    (folder, modules)
}
