//! Sparse-attention flows: what is kept of each block of keys and values, and which blocks a query attends to, in a few typed
//! lines.
//!
//! A [`Flow`] is traced once ([`trace()`]) to two graphs: one for a block that becomes complete, one for a decode step. Illegal
//! combinations of formats do not compile; shapes are checked while tracing, for every model at once; what cannot be decided
//! then is checked when the flow is bound to a model.
//!
//! | module | what it holds |
//! |---|---|
//! | [`dim`], [`format`](mod@format), [`declare`], [`trace`](mod@trace) | what a flow is written with |
//! | [`op`], [`graph`] | what it becomes: ops, edges, reports of what was removed |
//! | [`plan`] | fused groups under a budget of registers and shared memory, with their bytes |
//! | [`memory`] | pages of keys, values and fields; requests with their states; budgets; selections |
//! | [`run`] | two executions: the oracle op by op in f64, the fused groups on padded tiles |
//! | [`program`](mod@program) | a flow as ops of a program: summaries, scores, selection; the lowering's hook |
//! | [`algorithms`] | the flows that are known by name |
//! | [`picture`] | a flow as text, DOT, SVG |
//!
//! `docs/flows.md` has the ops and every decision about them.
#![forbid(unsafe_code)]

pub mod algorithms;
mod bind;
pub mod declare;
pub mod dim;
mod error;
mod flow;
pub mod format;
pub mod graph;
pub mod memory;
pub mod op;
pub mod picture;
pub mod plan;
pub mod program;
mod real;
pub mod run;
mod shape;
pub mod trace;

pub use bind::{Bound, Extents, Parameters};
pub use dim::{Dim, Shape};
pub use error::{BindError, FlowErrors, Problem, RunError, TraceError};
pub use flow::{Flow, Recorded, Report, Traced, record, trace};
pub use real::Real;
pub use shape::ModelShape;

/// What a flow is written with.
pub mod prelude {
    pub use crate::declare::{Declare, DeclareState, Field, State, Weights};
    pub use crate::op::Axis::{D0, D1};
    pub use crate::op::{Comparison, Norm, Reduce, Scale, Taps};
    pub use crate::trace::{Block, Done, Slot, Step, Value};
    pub use crate::{Dim, Flow, FlowErrors, trace};
    pub use tilewright_layout::tensor::{Batched, Paged, Parameter, Ragged};
}
