//! Opening a checkpoint with a progress bar.

use std::path::Path;

use tilewright_megakernel::model::ModelSpec;

use super::Failure;
use super::paint::{self, Word};
use super::progress::LoadBar;
use crate::checkpoint::{Checkpoint, Config};
use crate::engine::{self, Device, Engine};

/// Opens a checkpoint: its files are mapped and checked, not read.
pub fn open(dir: &Path) -> Result<Checkpoint, Failure> {
    Ok(Checkpoint::open(dir, &mut |_| ())?)
}

/// Opens a checkpoint for programs of a device, which have no quantised weights.
pub fn open_dense(dir: &Path) -> Result<Checkpoint, Failure> {
    let checkpoint = open(dir)?;
    engine::check_dense(&checkpoint)?;
    Ok(checkpoint)
}

/// The architecture of a `config.json` alone, for the same programs.
pub fn read_dense(file: &Path) -> Result<ModelSpec, Failure> {
    let config = Config::read(file)?;
    match config.quantization.map_or(0, |plan| plan.len()) {
        0 => Ok(config.spec),
        modules => Err(engine::EngineError::Quantized { modules }.into()),
    }
}

/// Loads a model onto a device, showing a bar on a terminal while the weights come from the disk, or go to the device. What
/// the user should know of it is one line on standard error.
pub fn load(dir: &Path, device: Device) -> Result<Engine, Failure> {
    let bar = LoadBar::new();
    let engine = if let Device::Cpu { .. } = device {
        let checkpoint = open(dir)?;
        checkpoint.read_ahead(&mut |progress| bar.show(progress.done, progress.total));
        drop(bar);
        Engine::new(checkpoint, device, Box::new(|_| ()))?
    } else {
        Engine::load_with(dir, device, Box::new(move |progress| bar.show(progress.done, progress.total)))?
    };
    let notes = engine.notes();
    if !notes.is_empty() {
        paint::line(Word::Note, &notes.join("; "));
    }
    Ok(engine)
}
