//! Opening a checkpoint with a progress bar.

use std::path::Path;

use super::Failure;
use super::progress::LoadBar;
use crate::checkpoint::Checkpoint;
use crate::engine::{Device, Engine};

/// Opens a checkpoint, showing a bar on a terminal.
pub fn open(dir: &Path) -> Result<Checkpoint, Failure> {
    let bar = LoadBar::new();
    Ok(Checkpoint::open(dir, &mut |progress| bar.show(progress.done, progress.total))?)
}

/// Loads a model onto a device.
pub fn load(dir: &Path, device: Device) -> Result<Engine, Failure> {
    Ok(Engine::new(open(dir)?, device))
}
