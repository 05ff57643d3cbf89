//! The side of an op for the persistent back end.

use super::Planner;
use super::function::Planned;
use crate::program::Span;
use crate::vm::Unsupported;

/// The side of an op for the persistent back end: the device function of its tasks.
pub trait DeviceOp {
    /// Rows of the batch that the task computes.
    fn rows(&self) -> Span;

    /// Plans a task: the opcode that does it, and what the opcode's code reads of it.
    ///
    /// # Errors
    /// What of it the device function does not do.
    fn plan(&self, plan: &mut Planner) -> Result<Planned, Unsupported>;
}
