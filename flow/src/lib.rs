//! Sparse-attention flows: what to keep of each block of keys and values, and which blocks a query
//! attends to.
//!
//! A [`Flow`] is a few typed lines. [`trace()`] records it once as two
//! [graphs](tilewright_graph::rows): one for a block that
//! becomes complete, one for a decode step. Illegal combinations of formats do not compile. Shapes
//! are checked while tracing, for every model at once; what depends on the model is checked when
//! the flow is bound to it.
//!
//! # Example
//! The fields that `quest` keeps of a block of 16 tokens in a model with heads of 128 dimensions:
//!
//! ```
//! use tilewright_flow::{ModelShape, algorithms};
//!
//! let quest = algorithms::named("quest")?.trace()?;
//! let model = ModelShape { kv_heads: 8, group: 4, head_dim: 128, block_tokens: 16 };
//! let extents = quest.extents(&model)?;
//! let names: Vec<&str> = quest.declared.fields.iter().map(|field| field.name.as_str()).collect();
//! assert_eq!(names, ["max", "min"]);
//! assert_eq!(extents.fields, [[1, 128], [1, 128]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Flow`] shows how to write one; `examples/custom_flow` runs one in a model.
//!
//! # Modules
//! | module | what it holds |
//! |---|---|
//! | [`format`](mod@format), [`declare`], [`trace`](mod@trace) | what a flow is written with |
//! | [`memory`] | pages of keys, values and fields; requests with their states; budgets; selections |
//! | [`run`] | execution on the host, op by op: the oracle of programs and devices |
//! | [`program`](mod@program) | a flow as ops of a program: summaries, scores, selection; the lowering's hook |
//! | [`algorithms`] | the flows that are known by name |
//! | [`picture`] | a flow as text, DOT, SVG |
//!
//! `docs/flows.md` lists the ops and the rules that they follow.
#![forbid(unsafe_code)]

pub mod algorithms;
mod bind;
pub mod declare;
mod error;
mod flow;
pub mod format;
pub mod memory;
pub mod picture;
pub mod program;
mod real;
pub mod run;
pub mod trace;

pub use bind::{BoundFlow, FlowExtents, Parameters};
pub use error::{BindError, FlowErrors, FlowProblem, Requirement, RunError, TraceError};
pub use flow::{Flow, FlowPass, FlowReport, RecordedFlow, Removed, Traced, record, trace};
pub use real::Real;
pub use tilewright_graph::dim::{Dim, InnerShape, ModelShape};

/// The names that a flow definition needs.
pub mod prelude {
    pub use crate::declare::{Declare, DeclareState, Field, FlowParameter, State};
    pub use crate::trace::{Block, Done, StateSlot, Step, Value};
    pub use crate::{Dim, Flow, FlowErrors, trace};
    pub use tilewright_graph::rows::InnerAxis::{D0, D1};
    pub use tilewright_graph::rows::{Comparison, Norm, Reduce, Scale, Taps};
    pub use tilewright_layout::tensor::{Batched, Paged, Parameter, Ragged};
}
