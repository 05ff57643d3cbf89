//! Making quantised checkpoints: a dense folder in, a compressed-tensors folder out, whole or not
//! at all.
//!
//! | file | what it does |
//! |---|---|
//! | `recipe` | a [`Scheme`] and a group become codes, names of tensors and `quantization_config` |
//! | `loaded` | the same while loading: [`Checkpoint::quantised`] |
//! | `write` | the tensors one after the other into a safetensors file |
//!
//! Linear layers of the decoder are quantised; embeddings, head, norms and biases stay as they are.
//! Codes are rounded to nearest with the scale that minimises a group's squared error
//! (`tilewright_kernels::quant::nearest`); scales are stored in the type of the weights.

mod error;
mod loaded;
mod recipe;
mod write;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;

use super::error::CheckpointError;
use super::{Checkpoint, Progress, files, json};
use crate::staged;
use recipe::QuantizeRecipe;

pub use error::QuantizeError;
pub use recipe::{NoScheme, Scheme};

/// A summary of the written checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantizeReport {
    /// Quantised modules.
    pub modules: usize,
    /// Bytes of the weights before and after.
    pub bytes: [u64; 2],
    /// Groups of other sizes than asked for, since K is not a multiple: columns and modules of
    /// each.
    pub smaller: Vec<(usize, usize)>,
}

/// Files that go into the new folder as they are.
const COPIED: [&str; 10] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
];

/// Quantises the folder `dir` into the new folder `out`; `progress` gets the bytes read, and stops
/// the work by returning `Break`.
///
/// `group` is the number of columns that share a scale. If K is not a multiple of it, the largest
/// common divisor is the group, in a `config_groups` entry of its own, since other readers do not
/// support ragged groups.
///
/// ```no_run
/// use std::ops::ControlFlow::Continue;
/// use tilewright::checkpoint::{Scheme, quantize};
/// quantize("models/tiny-llama".as_ref(), "tiny-w4a16".as_ref(), Scheme::W4A16, Some(64), &mut |_| Continue(()))?;
/// # Ok::<(), tilewright::checkpoint::QuantizeError>(())
/// ```
///
/// # Errors
/// [`QuantizeError`]; nothing is left at `out` then.
pub fn quantize(
    dir: &Path,
    out: &Path,
    scheme: Scheme,
    group: Option<usize>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<QuantizeReport, QuantizeError> {
    let is_free = || fs::read_dir(out).map(|mut entries| entries.next().is_none());
    if fs::symlink_metadata(out).is_ok() && !is_free().unwrap_or(false) {
        return Err(QuantizeError::Exists { path: out.to_owned() });
    }
    let checkpoint = Checkpoint::open(dir, &mut |_| ())?;
    if checkpoint.quantized_modules().len() > 0 {
        return Err(QuantizeError::Quantized { modules: checkpoint.quantized_modules().len() });
    }
    let recipe = QuantizeRecipe::new(scheme, group, checkpoint.spec())?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| QuantizeError::Write { path, source }
    };
    let parent = staged::folder_of(out);
    let folder = staged::folder(parent).map_err(failed(parent))?;
    let weights = folder.path().join("model.safetensors");
    let bytes = write::weights(&checkpoint, &recipe, &weights, progress)?;
    let config = folder.path().join("config.json");
    let text = config_text(&dir.join("config.json"), &recipe)?;
    fs::write(&config, text).map_err(failed(&config))?;
    for file in COPIED {
        let from = dir.join(file);
        let to = folder.path().join(file);
        if from.is_file() {
            fs::copy(&from, &to).map_err(failed(&to))?;
        }
    }
    // The written checkpoint is read once before it becomes visible.
    let written = Checkpoint::open(folder.path(), &mut |_| ())?;
    let modules = written.quantized_modules().len();
    drop(written);
    folder.publish(out).map_err(failed(out))?;
    Ok(QuantizeReport { modules, bytes, smaller: recipe.smaller() })
}

/// The configuration with `quantization_config`.
fn config_text(path: &Path, recipe: &QuantizeRecipe) -> Result<String, QuantizeError> {
    let text = files::read(path)?;
    let mut config = json::parse(&text).map_err(|source| CheckpointError::Json { path: path.to_owned(), source })?;
    if let Value::Object(map) = &mut config {
        map.insert("quantization_config".to_owned(), recipe.config());
    }
    Ok(format!("{config:#}\n"))
}
