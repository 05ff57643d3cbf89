//! Why a checkpoint cannot be opened: the file, and everything known about what is wrong in it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::fault::ConfigFault;
use super::header::HeaderError;
use super::hint::Hint;
use super::shards::IndexFault;
use super::tensors::TensorFault;
use super::tokenizer::TokenizerError;

/// Why a checkpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The folder is not there, or is not a folder.
    #[error("checkpoint {} is not a folder; {hint}", path.display())]
    NotAFolder {
        /// The path that was given.
        path: PathBuf,
        /// What to give instead.
        hint: Hint,
    },
    /// A file that every checkpoint has is not there.
    #[error("file {} does not exist; {hint}", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
        /// What else the folder has.
        hint: Hint,
    },
    /// A link leads to nothing.
    #[error(
        "file {} is a link to {}, which does not exist; download that file, or remove the link",
        path.display(), target.display()
    )]
    Dangling {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A large file was not downloaded; git keeps its address in its place.
    #[error("file {} is a pointer of git-lfs, not the file itself; `git lfs pull` downloads it", path.display())]
    Pointer {
        /// The file.
        path: PathBuf,
    },
    /// A small file is not small.
    #[error("file {} has {bytes} bytes; at most {limit} are read of such a file", path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// The most that are read.
        limit: u64,
    },
    /// The folder holds changes of a model and not the model.
    #[error(
        "folder {} holds an adapter (adapter_config.json) of base model {base}, which would be left out; merge it into \
         its base model, or remove adapter_config.json to run the base model alone",
        path.display()
    )]
    Adapter {
        /// The folder.
        path: PathBuf,
        /// The model that it adapts, as the file names it.
        base: String,
    },
    /// There are no weights in the format that is read.
    #[error("folder {} has neither model.safetensors nor model.safetensors.index.json; {hint}", path.display())]
    NoWeights {
        /// The folder.
        path: PathBuf,
        /// What else the folder has.
        hint: Hint,
    },
    /// A path leads to something else than a file.
    #[error("path {} is not a regular file; replace it by one", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("file {} cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file is not JSON.
    #[error("file {} is not valid JSON: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
    /// A configuration is not understood.
    #[error("configuration {} cannot be used: {faults}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong.
        faults: Faults<ConfigFault>,
    },
    /// A safetensors file is malformed.
    #[error("weights {} are malformed: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: HeaderError,
    },
    /// The index of a checkpoint in several files is wrong.
    #[error("index {} is wrong: {faults}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong.
        faults: Faults<IndexFault>,
    },
    /// The tensors are not those of the model.
    #[error("tensors of {} are not those that config.json describes: {faults}", path.display())]
    Tensors {
        /// The folder.
        path: PathBuf,
        /// Everything that is wrong.
        faults: Faults<TensorFault>,
    },
    /// The tensors are those of a larger model that has a language model as a part.
    #[error(
        "tensors of {} are named {prefix}…, as the language model of a larger model; save the language model by itself          (its `save_pretrained` in transformers) and give that folder",
        path.display()
    )]
    Prefix {
        /// The folder.
        path: PathBuf,
        /// What stands before the names.
        prefix: String,
    },
    /// The tokenizer is broken or does not belong to the model.
    #[error("tokenizer {} cannot be used: {source}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: TokenizerError,
    },
}

/// All faults of one file, at least one. Printed, it shows the first few and the number of the
/// others.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults<T>(pub(super) Vec<T>);

impl<T> Faults<T> {
    /// How many faults are printed.
    const SHOWN: usize = 5;

    /// Each fault.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }
}

impl<T: fmt::Display> fmt::Display for Faults<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().take(Self::SHOWN).enumerate() {
            let separator = if i == 0 { "" } else { "; and " };
            write!(f, "{separator}{fault}")?;
        }
        match self.0.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl<T: fmt::Display + fmt::Debug> std::error::Error for Faults<T> {}
