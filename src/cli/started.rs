//! When the program started.

use std::sync::OnceLock;
use std::time::Instant;

/// When the program started.
pub(super) fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}
