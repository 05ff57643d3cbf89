//! Sampling of the next token.

use tilewright_kernels::naive::{self, SamplingError};

/// The sampling of the next token: the likeliest one (greedy decoding, the default), or a random
/// one among the likeliest.
///
/// Each setter returns the changed value. Numbers are checked where the sampling is used:
/// [`Engine::generate`], [`Batcher::submit`] and [`Server::submit`] refuse a temperature that is
/// negative or not finite, a `top_p` outside of (0, 1] and a `top_k` of 0.
///
/// A seed, a model, a device and a prompt determine the tokens. Random numbers are drawn by counter
/// (Philox), so they depend on the seed, the step and the row of the batch, not on timing.
///
/// ```
/// use tilewright::Sampling;
/// let greedy = Sampling::default();
/// assert!(greedy.is_greedy());
/// let creative = Sampling::default().temperature(0.8).top_k(40).top_p(0.95).seed(7);
/// assert!(!creative.is_greedy() && creative.check().is_ok());
/// assert!(creative.top_p(1.5).check().is_err());
/// ```
///
/// [`Engine::generate`]: super::Engine::generate
/// [`Batcher::submit`]: super::Batcher::submit
/// [`Server::submit`]: super::Server::submit
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    temperature: f32,
    top_k: Option<usize>,
    top_p: f32,
    seed: u64,
}

impl Sampling {
    /// Greedy decoding: always the likeliest token.
    pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_k: None, top_p: 1.0, seed: 0 };

    /// Sets the temperature that logits are divided by; 0 is greedy.
    #[must_use]
    pub const fn temperature(self, temperature: f32) -> Sampling {
        Sampling { temperature, ..self }
    }

    /// Keeps the `top_k` likeliest tokens only.
    #[must_use]
    pub const fn top_k(self, top_k: usize) -> Sampling {
        Sampling { top_k: Some(top_k), ..self }
    }

    /// Keeps the fewest of the likeliest tokens whose probabilities reach `top_p` (nucleus
    /// sampling); 1 keeps all.
    #[must_use]
    pub const fn top_p(self, top_p: f32) -> Sampling {
        Sampling { top_p, ..self }
    }

    /// Sets the seed of the random numbers.
    #[must_use]
    pub const fn seed(self, seed: u64) -> Sampling {
        Sampling { seed, ..self }
    }

    /// Whether the likeliest token is always chosen.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks the numbers.
    ///
    /// # Errors
    /// A number is out of its range.
    pub fn check(&self) -> Result<(), SamplingError> {
        self.definition().map(|_| ())
    }

    /// The sampling as the kernels define it.
    pub(crate) fn definition(&self) -> Result<naive::Sampling, SamplingError> {
        naive::Sampling::new(self.temperature, self.top_k, self.top_p, self.seed)
    }

    /// The sampling of a request that was checked when it was taken.
    pub(crate) fn checked(&self) -> naive::Sampling {
        self.definition().unwrap_or(naive::Sampling::GREEDY)
    }
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling::GREEDY
    }
}

impl From<&Sampling> for Sampling {
    fn from(sampling: &Sampling) -> Sampling {
        *sampling
    }
}

impl From<naive::Sampling> for Sampling {
    fn from(sampling: naive::Sampling) -> Sampling {
        Sampling {
            temperature: sampling.temperature(),
            top_k: sampling.top_k(),
            top_p: sampling.top_p(),
            seed: sampling.seed(),
        }
    }
}

impl From<&naive::Sampling> for Sampling {
    fn from(sampling: &naive::Sampling) -> Sampling {
        (*sampling).into()
    }
}
