//! The engine: a checkpoint and a device; prompts in, tokens out.
//!
//! ```no_run
//! use std::path::Path;
//! use tilewright::engine::{Device, Engine, Request};
//! use tilewright_kernels::naive::Sampling;
//!
//! let engine = Engine::load(Path::new("models/tiny-llama"), Device::cpu())?;
//! let prompt_ids = engine.tokenizer().encode("In the beginning")?;
//! let request = Request { prompt_ids, max_new_tokens: 48 };
//! let (completions, speed) = engine.generate(&[request], &Sampling::GREEDY, |_, _| ())?;
//! println!("{} ({:.0} tokens/s)", engine.tokenizer().decode(&completions[0].token_ids)?, speed.tokens_per_second());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod device;
mod error;
mod generate;
mod pages;
mod session;

use std::path::Path;
use std::sync::Arc;

use tilewright_megakernel::model::ModelSpec;

use crate::checkpoint::{Checkpoint, Tokenizer};
pub use device::{Device, DeviceError};
pub use error::EngineError;
pub use generate::{Completion, Finish, Request, Speed};
pub use session::{Row, Session};

/// A loaded model on a device.
pub struct Engine {
    checkpoint: Arc<Checkpoint>,
    device: Device,
}

impl Engine {
    /// Loads a Hugging Face folder.
    ///
    /// # Errors
    /// If the folder is not a checkpoint that is completely understood.
    pub fn load(dir: &Path, device: Device) -> Result<Engine, EngineError> {
        Ok(Engine::new(Checkpoint::open(dir, &mut |_| ())?, device))
    }

    /// An engine for a checkpoint that is open.
    pub fn new(checkpoint: Checkpoint, device: Device) -> Engine {
        Engine { checkpoint: Arc::new(checkpoint), device }
    }

    /// The model's architecture.
    pub fn spec(&self) -> &ModelSpec {
        self.checkpoint.spec()
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.checkpoint.tokenizer()
    }

    /// Where it runs.
    pub fn device(&self) -> Device {
        self.device
    }

    pub(crate) fn checkpoint(&self) -> &Arc<Checkpoint> {
        &self.checkpoint
    }

    /// Whether a token ends a sequence.
    pub fn is_end(&self, token: u32) -> bool {
        self.checkpoint.eos_ids().contains(&token)
    }
}
