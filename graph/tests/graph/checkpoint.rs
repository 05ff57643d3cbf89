//! Checkpoints with the logits of another implementation.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tilewright_graph::interpret::{CheckpointTensor, Interpreter, Sequence};
use tilewright_graph::{Graph, models};

/// A folder of the repository.
pub fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The configuration of a folder.
pub fn config(folder: &Path) -> Value {
    let text = fs::read(folder.join("config.json")).expect("a configuration");
    serde_json::from_slice(&text).expect("JSON")
}

/// The tensors of a file as f64.
fn tensors(file: &Path) -> HashMap<String, CheckpointTensor> {
    let bytes = fs::read(file).expect("a file of tensors");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let stored = |view: &safetensors::tensor::TensorView<'_>| {
        let half = |word: &[u8]| [word[0], word[1]];
        let number = |word: &[u8]| match view.dtype() {
            Dtype::BF16 => bf16::from_le_bytes(half(word)).to_f64(),
            Dtype::F16 => f16::from_le_bytes(half(word)).to_f64(),
            Dtype::F32 => f64::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]])),
            Dtype::U32 | Dtype::I32 => f64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])),
            other => panic!("{other:?}"),
        };
        let size = view.data().len() / view.shape().iter().product::<usize>();
        CheckpointTensor { shape: view.shape().to_vec(), data: view.data().chunks_exact(size).map(number).collect() }
    };
    tensors.tensors().into_iter().map(|(name, view)| (name, stored(&view))).collect()
}

/// The weights of a folder, from one file or several.
pub fn weights(folder: &Path) -> HashMap<String, CheckpointTensor> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let is_weights = |path: &PathBuf| {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        name.starts_with("model") && name.ends_with(".safetensors")
    };
    entries.filter(is_weights).flat_map(|path| tensors(&path)).collect()
}

/// A prompt with the logits of some of its rows.
pub struct Case {
    pub ids: Vec<u32>,
    pub rows: Vec<usize>,
    pub logits: Vec<f64>,
}

/// The cases of a folder: `logits.K` for the prompts of `reference.json`, or one prompt with its
/// ids.
pub fn cases(folder: &Path) -> Vec<Case> {
    let mut stored = tensors(&folder.join("reference.safetensors"));
    let ids_of = |stored: CheckpointTensor| stored.data.iter().map(|id| *id as u32).collect::<Vec<u32>>();
    if let Some(ids) = stored.remove("ids").map(ids_of) {
        let rows = stored.remove("rows").map(ids_of);
        let rows = rows.map_or((0..ids.len()).collect(), |rows| rows.iter().map(|row| *row as usize).collect());
        return vec![Case { ids, rows, logits: stored.remove("logits").expect("logits").data }];
    }
    let text = fs::read(folder.join("reference.json")).expect("prompts");
    let prompts: Value = serde_json::from_slice(&text).expect("JSON");
    let case = |(place, prompt): (usize, &Value)| {
        let ids: Vec<u32> = serde_json::from_value(prompt["prompt_ids"].clone()).expect("ids");
        let logits = stored.remove(&format!("logits.{place}")).expect("logits").data;
        Case { rows: (0..ids.len()).collect(), ids, logits }
    };
    prompts["cases"].as_array().or(prompts.as_array()).expect("a list").iter().enumerate().map(case).collect()
}

/// The relative L2 distance of a graph's logits from those of the cases, with prompts fed in steps
/// of `step` tokens.
pub fn error_of(graph: &Graph, weights: &HashMap<String, CheckpointTensor>, cases: &[Case], step: usize) -> f64 {
    let weights = |name: &str| weights.get(name).cloned();
    let interpreter = Interpreter::new(graph, &weights).expect("the weights fit");
    let mut distance = 0.0;
    let mut size = 0.0;
    for case in cases {
        let mut sequence = Sequence::default();
        let steps = case.ids.chunks(step).map(|ids| interpreter.run(&mut sequence, ids).expect("runs").swap_remove(0));
        let logits: Vec<Vec<f64>> = steps
            .flat_map(|logits| (0..logits.shape[0]).map(|row| logits.row(row).to_vec()).collect::<Vec<_>>())
            .collect();
        let found = case.rows.iter().flat_map(|row| &logits[*row]);
        assert_eq!(found.clone().count(), case.logits.len());
        for (found, expected) in found.zip(&case.logits) {
            distance += (found - expected).powi(2);
            size += expected.powi(2);
        }
    }
    (distance / size).sqrt()
}

/// The graph of a folder.
pub fn graph(folder: &Path) -> Graph {
    models::graph(&config(folder)).expect("a family of the list")
}
