//! The cells of a step: what changes from step to step, and which buffers hold it.
//!
//! | file | what it holds |
//! |---|---|
//! | `step` | token ids, positions, page tables and requests of a step, and their checks |
//! | `roles` | the buffers that a program reads them from |
//!
//! This module imports `ops` and `program`; every back end imports it.

mod roles;
mod step;

pub(in crate::vm) use roles::{CellRoles, cell_roles, used_as};
pub(in crate::vm) use step::CellLimits;
pub use step::{CellError, RequestSlot, StepCells};
