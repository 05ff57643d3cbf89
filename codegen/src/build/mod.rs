//! The recorder: kernels are ordinary Rust functions that record themselves.
//!
//! A kernel takes `k: &Builder` and speaks in values. [`Val`] is `Copy` and has the operators;
//! literals stand where values do; Rust loops unroll, [`Builder::for_`] counts at run time. Methods
//! stand in the file of the family of the instructions that they record.
//!
//! # Invariants
//! * Recording is deterministic: the same function records the same bytes.
//! * Pure values are merged within the scope where they were made, and folded where the result is
//!   the same on every machine; see `fold`.
//! * Every statement has the line of Rust outside this room that asked for it.
//! * Nothing here fails: what is wrong with a kernel, `verify` says, under its line.
//!
//! This module imports `ir` alone.

mod arith;
mod bits;
mod control;
mod convert;
mod copy;
mod fold;
mod mem;
mod mma;
mod padding;
mod print;
mod ptr;
mod recorder;
mod sync;
mod val;
mod value;
mod warp;

pub use arith::Quotient;
pub use control::{Carried, Moving};
pub use convert::CompositeScalar;
pub use copy::Bulk;
pub use mem::{Load, Store};
pub use mma::{Descriptor, SwizzleMode, WgmmaOperands};
pub use print::{PrintValues, Printed};
pub use ptr::{Allocation, Cluster, Counter, Global, Index, Offset, OnChip, Param, Ptr, Shared, SpaceOf, Writable};
pub use recorder::{BlockShape, Builder, block, record};
pub use sync::Mbarrier;
pub use val::{
    Atomic, Bf16x2, Count, F16x2, Float, Half, Integer, IntoVal, Lane, Logic, Number, Numeric, Ordered, Pair, Raw,
    Real, Scalar, Signed, Val, Wide, Word,
};
pub use value::{RegArray, TensorMap, Var};
