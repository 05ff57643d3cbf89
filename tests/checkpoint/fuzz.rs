//! Damaged files of every kind: an error of one line or a checkpoint, never a panic, in bounded
//! time.
//!
//! Each target mutates stored inputs by structure and by bytes. `TILEWRIGHT_LONG=1` runs fifty
//! times as many cases.
//!
//! | input | corpus in `tests/data` |
//! |---|---|
//! | `config.json` | `corpus/config` |
//! | headers of safetensors files | `corpus/safetensors`; the name says whether one is read |
//! | `tokenizer.json` | `corpus/tokenizer` |
//! | all files of a folder | made by `Folder::synthetic` |

use proptest::prelude::*;
use serde_json::{Value, json};
use tilewright::checkpoint::{ConfigError, ModelConfig, Tokenizer};

use crate::folder::Folder;

fn cases(number: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if std::env::var_os("TILEWRIGHT_LONG").is_some() { 50 * number } else { number })
}

/// The files of a folder of `tests/data/corpus`, by name.
fn corpus(folder: &str) -> Vec<(String, Vec<u8>)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/corpus").join(folder);
    let mut paths: Vec<_> = std::fs::read_dir(folder).expect("a corpus").map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    assert!(paths.len() >= 8, "{paths:?}");
    let name = |path: &std::path::Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    paths.into_iter().map(|path| (name(&path), std::fs::read(path).expect("a file"))).collect()
}

/// The files of a corpus that are JSON.
fn trees(folder: &str) -> Vec<Value> {
    corpus(folder).iter().filter_map(|(_, bytes)| serde_json::from_slice(bytes).ok()).collect()
}

/// Configurations: each family, each kind of rotation and quantisation.
fn configs() -> Vec<Value> {
    trees("config")
}

/// Bytes of the tensors that the headers of the corpus describe.
const DATA_BYTES: usize = 2640;

/// Opens the synthetic checkpoint with another header of its weights; `length` is what the file
/// says of the header's length.
fn open_with_header(header: &[u8], length: u64) -> Result<(), String> {
    let folder = Folder::synthetic();
    let data = [0; DATA_BYTES];
    folder.write("model.safetensors", [&length.to_le_bytes()[..], header, &data].concat());
    folder.open().map(drop).map_err(|error| error.to_string())
}

#[test]
fn stored_headers_of_weights_keep_their_verdicts() {
    for (name, header) in corpus("safetensors") {
        match open_with_header(&header, header.len() as u64) {
            Ok(()) => assert!(name.starts_with("read-"), "{name} is read"),
            Err(error) => {
                assert!(name.starts_with("refused-"), "{name}: {error}");
                // A list of faults has a line for each.
                assert!(!error.is_empty() && error.lines().count() <= 4 && error.len() < 2000, "{name}: {error}");
            }
        }
    }
}

/// Values that readers get wrong.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::sample::select(vec![0.0, -0.0, 1e-45, 1e300, -1.5, 0.5, 65.0]).prop_map(Value::from),
        prop::sample::select(vec![0u64, 1, 2, 63, 64, 65, 127, 128, 129, 1 << 31, 1 << 32]).prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
        prop::sample::select(vec!["re:(a|a)*$", "re:.*", "Linear", "gptq", "float", "dynamic"]).prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        prop::collection::vec(any::<u8>().prop_map(Value::from), 0..4).prop_map(Value::from),
    ]
}

/// A change at a place of a JSON tree: places are numbered in the order of a walk.
#[derive(Clone, Debug)]
enum Change {
    Replace(Value),
    Remove,
    Insert(String, Value),
}

fn change() -> impl Strategy<Value = (usize, Change)> {
    let kind = prop_oneof![
        3 => value().prop_map(Change::Replace),
        1 => Just(Change::Remove),
        1 => ("[a-z_]{1,12}", value()).prop_map(|(key, value)| Change::Insert(key, value)),
    ];
    (0usize..200, kind)
}

fn apply(tree: &mut Value, at: &mut usize, change: &Change) -> bool {
    if *at == 0 {
        match (change, &mut *tree) {
            (Change::Replace(value), place) => *place = value.clone(),
            (Change::Remove, place) => *place = Value::Null,
            (Change::Insert(key, value), Value::Object(map)) => _ = map.insert(key.clone(), value.clone()),
            (Change::Insert(_, value), Value::Array(list)) => list.push(value.clone()),
            _ => {}
        }
        return true;
    }
    *at -= 1;
    match tree {
        Value::Object(map) => map.values_mut().any(|value| apply(value, at, change)),
        Value::Array(list) => list.iter_mut().any(|value| apply(value, at, change)),
        _ => false,
    }
}

fn changed(mut tree: Value, changes: &[(usize, Change)]) -> Value {
    for (at, change) in changes {
        apply(&mut tree, &mut at.clone(), change);
    }
    tree
}

/// Cuts, flips and repeats bytes.
fn damaged(mut bytes: Vec<u8>, changes: &[(usize, u8, u8)]) -> Vec<u8> {
    for &(at, kind, byte) in changes {
        let Some(at) = at.checked_rem(bytes.len()) else { break };
        match kind % 4 {
            0 => bytes[at] = byte,
            1 => bytes[at] ^= 1 << (byte % 8),
            2 => bytes.truncate(at),
            _ => bytes.insert(at, byte),
        }
    }
    bytes
}

fn bytes() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    prop::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 1..6)
}

/// Names of a file may have ends of lines, which the command line replaces; the rest of an error
/// has none.
fn one_line(error: &str) -> Result<(), TestCaseError> {
    prop_assert!(!error.is_empty() && error.lines().count() <= 4, "{error}");
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn changed_configurations_are_read_or_refused(which in 0usize..64, changes in prop::collection::vec(change(), 1..5)) {
        let corpus = configs();
        let text = changed(corpus[which % corpus.len()].clone(), &changes).to_string();
        match ModelConfig::from_json(text.as_bytes()) {
            Ok(config) => prop_assert!(config.spec.max_positions > 0 && config.spec.head_dim % 2 == 0),
            Err(ConfigError::Faults(faults)) => {
                prop_assert!(faults.iter().count() > 0);
                for fault in faults.iter() {
                    one_line(&fault.to_string())?;
                }
            }
            Err(error) => one_line(&error.to_string())?,
        }
    }

    #[test]
    fn damaged_configurations_are_read_or_refused(which in 0usize..64, changes in bytes()) {
        let corpus = configs();
        let text = damaged(corpus[which % corpus.len()].to_string().into_bytes(), &changes);
        if let Err(error) = ModelConfig::from_json(&text) {
            one_line(&error.to_string())?;
        }
    }
}

proptest! {
    #![proptest_config(cases(120))]

    #[test]
    fn changed_headers_of_weights_are_read_or_refused(
        which in 0usize..64, changes in prop::collection::vec(change(), 1..5), longer in -9i64..9,
    ) {
        let corpus = trees("safetensors");
        let header = changed(corpus[which % corpus.len()].clone(), &changes).to_string();
        // Half of the files say the length that the header has.
        let length = (header.len() as u64).wrapping_add_signed(if longer < 0 { 0 } else { longer - 4 });
        if let Err(error) = open_with_header(header.as_bytes(), length) {
            one_line(&error)?;
        }
    }

    #[test]
    fn damaged_headers_of_weights_are_read_or_refused(which in 0usize..64, changes in bytes(), length in any::<u64>()) {
        let corpus = corpus("safetensors");
        let header = damaged(corpus[which % corpus.len()].1.clone(), &changes);
        let length = if length % 4 == 0 { length } else { header.len() as u64 };
        if let Err(error) = open_with_header(&header, length) {
            one_line(&error)?;
        }
    }

    #[test]
    fn damaged_tokenizers_are_read_or_refused(which in 0usize..64, changes in bytes()) {
        let corpus = corpus("tokenizer");
        let text = damaged(corpus[which % corpus.len()].1.clone(), &changes);
        if let Err(error) = Tokenizer::from_json(&text, 300) {
            one_line(&error.to_string())?;
        }
    }

    #[test]
    fn changed_tokenizers_are_read_or_refused(
        which in 0usize..64, changes in prop::collection::vec(change(), 1..5), text in "(\\PC| |the){0,20}",
    ) {
        let corpus = trees("tokenizer");
        let tokenizer = corpus[which % corpus.len()].clone();
        match Tokenizer::from_json(changed(tokenizer, &changes).to_string().as_bytes(), 300) {
            Err(error) => one_line(&error.to_string())?,
            Ok(tokenizer) => match tokenizer.encode(&text) {
                Ok(ids) => prop_assert!(ids.iter().all(|&id| id < 300)),
                Err(error) => one_line(&error.to_string())?,
            },
        }
    }

    #[test]
    fn damaged_files_of_a_checkpoint_are_read_or_refused(which in 0usize..5, changes in bytes()) {
        let folder = Folder::synthetic();
        folder.write("tokenizer_config.json", json!({"chat_template": "{{ messages }}", "bos_token": "<|begin|>"}).to_string());
        let file = ["model.safetensors", "config.json", "tokenizer.json", "generation_config.json", "tokenizer_config.json"][which];
        // The header of a file of weights is its first few hundred bytes; the rest are numbers.
        let whole = folder.read(file);
        let head = if which == 0 { 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize } else { whole.len() };
        let mut text = damaged(whole[..head].to_vec(), &changes);
        text.extend(&whole[head..]);
        folder.write(file, text);
        if let Err(error) = folder.open() {
            one_line(&error.to_string())?;
        }
    }
}
