//! The tensors of the files held against those of the model: each one used, none missing, shapes
//! and types as they must be.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};
use rayon::prelude::*;
use tilewright_kernels::quant::QuantMatrix;
use tilewright_layout::DType;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::weights::{SharedBytes, WeightTensor};

use super::error::{CheckpointError, Faults};
use super::header::{EntryRows, TensorEntry};
use super::quant::{Job, QuantPlan, TensorPart, prepare};
use super::shards::Shard;
use crate::checkpoint::TensorFault;

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// The tensors of a model: each is dense or quantised.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub dense: HashMap<String, WeightTensor>,
    pub quantized: HashMap<String, Arc<QuantMatrix>>,
    /// The factors of key and value codes, by pool.
    pub cache_scales: HashMap<String, f32>,
    /// Notes for the user, one line each.
    pub notes: Vec<String>,
}

/// Takes every tensor of the model out of the files; those of quantised modules are unpacked into
/// the canonical form.
///
/// Some additional tensors are allowed, since dropping them changes nothing. They are
/// `rotary_emb.inv_freq` buffers, which are derived from the configuration, and an `lm_head.weight`
/// with the bits of the tied embedding. Quantised modules may also have biases of zeros and scales
/// of activations, keys and values.
pub(super) fn gather(
    dir: &Path,
    spec: &ModelSpec,
    plan: &QuantPlan,
    shards: &[Shard],
    progress: &mut dyn FnMut(Progress),
) -> Result<Gathered, CheckpointError> {
    let mut found: HashMap<&str, (&Shard, &TensorEntry)> = HashMap::new();
    for shard in shards {
        found.extend(shard.entries.iter().map(|entry| (entry.name.as_str(), (shard, entry))));
    }
    if let Some(prefix) = prefix_of(&found) {
        return Err(CheckpointError::Prefix { path: dir.to_owned(), prefix });
    }
    let total = found.values().map(|(_, entry)| entry.range.len() as u64).sum();
    let mut done = 0;
    progress(Progress { done, total });
    let mut faults = Vec::new();
    let mut jobs = Vec::new();
    let mut gathered = Gathered::default();
    for expected in spec.tensors() {
        let module = expected.name.strip_suffix(".weight");
        if let (Some(module), &[n, k]) = (module, expected.shape.as_slice())
            && let Some(stored) = plan.stored(module)
        {
            // The scales of keys and values are looked at later.
            let is_scale = |name: &str| cache_scale(name, plan, spec.layers).is_some();
            let mut take = |name: &str| {
                let entry = if is_scale(name) { None } else { found.remove(name) };
                entry.map(|(shard, entry)| part(shard, entry))
            };
            let mut of_parts = Vec::new();
            jobs.extend(prepare(module, [n, k], stored, &mut take, &mut of_parts));
            faults.extend(of_parts.into_iter().map(TensorFault::from));
            continue;
        }
        let Some((shard, entry)) = found.remove(expected.name.as_str()) else {
            faults.push(TensorFault::Missing { tensor: expected.name, expected: expected.shape });
            continue;
        };
        done += entry.range.len() as u64;
        match dense(shard, entry, &expected.shape) {
            Ok(weights) => drop(gathered.dense.insert(expected.name, weights)),
            Err(fault) => faults.push(fault),
        }
        progress(Progress { done, total });
    }
    check_left(found, spec, plan, &mut gathered, &mut faults);
    if faults.is_empty() {
        unpack(jobs, &mut gathered, &mut faults);
    }
    progress(Progress { done: total, total });
    if faults.is_empty() {
        Ok(gathered)
    } else {
        Err(CheckpointError::Tensors { path: dir.to_owned(), faults: Faults(faults) })
    }
}

/// The prefix of tensor names if the language model is part of a larger model.
fn prefix_of(found: &HashMap<&str, (&Shard, &TensorEntry)>) -> Option<String> {
    let is_part = |name: &&&str| name.ends_with("embed_tokens.weight") && name.contains("language_model.");
    let name = found.keys().filter(|_| !found.contains_key(EMBEDDING)).find(is_part)?;
    let end = name.find("language_model.")? + "language_model.".len();
    Some(name[..end].to_owned())
}

/// A tensor as the files hold it.
fn dense(shard: &Shard, entry: &TensorEntry, expected: &[usize]) -> Result<WeightTensor, TensorFault> {
    let tensor = entry.name.clone();
    let file = shard.path.clone();
    if entry.shape != expected {
        let expected = expected.to_vec();
        let found = entry.shape.clone();
        return Err(TensorFault::Shape { tensor, file, expected, found });
    }
    if !matches!(entry.dtype, DType::F32 | DType::F16 | DType::BF16) {
        return Err(TensorFault::Dtype { tensor, file, found: entry.dtype });
    }
    share(shard, entry).ok_or_else(|| TensorFault::Missing { tensor, expected: expected.to_vec() })
}

/// Holds what is left against what may be left.
fn check_left(
    found: HashMap<&str, (&Shard, &TensorEntry)>,
    spec: &ModelSpec,
    plan: &QuantPlan,
    gathered: &mut Gathered,
    faults: &mut Vec<TensorFault>,
) {
    let mut left: Vec<_> = found.into_values().filter(|(_, entry)| !is_derived(&entry.name, spec.layers)).collect();
    left.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    for (shard, entry) in left {
        let tensor = entry.name.clone();
        let file = shard.path.clone();
        if let Some(pool) = cache_scale(&entry.name, plan, spec.layers) {
            let note = match number(shard, entry).filter(|scale| scale.is_normal() && *scale > 0.0) {
                Some(scale) => {
                    if let Some(other) = gathered.cache_scales.insert(pool, scale).filter(|other| *other != scale) {
                        faults.push(TensorFault::CacheScales { tensor, file, scale, other });
                        continue;
                    }
                    "the checkpoint has scales of quantised keys and values; they are used with --kv fp8"
                }
                None => {
                    "the checkpoint has scales of keys and values that are not one positive number; they are not used"
                }
            };
            if !gathered.notes.iter().any(|line| line == note) {
                gathered.notes.push(note.to_owned());
            }
        } else if tensor != HEAD || !spec.tied_embeddings {
            let module = entry.name.strip_suffix(".bias").filter(|module| plan.stored(module).is_some());
            let zeros = || shard.bytes().get(entry.range.clone()).is_some_and(|bytes| bytes.iter().all(|&b| b == 0));
            if module.is_some() && zeros() {
                continue;
            }
            let dtype = entry.dtype;
            let shape = entry.shape.clone();
            faults.push(TensorFault::Unknown { tensor, file, dtype, shape });
        } else if let Some(embedding) = gathered.dense.get(EMBEDDING)
            && !same_bits(embedding, shard, entry)
        {
            faults.push(TensorFault::UntiedHead { tensor, file });
        }
    }
}

/// Reads the quantised modules, in parallel.
fn unpack(jobs: Vec<Job>, gathered: &mut Gathered, faults: &mut Vec<TensorFault>) {
    let unpacked: Vec<_> = jobs.par_iter().map(Job::run).collect();
    let mut wrapped = 0;
    for (job, unpacked) in jobs.iter().zip(unpacked) {
        match unpacked {
            Ok(unpacked) => {
                wrapped += usize::from(unpacked.wrapped);
                gathered.quantized.insert(format!("{}.weight", job.module), Arc::new(unpacked.matrix));
            }
            Err(fault) => faults.push(fault.into()),
        }
    }
    if wrapped > 0 {
        let note = "have zero points stored as all ones, which is -1; with the format's one added they are read as 0";
        gathered.notes.push(format!("{wrapped} quantised modules {note}"));
    }
}

/// A tensor as the schemes see it.
fn part<'a>(shard: &'a Shard, entry: &'a TensorEntry) -> TensorPart<'a> {
    TensorPart { file: &shard.path, entry, mapping: shard.bytes() }
}

/// The pool whose codes the tensor is the scale of, where it is one that a quantised checkpoint may
/// bring.
fn cache_scale(name: &str, plan: &QuantPlan, layers: usize) -> Option<String> {
    // Names of vLLM and ModelOpt; `output_scale` is that of compressed-tensors.
    const SCALES: [(&str, &str); 6] = [
        ("k_scale", "k"),
        ("v_scale", "v"),
        ("k_proj.k_scale", "k"),
        ("v_proj.v_scale", "v"),
        ("k_proj.output_scale", "k"),
        ("v_proj.output_scale", "v"),
    ];
    let (digits, scale) = name.strip_prefix("model.layers.")?.split_once(".self_attn.")?;
    let in_range = digits.parse::<usize>().is_ok_and(|n| n < layers && n.to_string() == digits);
    let (_, which) = SCALES.into_iter().find(|(known, _)| *known == scale)?;
    (!plan.is_empty() && in_range).then(|| format!("layers.{digits}.{which}"))
}

/// The number that is a tensor's only element.
fn number(shard: &Shard, entry: &TensorEntry) -> Option<f32> {
    let bytes = shard.bytes().get(entry.range.clone())?;
    match (entry.dtype, bytes) {
        (DType::F32, &[a, b, c, d]) => Some(f32::from_le_bytes([a, b, c, d])),
        (DType::BF16, &[a, b]) => Some(bf16::from_le_bytes([a, b]).to_f32()),
        (DType::F16, &[a, b]) => Some(f16::from_le_bytes([a, b]).to_f32()),
        _ => None,
    }
}

/// The tensor's bytes in the map. The header's reader has checked range and size, so there always
/// is one.
fn share(shard: &Shard, entry: &TensorEntry) -> Option<WeightTensor> {
    let bytes = match entry.rows {
        EntryRows::All => SharedBytes::new(Arc::clone(&shard.memory), entry.range.clone())?,
        EntryRows::Alternate { .. } => SharedBytes::aligned_copy(&entry.bytes(shard.bytes())),
    };
    WeightTensor::new(entry.dtype, entry.shape.clone(), bytes).ok()
}

fn same_bits(embedding: &WeightTensor, shard: &Shard, entry: &TensorEntry) -> bool {
    embedding.dtype() == entry.dtype
        && embedding.shape() == entry.shape
        && shard.bytes().get(entry.range.clone()) == Some(embedding.bytes().as_ref())
}

/// Whether the tensor is a buffer of rotary frequencies, of the whole model or of a layer that it
/// has.
fn is_derived(name: &str, layers: usize) -> bool {
    let Some(owner) = name.strip_suffix("rotary_emb.inv_freq") else {
        return false;
    };
    let layer = owner.strip_prefix("model.layers.").and_then(|rest| rest.strip_suffix(".self_attn."));
    let in_range = |digits: &str| digits.parse::<usize>().is_ok_and(|n| n < layers && n.to_string() == digits);
    owner == "model." || layer.is_some_and(in_range)
}

/// The loading progress of a checkpoint, in bytes of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

#[cfg(test)]
mod tests {
    use super::is_derived;

    #[test]
    fn only_rotary_buffers_are_derived() {
        assert!(is_derived("model.rotary_emb.inv_freq", 2));
        assert!(is_derived("model.layers.1.self_attn.rotary_emb.inv_freq", 2));
        for name in [
            "model.layers.2.self_attn.rotary_emb.inv_freq",
            "model.layers.01.self_attn.rotary_emb.inv_freq",
            "model.layers.+1.self_attn.rotary_emb.inv_freq",
            "model.layers.1.self_attn.rotary_emb.cos_cached",
            "rotary_emb.inv_freq",
            "xmodel.rotary_emb.inv_freq",
        ] {
            assert!(!is_derived(name, 2), "{name}");
        }
    }
}
