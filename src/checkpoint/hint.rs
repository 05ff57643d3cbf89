//! Hints for inputs that are not checkpoints: other weight formats, names on a hub, incomplete
//! downloads.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;

/// A hint at the likely intent; empty if there is none. Its text follows a full clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Give the folder of a checkpoint.
    Folder,
    /// A file of that format was given.
    File {
        /// The format.
        format: UnsupportedFormat,
    },
    /// The path looks like a model's name on the Hugging Face hub.
    Hub {
        /// The name.
        name: String,
    },
    /// A folder of the hub's cache, whose snapshots are the checkpoints.
    Cache {
        /// A snapshot, from the folder on.
        snapshot: String,
    },
    /// The folder has weights of another format.
    Other {
        /// A file.
        file: String,
        /// Its format.
        format: UnsupportedFormat,
    },
    /// A checkpoint needs its weights as safetensors.
    Safetensors,
    /// The tokenizer is there in its old form.
    SentencePiece,
    /// A checkpoint needs the file.
    Needed,
}

/// A format of weights that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedFormat {
    /// A file of llama.cpp.
    Gguf,
    /// A pickle of PyTorch, which may run code when it is read.
    PyTorch,
    /// A single safetensors file, without its folder.
    Safetensors,
}

impl UnsupportedFormat {
    /// The format that a file's name says.
    fn of(path: &Path) -> Option<UnsupportedFormat> {
        match path.extension().and_then(OsStr::to_str)? {
            "gguf" => Some(UnsupportedFormat::Gguf),
            "bin" if path.file_name()?.to_string_lossy().contains("pytorch_model") => Some(UnsupportedFormat::PyTorch),
            "pt" | "pth" => Some(UnsupportedFormat::PyTorch),
            "safetensors" => Some(UnsupportedFormat::Safetensors),
            _ => None,
        }
    }
}

impl fmt::Display for UnsupportedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnsupportedFormat::Gguf => {
                "GGUF is not read; give the folder of the Hugging Face checkpoint that it was made of"
            }
            UnsupportedFormat::PyTorch => {
                "pickles of PyTorch are not read, for they may run code; save the model as safetensors \
                 (`save_pretrained` of transformers does)"
            }
            UnsupportedFormat::Safetensors => "give the folder that holds it, with config.json and tokenizer.json",
        })
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hint::Folder => f.write_str("give the folder that holds config.json"),
            Hint::File { format } => write!(f, "{format}"),
            Hint::Hub { name } => {
                write!(
                    f,
                    "if it is a model on the Hugging Face hub, `hf download {name} --local-dir DIR` makes a folder"
                )
            }
            Hint::Cache { snapshot } => write!(f, "it is a folder of the hub's cache, give its {snapshot}"),
            Hint::Other { file, format } => write!(f, "it has {file}: {format}"),
            Hint::Safetensors => f.write_str("a checkpoint needs its weights in this format"),
            Hint::SentencePiece => f.write_str(
                "tokenizer.model beside it is not read; `save_pretrained` of transformers writes tokenizer.json",
            ),
            Hint::Needed => f.write_str("a checkpoint needs it"),
        }
    }
}

impl Hint {
    /// For a path that is not a folder.
    pub(super) fn for_no_folder(path: &Path) -> Hint {
        if let Some(format) = UnsupportedFormat::of(path) {
            return Hint::File { format };
        }
        let is_plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        match path.to_str().and_then(|text| text.split_once('/').map(|parts| (text, parts))) {
            Some((name, (owner, model))) if !path.exists() && is_plain(owner) && is_plain(model) => {
                Hint::Hub { name: name.to_owned() }
            }
            _ => Hint::Folder,
        }
    }

    /// For a file that is not there.
    pub(super) fn for_missing(path: &Path) -> Hint {
        let dir = path.parent().unwrap_or(path);
        match path.file_name().and_then(OsStr::to_str) {
            Some("config.json") => Hint::for_folder(dir, Hint::Needed),
            Some("tokenizer.json") if dir.join("tokenizer.model").exists() => Hint::SentencePiece,
            _ => Hint::Needed,
        }
    }

    /// For a folder that lacks weights or more, `otherwise` where nothing is found that explains
    /// it.
    pub(super) fn for_folder(dir: &Path, otherwise: Hint) -> Hint {
        let names = |dir: &Path| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort_unstable();
            names
        };
        if let Some(snapshot) = names(&dir.join("snapshots")).first() {
            return Hint::Cache { snapshot: format!("snapshots/{snapshot}") };
        }
        let other = names(dir).into_iter().find_map(|file| {
            let format =
                UnsupportedFormat::of(Path::new(&file)).filter(|format| *format != UnsupportedFormat::Safetensors)?;
            Some(Hint::Other { file, format })
        });
        other.unwrap_or(otherwise)
    }
}

/// Whether a file is what git keeps of a large file in its place, where the file itself was not
/// downloaded. The format:
/// <https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>.
pub(super) fn is_pointer(path: &Path) -> bool {
    const START: &[u8] = b"version https://git-lfs.github.com/spec/";
    let mut start = [0; START.len()];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == START
}
