//! The weights' files: one `model.safetensors`, or several that `model.safetensors.index.json`
//! lists.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tilewright_graph::models::quote;
use tilewright_megakernel::weights::WeightTensor;

use super::error::{CheckpointError, Faults};
use super::header::{self, EntryRows, TensorEntry};
use super::hint::Hint;
use super::{files, json};
use crate::checkpoint::IndexFault;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A file of weights, or a tensor in memory.
pub(super) struct Shard {
    pub path: PathBuf,
    pub memory: Arc<dyn AsRef<[u8]> + Send + Sync>,
    pub entries: Vec<TensorEntry>,
}

impl Shard {
    pub fn bytes(&self) -> &[u8] {
        (*self.memory).as_ref()
    }
}

/// The tensors in memory, in the order of their names, as files of a folder of one tensor each.
pub(super) fn of_tensors(dir: &Path, tensors: BTreeMap<String, WeightTensor>) -> Vec<Shard> {
    let shard = |(name, tensor): (String, WeightTensor)| {
        let memory = tensor.bytes().clone();
        let range = 0..memory.as_ref().len();
        let path = dir.join(&name);
        let entry =
            TensorEntry { name, dtype: tensor.dtype(), shape: tensor.shape().to_vec(), range, rows: EntryRows::All };
        Shard { path, memory: Arc::new(memory), entries: vec![entry] }
    };
    tensors.into_iter().map(shard).collect()
}

/// Opens every file of weights in a folder. `model.safetensors` comes before an index, as in the
/// library transformers.
pub(super) fn open(dir: &Path) -> Result<Vec<Shard>, CheckpointError> {
    let single = dir.join(SINGLE);
    let index = dir.join(INDEX);
    // A link that leads to nothing is there, and said.
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    if is_there(&single) {
        return Ok(vec![open_shard(single)?]);
    }
    if !is_there(&index) {
        let hint = Hint::for_folder(dir, Hint::Safetensors);
        return Err(CheckpointError::NoWeights { path: dir.to_owned(), hint });
    }
    let wrong = |faults| CheckpointError::Index { path: index.clone(), faults: Faults(faults) };
    let bytes = files::read(&index)?;
    let value = json::parse(&bytes).map_err(|source| CheckpointError::Json { path: index.clone(), source })?;
    let weight_map = read_index(value).map_err(&wrong)?;
    let mut faults = Vec::new();
    let mut shards = Vec::new();
    let mut seen = BTreeSet::new();
    for (tensor, file) in &weight_map {
        if !seen.insert(file) {
            continue;
        }
        match open_shard(dir.join(file)) {
            Ok(shard) => shards.push(shard),
            Err(CheckpointError::Missing { .. }) => {
                faults.push(IndexFault::MissingFile { tensor: tensor.clone(), file: file.clone() });
            }
            Err(error) => return Err(error),
        }
    }
    if faults.is_empty() {
        faults = compare(&weight_map, &shards);
    }
    if faults.is_empty() { Ok(shards) } else { Err(wrong(faults)) }
}

fn open_shard(path: PathBuf) -> Result<Shard, CheckpointError> {
    let memory = files::map(&path)?;
    match header::parse(&memory) {
        Ok(entries) => Ok(Shard { path, memory, entries }),
        Err(source) => Err(CheckpointError::Header { path, source }),
    }
}

/// The map from tensors to files. `metadata` (the total size, often wrong in the wild) is not used.
fn read_index(value: Value) -> Result<BTreeMap<String, String>, Vec<IndexFault>> {
    let mut map = match value {
        Value::Object(map) => map,
        value => return Err(vec![IndexFault::NotAnObject { value: quote(&value) }]),
    };
    let weight_map = map.remove("weight_map").unwrap_or(Value::Null);
    map.remove("metadata");
    let mut faults: Vec<_> = map.into_iter().map(|(key, _)| IndexFault::UnknownKey { key }).collect();
    let Value::Object(listed) = weight_map else {
        faults.push(IndexFault::WeightMap { value: quote(&weight_map) });
        return Err(faults);
    };
    if listed.is_empty() {
        faults.push(IndexFault::WeightMap { value: "nothing".to_owned() });
    }
    let mut tensors = BTreeMap::new();
    for (tensor, file) in listed {
        match file {
            Value::String(file) if is_plain(&file) => {
                tensors.insert(tensor, file);
            }
            Value::String(file) => faults.push(IndexFault::FileName { tensor, file }),
            value => faults.push(IndexFault::WeightMap { value: quote(&value) }),
        }
    }
    if faults.is_empty() { Ok(tensors) } else { Err(faults) }
}

/// Whether a name means a file in the folder itself, on any system.
fn is_plain(file: &str) -> bool {
    !file.is_empty() && file != "." && file != ".." && !file.contains(['/', '\\', ':', '\0'])
}

/// Holds the index against what the files hold.
fn compare(weight_map: &BTreeMap<String, String>, shards: &[Shard]) -> Vec<IndexFault> {
    let mut faults = Vec::new();
    let mut held: HashMap<&str, Vec<String>> = HashMap::new();
    for shard in shards {
        let file = shard.path.file_name().unwrap_or_default().to_string_lossy();
        for entry in &shard.entries {
            held.entry(&entry.name).or_default().push(file.to_string());
            match weight_map.get(&entry.name) {
                None => faults.push(IndexFault::Unlisted { tensor: entry.name.clone(), file: file.to_string() }),
                Some(listed) if *listed != file => {
                    let tensor = entry.name.clone();
                    let listed = listed.clone();
                    let found = file.to_string();
                    faults.push(IndexFault::WrongFile { tensor, listed, found });
                }
                Some(_) => {}
            }
        }
    }
    for (tensor, file) in weight_map {
        if !held.contains_key(tensor.as_str()) {
            faults.push(IndexFault::Absent { tensor: tensor.clone(), file: file.clone() });
        }
    }
    faults
}
