//! What can be wrong with a configuration. The kinds, with all that they say, are the ones of
//! [`tilewright_graph::models`], which reads it.

use super::error::Faults;

pub use tilewright_graph::models::KeyFault as ConfigFault;

/// Why a configuration cannot be used, wherever its text came from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It is not JSON.
    #[error("configuration is not valid JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// It is not understood.
    #[error("configuration cannot be used: {0}")]
    Faults(#[source] Faults<ConfigFault>),
}
