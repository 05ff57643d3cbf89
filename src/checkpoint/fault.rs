//! Errors of a configuration. The kinds are those of [`tilewright_graph::models`], which reads the
//! configuration.

use super::error::Faults;

pub use tilewright_graph::models::KeyFault as ConfigFault;

/// Why a configuration cannot be used, wherever its text came from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The text is not JSON.
    #[error("configuration is not valid JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// The configuration has unsupported or inconsistent keys.
    #[error("configuration cannot be used: {0}")]
    Faults(#[source] Faults<ConfigFault>),
}
