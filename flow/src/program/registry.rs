//! Flows by name: those that ship, and those that were registered.

use std::sync::{Arc, PoisonError, RwLock};

use thiserror::Error;
use tilewright_megakernel::ops;

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

/// Adds a flow under its name; adding the same flow again does nothing.
pub(super) fn add(traced: Traced) -> Result<Arc<Traced>, RegisterError> {
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
