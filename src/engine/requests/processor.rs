//! Rules of a caller's own for the choice of a request's tokens: changes of logits, and masks.

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

/// Says which tokens may follow in one sequence.
///
/// On a GPU masks are applied by the kernel that chooses, and computed while it decodes the token
/// before: such a request shares launches of many steps with others.
pub trait TokenMask: Send {
    /// Sets the bits of the tokens that may follow `new`, the tokens since the prompt: each call has
    /// those of the call before, and more. The bit of token `t` is bit `t % 32` of word `t / 32`; all
    /// are 0 before.
    ///
    /// # Errors
    /// The reason why no token can follow: the request ends with it.
    fn allow(&mut self, new: &[u32], mask: &mut [u32]) -> Result<(), String>;
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
pub struct LogitsHook {
    begin: Arc<dyn Fn() -> Processor + Send + Sync>,
    masks: bool,
}

/// The rule of one sequence.
pub(super) enum Processor {
    Logits(Box<dyn LogitsProcessor>),
    Mask(Box<dyn TokenMask>),
}

impl LogitsHook {
    /// A rule that makes processors so.
    pub fn new(begin: impl Fn() -> Box<dyn LogitsProcessor> + Send + Sync + 'static) -> LogitsHook {
        LogitsHook { begin: Arc::new(move || Processor::Logits(begin())), masks: false }
    }

    /// A rule that does nothing but exclude tokens.
    ///
    /// ```
    /// use tilewright::engine::{LogitsHook, Request, Submission, TokenMask};
    ///
    /// /// Even tokens alone.
    /// struct Even;
    ///
    /// impl TokenMask for Even {
    ///     fn allow(&mut self, _new: &[u32], mask: &mut [u32]) -> Result<(), String> {
    ///         mask.fill(0x5555_5555);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let processor = Some(LogitsHook::masking(|| Box::new(Even)));
    /// let submission = Submission { processor, ..Submission::from(Request::new(vec![1], 16)) };
    /// assert!(!submission.needs_host());
    /// ```
    pub fn masking(begin: impl Fn() -> Box<dyn TokenMask> + Send + Sync + 'static) -> LogitsHook {
        LogitsHook { begin: Arc::new(move || Processor::Mask(begin())), masks: true }
    }

    /// Whether the rule does nothing but exclude tokens.
    pub(super) fn masks(&self) -> bool {
        self.masks
    }

    /// The rule for a sequence without new tokens.
    pub(super) fn begin(&self) -> Processor {
        (self.begin)()
    }
}

impl Processor {
    /// Changes the logits of the token that follows `new`.
    pub(super) fn process(&mut self, new: &[u32], logits: &mut [f32]) -> Result<(), String> {
        match self {
            Processor::Logits(processor) => processor.process(new, logits),
            Processor::Mask(rule) => {
                let mut mask = vec![0; logits.len().div_ceil(32)];
                rule.allow(new, &mut mask)?;
                let is_hidden = |token: usize| mask[token / 32] >> (token % 32) & 1 == 0;
                let hidden = logits.iter_mut().enumerate().filter(|(token, _)| is_hidden(*token));
                hidden.for_each(|(_, logit)| *logit = f32::NEG_INFINITY);
                Ok(())
            }
        }
    }
}

impl PartialEq for LogitsHook {
    /// Whether both are the same rule.
    fn eq(&self, other: &LogitsHook) -> bool {
        Arc::ptr_eq(&self.begin, &other.begin)
    }
}

impl fmt::Debug for LogitsHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogitsHook")
    }
}
