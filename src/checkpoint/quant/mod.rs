//! Quantised checkpoints: which modules are quantised, how each is stored, and its codes in the
//! canonical form.
//!
//! | file | what it does |
//! |---|---|
//! | `scheme` | the table of schemes: tensors, packing, codes, scales, zeros, order of each |
//! | `awq`, `gptq`, `compressed`, `fp8`, `modelopt`, `mxfp4` | a `quant_method` each: its keys become a [`StoredModule`] for each module |
//! | `args` | the weights' arguments of compressed-tensors become a scheme |
//! | `pattern` | the ways to name modules: names, `re:`, wildcards |
//! | `plan` | `quantization_config`, or the file beside `config.json`, becomes a [`QuantPlan`] |
//! | `form` | the form that codes will have, for who has no weights |
//! | `fault` | what can be wrong with a module's tensors |
//! | `parts` | the tensors of one module, unpacked into a [`QuantMatrix`](tilewright_kernels::quant::QuantMatrix) |
//!
//! A new scheme is a row of `scheme` and the keys that choose it. This module knows names and bits
//! of files; what a quantised matrix means is said in `tilewright_kernels::quant`.

mod args;
mod awq;
mod compressed;
mod fault;
mod form;
mod fp8;
mod gptq;
mod modelopt;
mod mxfp4;
mod parts;
mod pattern;
mod plan;
mod scheme;
mod stored;

pub use fault::PartFault;
pub(super) use parts::{Job, TensorPart, prepare};
pub(super) use plan::{read_beside, read_key};
pub use stored::{QuantPlan, StoredModule};
