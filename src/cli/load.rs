//! Opens checkpoints and loads models with a progress bar.

use std::path::Path;

use super::Failure;
use super::paint::{self, Word};
use super::progress::LoadBar;
use crate::checkpoint::{Checkpoint, Scheme, model_folder};
use crate::engine::{Device, Engine};

/// Options for opening a checkpoint.
#[derive(Clone, Copy, Default)]
pub struct LoadOptions {
    /// The scheme that linear layers are quantised by while loading; none: as the checkpoint stores
    /// them.
    pub scheme: Option<Scheme>,
    /// Most tokens of a sequence; none: as many as the model has positions.
    pub max_context: Option<usize>,
}

/// Opens a checkpoint: its files are mapped and checked, not read.
pub fn open(dir: &Path) -> Result<Checkpoint, Failure> {
    Ok(Checkpoint::open(&model_folder(dir)?, &mut |_| ())?)
}

/// Opens a checkpoint in that form.
pub fn open_as(dir: &Path, form: LoadOptions) -> Result<Checkpoint, Failure> {
    let checkpoint = Checkpoint::open_within(&model_folder(dir)?, form.max_context, &mut |_| ())?;
    match form.scheme {
        Some(scheme) => Ok(checkpoint.quantised(scheme, None)?),
        None => Ok(checkpoint),
    }
}

/// Loads a model in that form.
pub fn load_as(dir: &Path, device: Device, form: LoadOptions) -> Result<Engine, Failure> {
    if form.scheme.is_none() && form.max_context.is_none() {
        return load(dir, device);
    }
    let bar = LoadBar::new();
    let engine = Engine::new(open_as(dir, form)?, device, Box::new(move |sent| bar.show(sent.done, sent.total)))?;
    say(&engine);
    Ok(engine)
}

/// Loads a model onto a device, with a progress bar on a terminal. Notes about the model are one
/// line on standard error.
pub fn load(dir: &Path, device: Device) -> Result<Engine, Failure> {
    let bar = LoadBar::new();
    let engine = if let Device::Cpu { .. } = device {
        let checkpoint = open(dir)?;
        checkpoint.read_ahead(&mut |progress| bar.show(progress.done, progress.total));
        drop(bar);
        Engine::new(checkpoint, device, Box::new(|_| ()))?
    } else {
        Engine::load_with(
            &model_folder(dir)?,
            device,
            Box::new(move |progress| bar.show(progress.done, progress.total)),
        )?
    };
    say(&engine);
    Ok(engine)
}

/// Loads a model whose weights are read as steps need them: those that other processes compute
/// with, never.
pub fn load_as_needed(dir: &Path, device: Device, form: LoadOptions) -> Result<Engine, Failure> {
    let engine = Engine::new(open_as(dir, form)?, device, Box::new(|_| ()))?;
    say(&engine);
    Ok(engine)
}

/// Prints the notes about a model on standard error.
fn say(engine: &Engine) {
    let notes = engine.notes();
    if !notes.is_empty() {
        paint::line(Word::Note, &notes.join("; "));
    }
}
