//! The identity of a rank's model and back end, by which ranks check that all have the same model.
//!
//! The architecture with the name and shape of every tensor is one hash, how tensors are stored
//! another, and the values of all vectors (norms and biases, a few kilobytes a layer) a third. A
//! fine-tuned model of the same shape differs, unless its norms and biases have the same bits.

use std::collections::BTreeMap;

use bytemuck::{Pod, Zeroable};
use thiserror::Error;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::checkpoint::Checkpoint;

/// A model as ranks compare it: hashes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Identity {
    /// The back end's name, `cpu` or `gpu`, in zeros; zeros if there is none yet.
    back_end: [u8; 8],
    /// The architecture, and the names and shapes of tensors.
    shape: [u8; 8],
    /// The number of tensors of each storage type.
    stored: [u8; 8],
    /// The values of vectors.
    values: [u8; 8],
}

/// The difference between two models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message says all")]
pub enum OtherModel {
    #[error("its back end is another one; all ranks run on CPUs or all on GPUs")]
    BackEnd,
    #[error("its model is another one: config.json, or names and shapes of tensors, differ from those of rank 0")]
    Shape,
    #[error("its weights are stored in other types than those of rank 0")]
    Stored,
    #[error("its norms and biases have other values than those of rank 0, in a model of the same shape")]
    Values,
}

impl Identity {
    /// A checkpoint's.
    ///
    /// ```
    /// use tilewright::{checkpoint::Checkpoint, engine::Identity};
    /// let of = |dir: &str| Checkpoint::open(dir.as_ref(), &mut |_| ()).map(|checkpoint| Identity::of(&checkpoint));
    /// let llama = of("models/tiny-llama")?;
    /// let qwen = of("models/tiny-qwen3")?;
    /// assert!(llama.check(&llama).is_ok());
    /// assert!(llama.check(&qwen).unwrap_err().to_string().starts_with("its model is another one"));
    /// # Ok::<(), tilewright::checkpoint::CheckpointError>(())
    /// ```
    pub fn of(checkpoint: &Checkpoint) -> Identity {
        let mut shape = Xxh3::new();
        let mut values = Xxh3::new();
        let mut stored: BTreeMap<String, usize> = BTreeMap::new();
        shape.update(format!("{:?}", checkpoint.spec()).as_bytes());
        let mut tensors: Vec<_> = checkpoint.tensors().collect();
        tensors.sort_by_key(|(name, _)| *name);
        for (name, tensor) in tensors {
            shape.update(format!("\n{name} {:?}", tensor.shape()).as_bytes());
            *stored.entry(tensor.dtype().name().to_owned()).or_default() += 1;
            if tensor.shape().len() == 1 {
                values.update(tensor.bytes().as_ref());
            }
        }
        let mut modules: Vec<_> = checkpoint.quantized_modules().collect();
        modules.sort_by_key(|(name, _)| *name);
        for (name, matrix) in modules {
            shape.update(format!("\n{name} {:?}", [matrix.n(), matrix.k()]).as_bytes());
            *stored.entry(format!("{:?}", matrix.code())).or_default() += 1;
        }
        let stored = xxh3_64(format!("{stored:?}").as_bytes());
        let [shape, stored, values] = [shape.digest(), stored, values.digest()].map(u64::to_le_bytes);
        Identity { back_end: [0; 8], shape, stored, values }
    }

    /// The identity of a rank whose back end is known.
    #[must_use]
    pub(super) fn on(self, back_end: &str) -> Identity {
        let bytes = back_end.as_bytes();
        Identity { back_end: std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0)), ..self }
    }

    /// Refuses another model.
    ///
    /// # Errors
    /// The first difference between the models.
    pub fn check(&self, found: &Identity) -> Result<(), OtherModel> {
        let differences = [
            (self.back_end != found.back_end, OtherModel::BackEnd),
            (self.shape != found.shape, OtherModel::Shape),
            (self.stored != found.stored, OtherModel::Stored),
            (self.values != found.values, OtherModel::Values),
        ];
        differences.into_iter().find(|(differs, _)| *differs).map_or(Ok(()), |(_, difference)| Err(difference))
    }
}
