//! Logits processors: rules of a caller's own for the choice of a request's tokens.

use std::fmt;
use std::sync::Arc;

/// Changes the logits of one sequence before each of its tokens is chosen.
pub trait LogitsProcessor: Send {
    /// Changes the logits of the token that follows `new`, the tokens since the prompt: each call
    /// has those of the call before, and more. A token whose logit is −∞ is not chosen.
    ///
    /// # Errors
    /// The reason why no token can follow: the request ends with it.
    fn process(&mut self, new: &[u32], logits: &mut [f32]) -> Result<(), String>;
}

/// A rule for logits, of which every sequence gets a processor of its own.
///
/// ```
/// use tilewright::engine::{LogitsHook, LogitsProcessor, Request, Submission};
///
/// /// Never the same token twice in a row.
/// struct NoStutter;
///
/// impl LogitsProcessor for NoStutter {
///     fn process(&mut self, new: &[u32], logits: &mut [f32]) -> Result<(), String> {
///         if let Some(&last) = new.last() {
///             logits[last as usize] = f32::NEG_INFINITY;
///         }
///         Ok(())
///     }
/// }
///
/// let processor = Some(LogitsHook::new(|| Box::new(NoStutter)));
/// let submission = Submission { processor, ..Submission::from(Request::new(vec![1], 16)) };
/// assert!(submission.needs_host());
/// ```
#[derive(Clone)]
pub struct LogitsHook(Arc<dyn Fn() -> Box<dyn LogitsProcessor> + Send + Sync>);

impl LogitsHook {
    /// A rule that makes processors so.
    pub fn new(begin: impl Fn() -> Box<dyn LogitsProcessor> + Send + Sync + 'static) -> LogitsHook {
        LogitsHook(Arc::new(begin))
    }

    /// The processor of a sequence without new tokens.
    pub fn begin(&self) -> Box<dyn LogitsProcessor> {
        (self.0)()
    }
}

impl PartialEq for LogitsHook {
    /// Whether both are the same rule.
    fn eq(&self, other: &LogitsHook) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for LogitsHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogitsHook")
    }
}
