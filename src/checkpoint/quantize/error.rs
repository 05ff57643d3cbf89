//! Why a checkpoint could not be quantised.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use tilewright_kernels::quant::QuantError;
use tilewright_layout::DType;

use crate::checkpoint::CheckpointError;

/// Why a checkpoint could not be quantised. Nothing is left at the output's path.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum QuantizeError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("the checkpoint has {modules} quantised modules already; give its dense form")]
    Quantized { modules: usize },
    #[error("output {} exists and is not an empty folder; give a new one", path.display())]
    Exists { path: PathBuf },
    #[error("scheme fp8 has a scale a row and no groups; leave --group {group} out")]
    NoGroups { group: usize },
    #[error("group is {group}; it must be 16 to 65536")]
    Group { group: usize },
    #[error(
        "module {module} has {k} columns, which share the group {common} with {group}; 16 is the least that is written, \
         so give a --group that has a common divisor of 16 at least with it"
    )]
    Ragged { module: String, k: usize, group: usize, common: usize },
    #[error("module {module} cannot be quantised")]
    Module { module: String, source: QuantError },
    #[error("module {module} has elements of {found}; weights are f32, f16 or bf16")]
    Dtype { module: String, found: DType },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the work was stopped before its end; nothing was written")]
    Stopped,
}
