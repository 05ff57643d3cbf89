//! The graph's side of an op's row.

use super::GraphPlanner;
use crate::vm::Unsupported;

/// The side of an op for graphs of launches: the launches that compute a
/// [level](crate::lower::Level).
pub trait LaunchOp {
    /// Adds the launches that compute the whole level, whichever part of it this value is.
    ///
    /// # Errors
    /// If no launch computes the op.
    fn launch(&self, plan: &mut GraphPlanner) -> Result<(), Unsupported>;
}
