//! Every family and every feature against logits of another implementation.
//!
//! `tests/data/families/*` are small random models: GQA groups of 1, 3 and 7, odd head sizes,
//! biases, q/k norms, all rope types, f16, bf16 and f32, tied and untied, one file and shards;
//! Gemma 2 with soft caps and windows. Those of `graph/tests/data/families` that run come with them.
//! Their `reference.safetensors` was computed by transformers
//! in float32, those of Llama's block by `make.py` in the same folder. If it has `rows`, logits are
//! those of these rows.

mod measure;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use measure::relative_l2;
use safetensors::SafeTensors;
use tempfile::TempDir;
use tilewright::checkpoint::{Checkpoint, ModelConfig};
use tilewright::engine::{Device, Engine};
use tilewright_codegen::target::Target;
use tilewright_graph::interpret::{CheckpointTensor, Interpreter, Sequence};
use tilewright_kernels::naive;
use tilewright_layout::DType;
use tilewright_megakernel::lower::{LowerOptions, lower};
use tilewright_megakernel::weights::Weights;

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families");
    let entries = fs::read_dir(root).expect("the families are there").map(|entry| entry.expect("an entry").path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert_eq!(folders.len(), 10);
    folders.extend(RUN.map(|family| graphs().join(family)));
    folders.sort();
    folders
}

/// Families of `graph/tests/data/families` that run. Their folders have no tokenizer.
const RUN: [&str; 16] = [
    "cohere2",
    "deepseek-v2",
    "deepseek-v3",
    "gemma3",
    "glm4",
    "gpt-oss",
    "granite",
    "mistral-window",
    "mixtral",
    "olmo2",
    "phi3",
    "phi4-longrope",
    "qwen2-moe",
    "qwen3-moe",
    "smollm3",
    "starcoder2",
];

fn graphs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("graph/tests/data/families")
}

/// A copy of a checkpoint, with a tokenizer.
fn copied(folder: &Path) -> TempDir {
    let copy = TempDir::new().expect("a folder");
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/families/gemma2/tokenizer.json");
    fs::copy(other, copy.path().join("tokenizer.json")).expect("copies");
    for entry in fs::read_dir(folder).expect("lists") {
        let path = entry.expect("an entry").path();
        fs::copy(&path, copy.path().join(path.file_name().expect("a name"))).expect("copies");
    }
    copy
}

struct Reference {
    ids: Vec<u32>,
    /// The rows with logits.
    rows: Vec<usize>,
    logits: Vec<f32>,
}

fn reference(folder: &Path) -> Reference {
    let bytes = fs::read(folder.join("reference.safetensors")).expect("a reference");
    let tensors = SafeTensors::deserialize(&bytes).expect("safetensors");
    let words = |name| {
        let data = tensors.tensor(name).ok()?.data().to_vec();
        Some(data.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<u32>>())
    };
    let ids = words("ids").expect("ids");
    let rows =
        words("rows").map_or((0..ids.len()).collect(), |rows| rows.into_iter().map(|row| row as usize).collect());
    let logits = words("logits").expect("logits").into_iter().map(f32::from_bits).collect();
    Reference { ids, rows, logits }
}

fn error_of(folder: &Path, reference: &Reference) -> f64 {
    let engine = Engine::load(folder, Device::Cpu { workers: 2 }).expect("the model loads");
    let all = engine.logits(&reference.ids).expect("computes");
    let vocab = all.len() / reference.ids.len();
    let found: Vec<f32> = reference.rows.iter().flat_map(|row| &all[row * vocab..][..vocab]).copied().collect();
    relative_l2(&found, &reference.logits)
}

#[test]
fn logits_of_every_family_equal_the_reference() {
    // The reference of gpt-oss rounded the frequencies of the rotation to bf16: the next test.
    for folder in folders().into_iter().filter(|folder| !folder.ends_with("gpt-oss")) {
        let error = error_of(copied(&folder).path(), &reference(&folder));
        println!("{}: relative L2 error {error:.2e}", folder.display());
        assert!(error <= 1e-5, "{}: {error:.2e}", folder.display());
    }
}

/// The graph of gpt-oss has the logits of the reference where its frequencies are rounded too (the
/// tests of `graph`). Here the engine is held against the graph, with the numbers that it reads
/// from blocks of four bits.
#[test]
fn logits_of_gpt_oss_equal_those_of_its_graph() {
    let copy = copied(&graphs().join("gpt-oss"));
    let Reference { ids, rows, .. } = reference(copy.path());
    let checkpoint = Checkpoint::open(copy.path(), &mut |_| ()).expect("opens");
    assert_eq!(checkpoint.quantized_modules().len(), 4 * 8 * 3);
    let weights = |name: &str| {
        let dense = checkpoint.tensor(name).map(|tensor| {
            let data = tensor.to_f32_vec().expect("floating-point numbers").into_iter().map(f64::from).collect();
            CheckpointTensor { shape: tensor.shape().to_vec(), data }
        });
        let codes = || {
            let matrix = checkpoint.quantized(name)?;
            Some(CheckpointTensor { shape: vec![matrix.n(), matrix.k()], data: naive::dequantize(&matrix) })
        };
        dense.or_else(codes)
    };
    let interpreter = Interpreter::new(checkpoint.spec().graph(), &weights).expect("the weights fit");
    let logits = interpreter.run(&mut Sequence::default(), &ids).expect("runs").swap_remove(0);
    let expected: Vec<f32> = rows.iter().flat_map(|&row| logits.row(row)).map(|&logit| logit as f32).collect();
    let error = error_of(copy.path(), &Reference { ids, rows, logits: expected });
    println!("gpt-oss: relative L2 error {error:.2e}");
    assert!(error <= 1e-5, "{error:.2e}");
}

/// Why the model of a folder cannot be lowered, with the causes.
fn refusal(folder: &Path) -> Option<String> {
    let lowered = |config: ModelConfig| {
        let target = Target::named("h100").expect("a target");
        lower(&config.spec, &|_| DType::BF16, target, &LowerOptions::for_context(64)).map(drop)
    };
    let error: Box<dyn Error> = match ModelConfig::of_folder(folder) {
        Err(error) => error.into(),
        Ok(config) => lowered(config).err()?.into(),
    };
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    Some(text)
}

/// Families whose graphs the interpreter computes and no tasks do: an error of one line names what
/// is in the way.
#[test]
fn families_without_tasks_are_refused_by_name() {
    let mut refused = 0;
    for entry in fs::read_dir(graphs()).expect("the families are there") {
        let folder = entry.expect("an entry").path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let text = match refusal(&folder) {
            Some(text) => text,
            None => {
                assert!(RUN.contains(&name.as_str()), "{name} runs: compare its logits");
                continue;
            }
        };
        println!("{name}: {text}");
        assert!(text.contains("cannot run yet") && !text.contains('\n'), "{name}: {text}");
        refused += 1;
    }
    assert_eq!(refused, 17 - RUN.len());
}

/// The bound of the first test notices each of these: a model computed slightly wrong is far
/// outside of it.
#[test]
fn a_feature_that_is_left_out_shows() {
    let changes = [
        ("qwen3-bias-yarn", "\"attention_factor\": 0.8", "\"attention_factor\": 0.81"),
        ("qwen2-yarn", "\"factor\": 4.0", "\"factor\": 4.1"),
        ("llama3-scaling-tied", "\"factor\": 8.0", "\"factor\": 7.0"),
        ("llama-old-spelling-sharded", "\"rope_theta\": 10000.0", "\"rope_theta\": 10100.0"),
        ("llama-biases-linear", "\"factor\": 4.0", "\"factor\": 3.9"),
        ("mistral-gqa3-f16", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 1e-02"),
        ("gemma2", "\"attn_logit_softcapping\": 50.0", "\"attn_logit_softcapping\": null"),
        ("gemma2", "\"final_logit_softcapping\": 3.0", "\"final_logit_softcapping\": 3.01"),
        ("gemma2", "\"query_pre_attn_scalar\": 24", "\"query_pre_attn_scalar\": 25"),
        ("gemma2", "\"sliding_window\": 8", "\"sliding_window\": 9"),
        ("gemma2", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e-02"),
        ("granite", "\"residual_multiplier\": 0.22", "\"residual_multiplier\": 0.221"),
        ("granite", "\"embedding_multiplier\": 12.0", "\"embedding_multiplier\": 12.5"),
        ("glm4", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.0"),
    ];
    for (name, from, to) in changes {
        let folder = folders().into_iter().find(|f| f.ends_with(name)).expect("a family");
        let copy = copied(&folder);
        let config = copy.path().join("config.json");
        let text = fs::read_to_string(&config).expect("reads");
        assert!(text.contains(from), "{name} has {from}");
        fs::write(&config, text.replace(from, to)).expect("writes");
        let error = error_of(copy.path(), &reference(&folder));
        assert!(error > 1e-4, "{name} with {to}: {error:.2e} would pass unnoticed");
    }
}
