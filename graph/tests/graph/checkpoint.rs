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
            Dtype::U8 => f64::from(word[0]),
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
    let mut stored = entries.filter(is_weights).flat_map(|path| tensors(&path)).collect();
    decode_mxfp4(&mut stored);
    unstack(&mut stored);
    stored
}

/// Values of a code of four bits: one bit of sign, two of exponent, one of mantissa.
const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Replaces blocks of 16 bytes and their scales by the numbers that they stand for.
fn decode_mxfp4(stored: &mut HashMap<String, CheckpointTensor>) {
    let names: Vec<String> = stored.keys().filter_map(|name| Some(name.strip_suffix("_blocks")?.to_owned())).collect();
    for name in names {
        let blocks = stored.remove(&format!("{name}_blocks")).expect("blocks");
        let scales = stored.remove(&format!("{name}_scales")).expect("scales");
        let number = |code: u8| E2M1[usize::from(code & 7)] * if code & 8 == 0 { 1.0 } else { -1.0 };
        let block = |(bytes, scale): (&[f64], &f64)| {
            let scale = (scale - 127.0).exp2();
            let pair = move |byte: &f64| [*byte as u8 & 15, *byte as u8 >> 4].map(|code| number(code) * scale);
            bytes.iter().flat_map(pair).collect::<Vec<f64>>()
        };
        let data: Vec<f64> = blocks.data.chunks_exact(16).zip(&scales.data).flat_map(block).collect();
        let [experts, rows, count, 16] = blocks.shape[..] else { panic!("{:?}", blocks.shape) };
        stored.insert(name, CheckpointTensor { shape: vec![experts, rows, count * 32], data });
    }
}

/// Replaces gpt-oss's tensors of all experts by those of each, as the graph names them. Rows of
/// gates take turns with those of the other factors.
fn unstack(stored: &mut HashMap<String, CheckpointTensor>) {
    let stacked = |name: &String| name.contains(".experts.") && !name.contains(".weight");
    let names: Vec<String> = stored.keys().filter(|name| stacked(name)).cloned().collect();
    for name in names {
        let CheckpointTensor { shape, data } = stored.remove(&name).expect("a tensor");
        let (module, part) = match name.strip_suffix("_bias") {
            Some(module) => (module, "bias"),
            None => (name.as_str(), "weight"),
        };
        let (layer, product) = module.rsplit_once('.').expect("the name of a product");
        let products: &[&str] = if product == "gate_up_proj" { &["gate_proj", "up_proj"] } else { &[product] };
        let columns: usize = shape[2..].iter().product();
        for (expert, rows) in data.chunks_exact(shape[1] * columns).enumerate() {
            for (turn, product) in products.iter().enumerate() {
                let data: Vec<f64> =
                    rows.chunks_exact(columns).skip(turn).step_by(products.len()).flatten().copied().collect();
                let shape = [&[shape[1] / products.len()], &shape[2..]].concat();
                stored.insert(format!("{layer}.{expert}.{product}.{part}"), CheckpointTensor { shape, data });
            }
        }
    }
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
    cases_of(folder, "reference.safetensors")
}

/// The cases of one file of a folder.
pub fn cases_of(folder: &Path, file: &str) -> Vec<Case> {
    let mut stored = tensors(&folder.join(file));
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

/// The largest relative L2 distance of a position's logits from those of the cases, with prompts
/// fed in steps of `step` tokens.
pub fn error_of(graph: &Graph, weights: &HashMap<String, CheckpointTensor>, cases: &[Case], step: usize) -> f64 {
    let weights = |name: &str| weights.get(name).cloned();
    let interpreter = Interpreter::new(graph, &weights).expect("the weights fit");
    let mut worst = 0.0f64;
    for case in cases {
        let mut sequence = Sequence::default();
        let steps = case.ids.chunks(step).map(|ids| interpreter.run(&mut sequence, ids).expect("runs").swap_remove(0));
        let logits: Vec<Vec<f64>> = steps
            .flat_map(|logits| (0..logits.shape[0]).map(|row| logits.row(row).to_vec()).collect::<Vec<_>>())
            .collect();
        assert_eq!(case.rows.iter().map(|row| logits[*row].len()).sum::<usize>(), case.logits.len());
        let width = case.logits.len() / case.rows.len();
        for (row, expected) in case.rows.iter().zip(case.logits.chunks_exact(width)) {
            let distance: f64 =
                logits[*row].iter().zip(expected).map(|(found, expected)| (found - expected).powi(2)).sum();
            let size: f64 = expected.iter().map(|expected| expected.powi(2)).sum();
            worst = worst.max((distance / size).sqrt());
        }
    }
    worst
}

/// The graph of a folder.
pub fn graph(folder: &Path) -> Graph {
    models::graph(&config(folder)).expect("a family of the list")
}
