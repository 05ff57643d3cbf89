//! The start time of the program.

use std::sync::OnceLock;
use std::time::Instant;

/// The start time of the program.
pub(super) fn started() -> Instant {
    static STARTED: OnceLock<Instant> = OnceLock::new();
    *STARTED.get_or_init(Instant::now)
}
