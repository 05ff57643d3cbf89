//! A model in several processes: the options of the driver, which is rank 0, and of its workers.

use std::time::Duration;

use clap::Args;

use super::Failure;
use super::paint::{self, Word};
use crate::engine::{Engine, Meeting, PipelineError, Rows};

/// Seconds that ranks wait for each other where nobody says otherwise.
pub const PATIENCE: f64 = 30.0;

/// Whether this process is the driver of others.
#[derive(Args)]
pub struct WorldArgs {
    /// Share the model's layers with N - 1 workers (see `tilewright worker`); this process is rank 0
    #[arg(long, value_name = "N", requires = "join")]
    world: Option<usize>,
    /// Where the workers join, HOST:PORT; port 0 is any, and is told
    #[arg(long, value_name = "ADDR", requires = "world")]
    join: Option<String>,
    /// Seconds to wait for workers, and for one that says nothing
    #[arg(long, value_name = "S", requires = "world", default_value_t = PATIENCE, allow_negative_numbers = true)]
    patience: f64,
    /// How rows of prompts and wide batches come from rank to rank: tcp, or nccl (from GPU to GPU; workers are told the same)
    #[arg(long, value_name = "WAY", requires = "world", default_value_t = Rows::Tcp)]
    rows_by: Rows,
}

impl WorldArgs {
    /// Whether there are other processes.
    pub fn is_shared(&self) -> bool {
        self.world.is_some()
    }

    /// The engine as the driver of its world, once all workers have joined; as it is where there are none.
    pub fn apply(&self, engine: Engine) -> Result<Engine, Failure> {
        let (Some(world), Some(join)) = (self.world, &self.join) else { return Ok(engine) };
        let engine = engine.with_rows(self.rows_by)?;
        let meeting = Meeting::at(join, world, patience(self.patience)?)?;
        let (workers, address) = (meeting.world() - 1, meeting.address());
        paint::line(Word::Note, &format!("waiting for {workers} worker(s) at {address}"));
        Ok(engine.with_world(meeting)?)
    }
}

/// A patience of so many seconds.
pub fn patience(seconds: f64) -> Result<Duration, PipelineError> {
    Duration::try_from_secs_f64(seconds).map_err(|_| PipelineError::Patience { found: seconds })
}
