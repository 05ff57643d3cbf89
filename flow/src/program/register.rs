//! Makes flows known, with the ops that run them.

use std::sync::Arc;

use tilewright_megakernel::ops;
use tilewright_megakernel::vm::device::register_device_op;

use super::registry::{self, RegisterError};
use super::{Score, Select, Summarise};
use crate::flow::Traced;

/// Makes the ops of flows known: programs that hold them are valid, and read from JSON. Doing it
/// again does nothing.
///
/// # Errors
/// If another crate registered an op of the same name.
pub fn register_ops() -> Result<(), ops::RegisterError> {
    ops::register::<Summarise>()?;
    ops::register::<Score>()?;
    ops::register::<Select>()?;
    register_device_op::<Summarise>();
    register_device_op::<Score>();
    register_device_op::<Select>();
    Ok(())
}

/// Makes a flow known by its name, so that programs may name it. Registering the same flow again
/// does nothing.
///
/// ```
/// use tilewright_flow::prelude::*;
/// use tilewright_flow::program::{flow, register};
///
/// /// The newest blocks.
/// struct Newest;
///
/// impl Flow for Newest {
///     type Fields = ();
///     type State = ();
///
///     fn name(&self) -> &str {
///         "newest"
///     }
///     fn fields(&self, _: &mut Declare) {}
///     fn state(&self, _: &mut DeclareState) {}
///     fn forward_cache(&self, _: &Block<'_>, (): &()) {}
///     fn forward_indexer<'t>(&self, step: Step<'t>, (): &(), (): ()) -> Done<'t> {
///         let positions = step.positions();
///         step.select(positions)
///     }
/// }
///
/// assert!(flow("newest").is_none());
/// register(trace(&Newest)?)?;
/// assert_eq!(flow("newest").map(|traced| traced.name.clone()), Some("newest".into()));
/// assert!(flow("quest").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the name belongs to another flow.
pub fn register(traced: Traced) -> Result<Arc<Traced>, RegisterError> {
    register_ops()?;
    registry::add(traced)
}
