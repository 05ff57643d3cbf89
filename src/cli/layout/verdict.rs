//! The outcome of a golden case.

use super::SkipReason;

/// The outcome of one case.
pub enum Verdict {
    /// The case passed.
    Pass,
    /// Otherwise: how.
    Fail(String),
    /// Not comparable: why.
    Skip(SkipReason),
}
