//! The graph's side of an op's row.

use super::GraphPlanner;
use crate::ops::Op;
use crate::vm::device::Unsupported;

/// What a graph of launches asks an op: which tasks are parts of one level, and the launches that compute all of it.
pub trait LaunchOp {
    /// The op without what tells the tasks of a level apart (rows, columns, heads, tiles): tasks whose ops are equal so are parts of one
    /// level.
    fn level(&self) -> Op;

    /// Adds the launches that compute the whole level.
    ///
    /// # Errors
    /// What no launch computes.
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported>;
}
