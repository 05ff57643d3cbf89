//! Errors of the tensors of a quantised module.

use std::path::PathBuf;

use thiserror::Error;
use tilewright_kernels::quant::QuantError;
use tilewright_layout::DType;

/// A tensor of a quantised module that does not match its scheme.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum PartFault {
    #[error("tensor {tensor} is missing; {scheme} needs it, with shape {expected:?}")]
    Missing { tensor: String, scheme: &'static str, expected: Vec<usize> },
    #[error("tensor {tensor} in {} has elements of {found}; {scheme} stores {expected} there", file.display())]
    Dtype { tensor: String, file: PathBuf, scheme: &'static str, expected: &'static str, found: DType },
    #[error("tensor {tensor} in {} has shape {found:?}; {scheme} needs {expected:?}", file.display())]
    Shape { tensor: String, file: PathBuf, scheme: &'static str, expected: Vec<usize>, found: Vec<usize> },
    #[error("tensor {tensor} in {} cannot be used: {source}", file.display())]
    Values { tensor: String, file: PathBuf, source: QuantError },
    #[error("tensor {tensor} in {} says the weight is {found:?}; by config.json it is {expected:?}", file.display())]
    WeightShape { tensor: String, file: PathBuf, expected: [usize; 2], found: Vec<i64> },
    #[error("tensor {tensor} in {} is {value}; it must be a finite number above 0", file.display())]
    Global { tensor: String, file: PathBuf, value: f32 },
    #[error("tensor {tensor} in {} has a scale of {value}; it must be finite and not negative", file.display())]
    Scale { tensor: String, file: PathBuf, value: f32 },
    #[error("tensor {tensor} in {} has a zero point of {found}; with symmetric codes each is {expected}", file.display())]
    Asymmetric { tensor: String, file: PathBuf, expected: i16, found: i16 },
    #[error("tensor {tensor} in {} puts column {column} in group {found}; there are {groups} groups", file.display())]
    GroupIndex { tensor: String, file: PathBuf, column: usize, found: i32, groups: usize },
    #[error("tensor {tensor} in {} puts {found} columns in group {group}; it holds {expected}", file.display())]
    GroupSize { tensor: String, file: PathBuf, group: usize, found: usize, expected: usize },
    #[error(
        "module {module} has groups or blocks of {size} over {extent}; a size that does not divide the extent must be a \
         power of two, as quantisation tools write it (its scales would fit other sizes too)"
    )]
    OddSize { module: String, size: usize, extent: usize },
    #[error("module {module} is {n} x {k}; {scheme} needs N as a multiple of 8 and K as one of its group, {group}")]
    Ragged { module: String, scheme: &'static str, n: usize, k: usize, group: usize },
}
