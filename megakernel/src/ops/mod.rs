//! The ops: what a task computes. An op is one row, [`TaskOp`]: name, operands with their regions,
//! cells, cost, oracle. It names no back end; a back end finds its side of an op by a table, as
//! [`DeviceOp`](crate::vm::device::DeviceOp) and [`LaunchOp`](crate::vm::graph::LaunchOp).
//!
//! | file | what it holds |
//! |---|---|
//! | `registry` | ops by name, JSON |
//! | `copy`, `embed`, `reduce`, `linear_part`, `argmax`, `sample` | the op of that name |
//! | `linear/`, `qkv/`, `rope/`, `attention/` | the op of that name: operands, row, oracle |
//! | `experts/` | mixtures of experts: `route`, `expert_gate_up`, `expert_down` |
//! | `norm`, `merge` | what products apply to their inputs: RMS norms, merged splits of attention |
//! | `place` | rotations, and where a row's token goes |
//!
//! All arithmetic is f32, a store converts to the dtype of its buffer. Every op has a naive oracle
//! of the same name in `tilewright_kernels::naive`. Fused ops are defined by the plain ones of
//! `testing`: `linear` with an `rms_norm` input equals `rms_norm` followed by `linear`, bit for bit
//! on the reference machine.
//!
//! The trait, an op of any type, footprints and checked operands are part of
//! [`program`](crate::program). `docs/program.md`, *To add an op*, lists the places that a new op
//! touches.
//!
//! May import: `program`, `oracle`.

mod argmax;
mod attention;
mod copy;
mod embed;
mod experts;
mod linear;
mod linear_part;
mod merge;
mod norm;
mod place;
mod qkv;
mod reduce;
mod registry;
mod rope;
mod sample;

pub use crate::program::{
    Access, AccessRole, CellUse, Check, Choice, Footprint, Op, OpValue, OperandError, Operands, Paging, Partial, Role,
    SLOT_WORDS, SplitAccess, SplitRead, TaskOp, Written, index, interval, multiple, positive, same_extents,
};
pub use argmax::Argmax;
pub use attention::{Attention, Selection};
pub use copy::Copy;
pub use embed::{Embed, TableShard};
pub use experts::{ExpertDown, ExpertGateUp, ExpertOutput, Route, RouteKind, SlotStrips};
pub use linear::{Linear, LinearInput, LinearOutput};
pub use linear_part::LinearPart;
#[cfg(feature = "testing")]
pub(crate) use merge::merge;
#[cfg(feature = "testing")]
pub(crate) use norm::normed_rows;
pub use norm::{LayerNorm, NormWeight, SumNorm};
pub use place::{Rotation, RowCells};
pub use qkv::{GroupShape, KeyOutput, PAIRS_PER_STRIP, Projection, Qkv, QkvProjection, StripRun};
pub use reduce::Reduce;
pub use registry::{RegisterError, register};
pub use rope::{HeadColumns, HeadOutput, Rope};
pub use sample::{REQUEST_WORDS, Sample};
