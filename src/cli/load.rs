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

/// Loads a model onto a device, showing a bar on a terminal while the weights come from the disk, or go to the device.
pub fn load(dir: &Path, device: Device) -> Result<Engine, Failure> {
    let bar = LoadBar::new();
    if let Device::Cpu { .. } = device {
        let checkpoint = open(dir)?;
        checkpoint.read_ahead(&mut |progress| bar.show(progress.done, progress.total));
        drop(bar);
        return Ok(Engine::new(checkpoint, device, Box::new(|_| ()))?);
    }
    Ok(Engine::load_with(dir, device, Box::new(move |progress| bar.show(progress.done, progress.total)))?)
}
