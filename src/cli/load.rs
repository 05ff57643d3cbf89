//! Opening a checkpoint with a progress bar.

use std::path::Path;

use super::Failure;
use super::progress::LoadBar;
use crate::checkpoint::Checkpoint;
use crate::engine::{Device, Engine};

/// Opens a checkpoint: its files are mapped and checked, not read.
pub fn open(dir: &Path) -> Result<Checkpoint, Failure> {
    Ok(Checkpoint::open(dir, &mut |_| ())?)
}

/// Loads a model onto a device, showing a bar on a terminal while the weights come from the disk.
pub fn load(dir: &Path, device: Device) -> Result<Engine, Failure> {
    let checkpoint = open(dir)?;
    let bar = LoadBar::new();
    checkpoint.read_ahead(&mut |progress| bar.show(progress.done, progress.total));
    Ok(Engine::new(checkpoint, device))
}
