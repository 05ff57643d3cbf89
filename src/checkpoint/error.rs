//! Why a checkpoint cannot be opened: the file, and everything known about what is wrong in it.

use std::path::PathBuf;
use std::{fmt, io};

use tilewright_layout::DType;

use super::fault::ConfigFault;
use super::header::HeaderError;
use super::hint::Hint;
use crate::checkpoint::PartFault;

/// Why a checkpoint cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The folder is not there, or is not a folder.
    #[error("checkpoint {} is not a folder; {hint}", path.display())]
    NotAFolder {
        /// The path that was given.
        path: PathBuf,
        /// The correct argument.
        hint: Hint,
    },
    /// A file that every checkpoint has is not there.
    #[error("file {} does not exist; {hint}", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
        /// Related contents of the folder.
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
        /// The target of the link.
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
        /// Related contents of the folder.
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
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file is not JSON.
    #[error("file {} is not valid JSON: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The defect and its position.
        source: serde_json::Error,
    },
    /// A configuration is not understood.
    #[error("configuration {} cannot be used: {faults}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// All faults.
        faults: Faults<ConfigFault>,
    },
    /// A safetensors file is malformed.
    #[error("weights {} are malformed: {source}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The defect.
        source: HeaderError,
    },
    /// The index of a checkpoint in several files is wrong.
    #[error("index {} is wrong: {faults}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// All faults.
        faults: Faults<IndexFault>,
    },
    /// The tensors are not those of the model.
    #[error("tensors of {} are not those that config.json describes: {faults}", path.display())]
    Tensors {
        /// The folder.
        path: PathBuf,
        /// All faults.
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
        /// The prefix of the names.
        prefix: String,
    },
    /// The tokenizer is broken or does not belong to the model.
    #[error("tokenizer {} cannot be used: {source}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The defect.
        source: TokenizerError,
    },
}

/// All faults of one file, at least one. Printed, it shows the first few and the number of the
/// others.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults<T>(pub(super) Vec<T>);

impl<T> Faults<T> {
    /// The number of faults that are printed.
    const SHOWN: usize = 5;

    /// Iterates over the faults.
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

/// A defect of an index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexFault {
    /// The file holds something else than an object.
    #[error("file holds {value}; it must be a JSON object")]
    NotAnObject {
        /// The value that it holds.
        value: String,
    },
    /// A key that an index does not have.
    #[error("key {key} is not known; an index has weight_map and metadata alone")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// The map is missing or not an object of names.
    #[error("weight_map holds {value}; it must be an object from tensor names to file names")]
    WeightMap {
        /// The value that it holds.
        value: String,
    },
    /// A file name that leads out of the folder.
    #[error("tensor {tensor} is listed in file {file:?}; a file name without folders is needed")]
    FileName {
        /// The tensor.
        tensor: String,
        /// The file's name, as listed.
        file: String,
    },
    /// A listed file that is not there.
    #[error("tensor {tensor} is listed in {file}, which does not exist; download that file")]
    MissingFile {
        /// The first tensor that the file should hold.
        tensor: String,
        /// The file.
        file: String,
    },
    /// A tensor is in another file than the one it is listed in.
    #[error("tensor {tensor} is listed in {listed} and is in {found}; the index must name the file that holds it")]
    WrongFile {
        /// The tensor.
        tensor: String,
        /// The file that the index names.
        listed: String,
        /// A file that holds the tensor.
        found: String,
    },
    /// A listed tensor is in no file.
    #[error("tensor {tensor} is listed in {file}, which does not hold it, nor does another file")]
    Absent {
        /// The tensor.
        tensor: String,
        /// The file that the index names.
        file: String,
    },
    /// A tensor is in a file and not listed.
    #[error("tensor {tensor} is in {file} and not in the index; every tensor must be listed")]
    Unlisted {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: String,
    },
}

/// A tensor that does not match the model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// The model has the tensor, the files do not.
    #[error("tensor {tensor} is missing; shape {expected:?} is expected")]
    Missing {
        /// The tensor.
        tensor: String,
        /// The shape that it should have.
        expected: Vec<usize>,
    },
    /// The files have the tensor, the model does not.
    #[error("tensor {tensor} ({dtype}, shape {shape:?}) in {} is not part of the model; leaving it out would change the result",
        file.display())]
    Unknown {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// Its element type.
        dtype: DType,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// The shape is another one.
    #[error("tensor {tensor} in {} has shape {found:?}; {expected:?} is expected", file.display())]
    Shape {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// The shape that it should have.
        expected: Vec<usize>,
        /// The shape that it has.
        found: Vec<usize>,
    },
    /// The element type is not one of weights.
    #[error("tensor {tensor} in {} has elements of {found}; weights must be f32, f16 or bf16", file.display())]
    Dtype {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// Its element type.
        found: DType,
    },
    /// A tensor of a quantised module.
    #[error(transparent)]
    Quantized(#[from] PartFault),
    /// Two tensors are scales of one layer's keys or values, and differ.
    #[error(
        "tensor {tensor} in {} is {scale}, another scale of the same keys or values is {other}; they must agree",
        file.display()
    )]
    CacheScales {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
        /// Its value.
        scale: f32,
        /// The value of the other tensor.
        other: f32,
    },
    /// The embeddings are tied, and yet there is an output projection that differs from them.
    #[error(
        "tensor {tensor} in {} differs from model.embed_tokens.weight; with tie_word_embeddings true it must be \
         the same bits, or set it to false",
        file.display()
    )]
    UntiedHead {
        /// The tensor.
        tensor: String,
        /// The file that holds it.
        file: PathBuf,
    },
}

/// Why a tokenizer cannot be used, or cannot take a text or ids.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file is not a tokenizer.
    #[error("file is not a tokenizer that can be read: {0}")]
    Broken(#[source] tokenizers::Error),
    /// The tokenizer's own code stopped.
    #[error("file makes the tokenizer stop with: {message}; it is inconsistent")]
    Stopped {
        /// The message of the panic.
        message: String,
    },
    /// A token has an id beyond the embedding.
    #[error("token {token:?} has id {id}; the embedding has {rows} rows, so ids must be less")]
    OutsideEmbedding {
        /// The token.
        token: String,
        /// Its id.
        id: u32,
        /// Rows of the embedding.
        rows: usize,
    },
    /// Two tokens have the same id.
    #[error("token {first:?} and token {second:?} both have id {id}; decoding needs one token for each id")]
    SharedId {
        /// The id.
        id: u32,
        /// The first token.
        first: String,
        /// The other.
        second: String,
    },
    /// A token that `added_tokens` lists with one id has another.
    #[error(
        "token {token:?} is listed with id {listed}; the vocabulary gives it {}, they must agree",
        found.map_or("none".to_owned(), |id| id.to_string())
    )]
    AddedToken {
        /// The token.
        token: String,
        /// The id that `added_tokens` gives.
        listed: u32,
        /// The id that the tokenizer uses.
        found: Option<u32>,
    },
    /// Another file of the folder gives a token of `tokenizer.json` another id.
    #[error("token {token:?} has id {listed} in {file}; by tokenizer.json {found}; they must agree")]
    Beside {
        /// The token.
        token: String,
        /// The file.
        file: &'static str,
        /// The id that the file gives.
        listed: u32,
        /// The entry in `tokenizer.json`.
        found: TokenMismatch,
    },
    /// A table of a normalizer is said to be longer than it is.
    #[error(
        "precompiled_charsmap has {bytes} bytes, and begins with a part of {claimed} by its first four; it is damaged"
    )]
    Charsmap {
        /// Bytes of the part, by its length field.
        claimed: u32,
        /// Bytes of the table.
        bytes: usize,
    },
    /// The steps of a part make texts longer and longer.
    #[error("{part} may make a text {growth} times as long; at most {limit} times is allowed")]
    Growth {
        /// The part: normalizer or decoder.
        part: &'static str,
        /// The factor.
        growth: u64,
        /// The most that is allowed.
        limit: u64,
    },
    /// A part is larger than any tokenizer needs.
    #[error("file has {found} {what}; at most {limit} are read")]
    Large {
        /// The kind of items.
        what: &'static str,
        /// The number of items.
        found: usize,
        /// The most that is read.
        limit: usize,
    },
    /// A regular expression gives up on a text.
    #[error(
        "pattern {pattern:?} of the tokenizer gives up on the text of {bytes} bytes; it would be encoded otherwise"
    )]
    Backtracks {
        /// The start of the expression.
        pattern: String,
        /// Bytes of the text.
        bytes: usize,
    },
    /// The tokenizer would drop merges at random.
    #[error("model of the tokenizer has dropout {dropout}; it would encode at random, so it must be null or 0")]
    Dropout {
        /// The probability.
        dropout: f32,
    },
    /// A text cannot be encoded.
    #[error("text of {bytes} bytes cannot be encoded: {source}")]
    Encode {
        /// Bytes of the text.
        bytes: usize,
        /// The error of the tokenizer.
        source: tokenizers::Error,
    },
    /// Ids cannot be decoded.
    #[error("{count} token ids cannot be decoded: {source}")]
    Decode {
        /// The number of ids.
        count: usize,
        /// The error of the tokenizer.
        source: tokenizers::Error,
    },
    /// The text of a stream is not the beginning of the text of all its ids.
    #[error(
        "decoder of the tokenizer changed text after {emitted} bytes of it had been given out; decode the ids whole"
    )]
    Diverged {
        /// Bytes given out.
        emitted: usize,
    },
}

/// The conflict between `tokenizer.json` and another file about a token and its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenMismatch {
    /// The token has another id.
    Other(u32),
    /// The id is another token's.
    Taken(String),
}

impl fmt::Display for TokenMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenMismatch::Other(id) => write!(f, "it is {id}"),
            TokenMismatch::Taken(token) => write!(f, "that is the id of {token:?}"),
        }
    }
}
