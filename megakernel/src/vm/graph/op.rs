//! The graph's side of an op's row.

use super::GraphPlanner;
use crate::ops::Op;
use crate::vm::device::Unsupported;

/// The side of an op for graphs of launches: the tasks that form one level, and the launches that
/// compute it.
pub trait LaunchOp {
    /// The op without what tells the tasks of a level apart (rows, columns, heads, tiles): tasks
    /// whose ops are equal so are parts of one level.
    fn level(&self) -> Op;

    /// Adds the launches that compute the whole level.
    ///
    /// # Errors
    /// What no launch computes.
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported>;
}
