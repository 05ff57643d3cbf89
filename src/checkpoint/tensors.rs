//! The tensors of the files held against those of the model: each one used, none missing, shapes and types as they must be.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tilewright_layout::DType;
use tilewright_megakernel::model::ModelSpec;
use tilewright_megakernel::weights::{SharedBytes, WeightTensor};

use super::error::{CheckpointError, Faults};
use super::shards::Shard;
use super::{Progress, header::Entry};

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// One tensor that is not as the model needs it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorFault {
    /// The model has the tensor, the files do not.
    #[error("tensor {tensor} is missing; shape {expected:?} is expected")]
    Missing {
        /// The tensor.
        tensor: String,
        /// The shape that it should have.
        expected: Vec<usize>,
    },
    /// The files have the tensor, the model does not.
    #[error("tensor {tensor} ({dtype}, shape {shape:?}) in {} is not part of the model; leaving it out would change the result",
        file.display())]
    Unknown {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// Its element type.
        dtype: DType,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// The shape is another one.
    #[error("tensor {tensor} in {} has shape {found:?}; {expected:?} is expected", file.display())]
    Shape {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// The shape that it should have.
        expected: Vec<usize>,
        /// The shape that it has.
        found: Vec<usize>,
    },
    /// The element type is not one of weights.
    #[error("tensor {tensor} in {} has elements of {found}; weights must be f32, f16 or bf16", file.display())]
    Dtype {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// Its element type.
        found: DType,
    },
    /// The embeddings are tied, and yet there is an output projection that differs from them.
    #[error(
        "tensor {tensor} in {} differs from model.embed_tokens.weight; with tie_word_embeddings true it must be \
         the same bits, or set it to false",
        file.display()
    )]
    UntiedHead {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
    },
}

/// Takes every tensor of the model out of the files.
///
/// Two kinds of tensors beside the model's are allowed, since dropping them changes nothing: `rotary_emb.inv_freq`
/// buffers, which are derived from the configuration, and an `lm_head.weight` with the bits of the tied embedding.
pub(super) fn gather(
    dir: &Path,
    spec: &ModelSpec,
    shards: &[Shard],
    progress: &mut dyn FnMut(Progress),
) -> Result<HashMap<String, WeightTensor>, CheckpointError> {
    let mut found: HashMap<&str, (&Shard, &Entry)> = HashMap::new();
    for shard in shards {
        found.extend(shard.entries.iter().map(|entry| (entry.name.as_str(), (shard, entry))));
    }
    let total = found.values().map(|(_, entry)| entry.range.len() as u64).sum();
    let mut done = 0;
    progress(Progress { done, total });
    let mut faults = Vec::new();
    let mut tensors = HashMap::new();
    for expected in spec.tensors() {
        let Some((shard, entry)) = found.remove(expected.name.as_str()) else {
            faults.push(TensorFault::Missing { tensor: expected.name, expected: expected.shape });
            continue;
        };
        let (tensor, file) = (expected.name, shard.path.clone());
        if entry.shape != expected.shape {
            let (expected, found) = (expected.shape, entry.shape.clone());
            faults.push(TensorFault::Shape { tensor, file, expected, found });
        } else if !matches!(entry.dtype, DType::F32 | DType::F16 | DType::BF16) {
            faults.push(TensorFault::Dtype { tensor, file, found: entry.dtype });
        } else {
            match share(shard, entry) {
                Some(weights) => drop(tensors.insert(tensor, weights)),
                None => faults.push(TensorFault::Missing { tensor, expected: expected.shape }),
            }
        }
        done += entry.range.len() as u64;
        progress(Progress { done, total });
    }
    let mut left: Vec<_> = found.into_values().filter(|(_, entry)| !is_derived(&entry.name, spec.layers)).collect();
    left.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    for (shard, entry) in left {
        let (tensor, file) = (entry.name.clone(), shard.path.clone());
        if tensor != HEAD || !spec.tied_embeddings {
            let (dtype, shape) = (entry.dtype, entry.shape.clone());
            faults.push(TensorFault::Unknown { tensor, file, dtype, shape });
        } else if let Some(embedding) = tensors.get(EMBEDDING)
            && !same_bits(embedding, shard, entry)
        {
            faults.push(TensorFault::UntiedHead { tensor, file });
        }
    }
    progress(Progress { done: total, total });
    if faults.is_empty() {
        Ok(tensors)
    } else {
        Err(CheckpointError::Tensors { path: dir.to_owned(), faults: Faults(faults) })
    }
}

/// The tensor's bytes in the map. The header's reader has checked range and size, so there always is one.
fn share(shard: &Shard, entry: &Entry) -> Option<WeightTensor> {
    let bytes = SharedBytes::new(shard.mapping.clone(), entry.range.clone())?;
    WeightTensor::new(entry.dtype, entry.shape.clone(), bytes).ok()
}

fn same_bits(embedding: &WeightTensor, shard: &Shard, entry: &Entry) -> bool {
    embedding.dtype() == entry.dtype
        && embedding.shape() == entry.shape
        && shard.mapping.get(entry.range.clone()) == Some(embedding.bytes().as_ref())
}

/// Whether the tensor is a buffer of rotary frequencies, of the whole model or of a layer that it has.
fn is_derived(name: &str, layers: usize) -> bool {
    let Some(owner) = name.strip_suffix("rotary_emb.inv_freq") else {
        return false;
    };
    let layer = owner.strip_prefix("model.layers.").and_then(|rest| rest.strip_suffix(".self_attn."));
    let in_range = |digits: &str| digits.parse::<usize>().is_ok_and(|n| n < layers && n.to_string() == digits);
    owner == "model." || layer.is_some_and(in_range)
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
