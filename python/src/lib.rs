//! The extension module of the Python package: what Rust does for it, with Python's types at its
//! edge. The package's own modules, in Python, are what a user sees.
//!
//! | file | what it holds |
//! |---|---|
//! | `ops` | kernels on arrays and tensors |
//! | `operands` | arrays as operands: where they lie, their tensors, results |
//! | `dlpack` | tensors of other libraries |
//! | `codes` | codes of checkpoints as kernels read them |
//! | `layout` | layouts, swizzles, fragments, pictures |
//! | `engine` | a model on a device, its requests and their streams |
//! | `plan` | a decode step, or a part of one, on a caller's stream |
//! | `stream` | streams of other code |
//! | `tensors` | weights that belong to tensors of Python |
//! | `error` | the package's exceptions |

mod codes;
mod dlpack;
mod engine;
mod error;
mod layout;
mod operands;
mod ops;
mod plan;
mod stream;
mod tensors;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::codes::pack_codes;
    #[pymodule_export]
    use crate::engine::{Engine, Stream, Token};
    #[pymodule_export]
    use crate::error::{EngineError, LayoutError, OpError};
    #[pymodule_export]
    use crate::layout::{Value, apply, atoms, evaluate, fragment, svg, text, wavefronts};
    #[pymodule_export]
    use crate::operands::{Simulator, simulate};
    #[pymodule_export]
    use crate::ops::{
        attention_decode, attention_prefill, attention_workspace, choose, dlpack_tensor, embedding, gated, gemm,
        gemm_workspace, grouped_gemm, linear, merge_attention, moe, moe_workspace, pack_linear, rms_norm, rope,
        sampling_request,
    };
    #[pymodule_export]
    use crate::plan::Plan;
}
