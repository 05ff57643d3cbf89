//! Flows by name: those that ship, and those that were registered.

use std::sync::{Arc, PoisonError, RwLock};

use thiserror::Error;
use tilewright_megakernel::ops;
use tilewright_megakernel::vm::device::register_device_op;

use crate::algorithms;
use crate::flow::Traced;

static FLOWS: RwLock<Vec<Arc<Traced>>> = RwLock::new(Vec::new());

/// Why a flow is not registered.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// The name belongs to another flow.
    #[error("the flow name `{name}` is taken by another flow; choose another name")]
    Taken {
        /// The name.
        name: String,
    },
    /// The name of an op belongs to an op of another crate.
    #[error(transparent)]
    Op(#[from] ops::RegisterError),
}

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
    let same = |known: &Traced| format!("{known:?}") == format!("{traced:?}");
    let mut flows = FLOWS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = flows.iter().find(|known| known.name == traced.name) {
        return match same(known) {
            true => Ok(Arc::clone(known)),
            false => Err(RegisterError::Taken { name: traced.name }),
        };
    }
    if let Ok(shipped) = algorithms::named(&traced.name)
        && !shipped.trace().is_ok_and(|shipped| same(&shipped))
    {
        return Err(RegisterError::Taken { name: traced.name });
    }
    let traced = Arc::new(traced);
    flows.push(Arc::clone(&traced));
    Ok(traced)
}

/// The flow of that name, if it ships or was registered.
pub fn flow(name: &str) -> Option<Arc<Traced>> {
    let known = FLOWS.read().unwrap_or_else(PoisonError::into_inner).iter().find(|flow| flow.name == name).cloned();
    known.or_else(|| add(algorithms::named(name).ok()?.trace().ok()?).ok())
}
