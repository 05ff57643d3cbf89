//! Models in the local Hugging Face cache: `ORG/MODEL` to the folder of its snapshot.
//!
//! ```text
//! CACHE/models--ORG--MODEL/refs/main               the revision, a text
//! CACHE/models--ORG--MODEL/snapshots/REVISION/     the checkpoint: links into blobs/
//! ```
//!
//! Nothing is downloaded.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::input;

/// Most bytes of a ref, which is a commit's hash.
const REF_BYTES: u64 = 256;
/// Most bytes of each part of a name.
const NAME_BYTES: usize = 96;

/// Why a model is not found in the cache.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
#[non_exhaustive]
pub enum HubError {
    #[error("`{name}` is neither a folder nor the name of a model, ORG/MODEL")]
    Name { name: String },
    #[error(
        "`{name}` is neither a folder nor in the Hugging Face cache; HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME are unset"
    )]
    NoCache { name: String },
    #[error(
        "`{name}` is neither a folder nor in the Hugging Face cache at {}; `hf download {name}` downloads it", cache.display()
    )]
    Absent { name: String, cache: PathBuf },
    #[error("the ref {} names no revision; `hf download {name}` writes it anew", path.display())]
    Ref { name: String, path: PathBuf },
    #[error("the snapshot {} is missing; `hf download {name}` downloads it", path.display())]
    Snapshot { name: String, path: PathBuf },
    #[error("the link {} leads to no file; `hf download {name}` downloads it again", path.display())]
    Dangling { name: String, path: PathBuf },
    #[error("{} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// The cache that `hf download` and transformers fill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubCache {
    root: Option<PathBuf>,
}

impl HubCache {
    /// The cache at a folder.
    pub fn at(root: impl Into<PathBuf>) -> HubCache {
        HubCache { root: Some(root.into()) }
    }

    /// The cache that environment variables name, the first of `HF_HUB_CACHE`, `HF_HOME`,
    /// `XDG_CACHE_HOME` and `HOME` that is set.
    ///
    /// ```
    /// use tilewright::checkpoint::HubCache;
    /// let cache = HubCache::of(|name| (name == "HF_HOME").then(|| "/data".into()));
    /// assert_eq!(cache, HubCache::at("/data/hub"));
    /// ```
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> HubCache {
        let below = |name: &str, folders: &str| {
            let value = variable(name).filter(|value| !value.is_empty())?;
            Some(PathBuf::from(value).join(folders))
        };
        let root = below("HF_HUB_CACHE", "")
            .or_else(|| below("HF_HOME", "hub"))
            .or_else(|| below("XDG_CACHE_HOME", "huggingface/hub"))
            .or_else(|| below("HOME", ".cache/huggingface/hub"));
        HubCache { root }
    }

    /// The cache of this process's environment.
    pub fn of_environment() -> HubCache {
        HubCache::of(|name| std::env::var_os(name))
    }

    /// The folder of a model's snapshot: the revision that `main` had at its last download.
    ///
    /// # Errors
    /// If the name is not `ORG/MODEL`, or the cache lacks the model or a file of it.
    pub fn find(&self, name: &str) -> Result<PathBuf, HubError> {
        let (org, model) = name.split_once('/').ok_or_else(|| HubError::Name { name: name.to_owned() })?;
        if !is_plain(org) || !is_plain(model) {
            return Err(HubError::Name { name: name.to_owned() });
        }
        let name = || name.to_owned();
        let cache = self.root.as_deref().ok_or_else(|| HubError::NoCache { name: name() })?;
        let repository = cache.join(format!("models--{org}--{model}"));
        if !repository.is_dir() {
            return Err(HubError::Absent { name: name(), cache: cache.to_owned() });
        }
        let path = repository.join("refs/main");
        let revision = input::read(&path, REF_BYTES).map_err(|_| HubError::Ref { name: name(), path: path.clone() })?;
        let revision = revision.trim();
        if !is_plain(revision) {
            return Err(HubError::Ref { name: name(), path });
        }
        let folder = repository.join("snapshots").join(revision);
        if !folder.is_dir() {
            return Err(HubError::Snapshot { name: name(), path: folder });
        }
        let unread = |source| HubError::Read { path: folder.clone(), source };
        for entry in fs::read_dir(&folder).map_err(unread)? {
            let path = entry.map_err(unread)?.path();
            if !path.exists() {
                return Err(HubError::Dangling { name: name(), path });
            }
        }
        Ok(folder)
    }
}

/// The name of the model whose snapshot is at a folder of a cache.
///
/// ```
/// use tilewright::checkpoint::hub_name;
/// assert_eq!(hub_name("hub/models--org--a-b/snapshots/0a1b".as_ref()).as_deref(), Some("org/a-b"));
/// assert_eq!(hub_name("models/tiny-llama".as_ref()), None);
/// ```
pub fn hub_name(folder: &Path) -> Option<String> {
    let snapshots = folder.parent()?;
    let repository = snapshots.parent()?.file_name()?.to_str()?;
    let (org, model) = repository.strip_prefix("models--")?.split_once("--")?;
    snapshots.ends_with("snapshots").then(|| format!("{org}/{model}"))
}

/// The folder of a model: an existing path is itself, `ORG/MODEL` a snapshot in the cache. Other
/// paths stay as they are; opening the checkpoint reports them.
///
/// ```
/// use std::path::Path;
/// use tilewright::checkpoint::model_folder;
/// let here = Path::new("models/tiny-llama");
/// assert_eq!(model_folder(here)?, here);
/// # Ok::<(), tilewright::checkpoint::HubError>(())
/// ```
///
/// # Errors
/// The cache has no such model, or not all of its files.
pub fn model_folder(model: &Path) -> Result<PathBuf, HubError> {
    let is_relative = matches!(model.components().next(), Some(std::path::Component::Normal(_)));
    match model.to_str().filter(|text| is_relative && text.contains('/') && !model.exists()) {
        Some(name) => HubCache::of_environment().find(name),
        None => Ok(model.to_owned()),
    }
}

/// Whether a text is one part of a name: no separator, and nothing that means another folder.
fn is_plain(part: &str) -> bool {
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let has_edges = part.starts_with(['.', '-']) || part.ends_with(['.', '-']);
    let is_nested = part.contains("..") || part.contains("--");
    (1..=NAME_BYTES).contains(&part.len()) && part.bytes().all(is_of_names) && !has_edges && !is_nested
}
