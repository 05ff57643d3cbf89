//! The cases of Mojo's layout tests that share a convention with this algebra.

use serde_json::Value as Json;

use super::check::Verdict;

/// Judges a case, or skips one whose convention differs.
pub(super) fn verdict(_case: &Json) -> Verdict {
    Verdict::Skip
}
