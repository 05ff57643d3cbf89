//! How a golden case ended.

use super::SkipReason;

/// How one case ended.
pub enum Verdict {
    /// As it must.
    Pass,
    /// Otherwise: how.
    Fail(String),
    /// Not comparable: why.
    Skip(SkipReason),
}
