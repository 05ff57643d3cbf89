//! The identity of a rank's model and back end, by which ranks check that all have the same model.
//!
//! The architecture, and the name and shape of every tensor, go into one number; how they are
//! stored is told in words; the values of all vectors (norms and biases, a few kilobytes a layer)
//! go into another number. So another checkpoint of the same shape, such as a model that was
//! trained on, is told from this one, unless its norms and biases have the same bits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3;

use super::row_transport::Rows;
use crate::checkpoint::Checkpoint;

/// A model as ranks compare it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The back end: `cpu` or `gpu`; empty if there is none yet.
    machine: String,
    /// The transport of its rows.
    rows: Rows,
    /// The hash of the architecture, and of the names and shapes of tensors.
    shape: String,
    /// The number of tensors of each storage type.
    stored: String,
    /// The hash of the values of vectors.
    values: String,
}

/// The difference between two models.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum OtherModel {
    #[error("its device is a {found}, the driver's a {expected}; all ranks run on CPUs or all on GPUs")]
    Machine { found: String, expected: String },
    #[error("its rows go by {found}, the driver's by {expected}; give both --rows-by {expected}")]
    Rows { found: Rows, expected: Rows },
    #[error("its model is another one: config and tensors are {found} there and {expected} here")]
    Shape { found: String, expected: String },
    #[error("its weights are stored otherwise: {found} there and {expected} here")]
    Stored { found: String, expected: String },
    #[error(
        "its weights have other values, in a model of the same shape: norms and biases are {found} there and {expected} here"
    )]
    Values { found: String, expected: String },
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
        let stored: Vec<String> = stored.into_iter().map(|(name, count)| format!("{count} {name}")).collect();
        let hex = |hash: Xxh3| format!("{:016x}", hash.digest());
        let machine = String::new();
        let rows = Rows::Tcp;
        Identity { machine, rows, shape: hex(shape), stored: stored.join(", "), values: hex(values) }
    }

    /// The identity of a rank whose machine and transport of rows are known.
    #[must_use]
    pub(super) fn on(self, machine: &str, rows: Rows) -> Identity {
        Identity { machine: machine.to_owned(), rows, ..self }
    }

    /// The transport of its rows.
    pub(super) fn rows(&self) -> Rows {
        self.rows
    }

    /// Refuses another model.
    ///
    /// # Errors
    /// The difference between the models.
    pub fn check(&self, found: &Identity) -> Result<(), OtherModel> {
        let differ = |of: fn(&Identity) -> &String| {
            let [found, expected] = [of(found), of(self)].map(|text| text.chars().take(100).collect::<String>());
            (found != expected).then_some((found, expected))
        };
        if let Some((found, expected)) = differ(|model| &model.machine) {
            return Err(OtherModel::Machine { found, expected });
        }
        if found.rows != self.rows {
            return Err(OtherModel::Rows { found: found.rows, expected: self.rows });
        }
        if let Some((found, expected)) = differ(|model| &model.shape) {
            return Err(OtherModel::Shape { found, expected });
        }
        if let Some((found, expected)) = differ(|model| &model.stored) {
            return Err(OtherModel::Stored { found, expected });
        }
        match differ(|model| &model.values) {
            Some((found, expected)) => Err(OtherModel::Values { found, expected }),
            None => Ok(()),
        }
    }
}
