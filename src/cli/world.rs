//! A model in several processes: the options of the driver, which is rank 0.

use std::time::Duration;

use clap::Args;

use super::paint::{self, Word};
use super::{Failure, number};
use crate::engine::{Engine, Meeting, PipelineError, Rows};

/// Most processes that share a model.
pub const MOST_RANKS: u64 = 1024;

/// Seconds that ranks wait for each other by default.
pub const PATIENCE: f64 = 30.0;

/// Options that make this process the driver of workers.
#[derive(Args)]
pub struct WorldArgs {
    /// Share the model's layers with N - 1 workers (see `tilewright worker`); this process is rank
    /// 0
    #[arg(long, value_name = "N", requires = "join", value_parser = number::count(0..=MOST_RANKS))]
    world: Option<usize>,
    /// Address where the workers join, HOST:PORT; port 0 chooses a free port and prints it
    #[arg(long, value_name = "ADDR", requires = "world")]
    join: Option<String>,
    /// Seconds to wait for workers to join, and for a silent one
    #[arg(long, value_name = "SECONDS", requires = "world", default_value_t = PATIENCE, value_parser = number::seconds, allow_negative_numbers = true)]
    patience: f64,
    /// Transport of activations between ranks: tcp, or nccl (from GPU to GPU); workers need the
    /// same
    #[arg(long, value_name = "TRANSPORT", requires = "world", default_value_t = Rows::Tcp)]
    rows_by: Rows,
}

impl WorldArgs {
    /// Whether other processes share the model.
    pub fn is_shared(&self) -> bool {
        self.world.is_some()
    }

    /// Makes the engine the driver of its workers, once all have joined; without workers returns it
    /// unchanged.
    pub fn apply(&self, engine: Engine) -> Result<Engine, Failure> {
        let (Some(world), Some(join)) = (self.world, &self.join) else { return Ok(engine) };
        let engine = engine.with_rows(self.rows_by)?;
        let meeting = Meeting::at(join, world, patience(self.patience)?)?;
        let workers = meeting.world() - 1;
        let address = meeting.address();
        paint::line(Word::Note, &format!("waiting for {workers} worker(s) at {address}"));
        Ok(engine.with_world(meeting)?)
    }
}

/// The timeout of `seconds`.
pub fn patience(seconds: f64) -> Result<Duration, PipelineError> {
    Duration::try_from_secs_f64(seconds).map_err(|_| PipelineError::Patience { found: seconds })
}
