//! The files of a checkpoint: small ones read whole, weights mapped into memory.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::error::CheckpointError;
use super::hint::{self, Hint};

/// Most bytes of a file that is read whole.
const LIMIT: u64 = 256 << 20;

/// Reads a small file whole.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, CheckpointError> {
    let bytes = check_regular(path)?;
    if bytes > LIMIT {
        return Err(CheckpointError::Large { path: path.to_owned(), bytes, limit: LIMIT });
    }
    fs::read(path).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })
}

/// Maps a file into memory, to be read only.
pub(super) fn map(path: &Path) -> Result<Arc<Mmap>, CheckpointError> {
    check_regular(path)?;
    let mapping = File::open(path).and_then(|file| map_read_only(&file));
    mapping.map(Arc::new).map_err(|source| CheckpointError::Read { path: path.to_owned(), source })
}

/// Reads a small file whole where there is one.
pub(super) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, CheckpointError> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(CheckpointError::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes of a file. Links are followed; a folder, a pipe or a device is refused, for opening
/// one could block for ever.
fn check_regular(path: &Path) -> Result<u64, CheckpointError> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && hint::is_pointer(path) => {
            Err(CheckpointError::Pointer { path: path.to_owned() })
        }
        Ok(metadata) if metadata.is_file() => Ok(metadata.len()),
        Ok(_) => Err(CheckpointError::NotAFile { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(match fs::read_link(path) {
            Ok(target) => CheckpointError::Dangling { path: path.to_owned(), target },
            Err(_) => CheckpointError::Missing { path: path.to_owned(), hint: Hint::for_missing(path) },
        }),
        Err(source) => Err(CheckpointError::Read { path: path.to_owned(), source }),
    }
}

#[expect(unsafe_code, reason = "a memory map is how weights are read without a copy")]
fn map_read_only(file: &File) -> io::Result<Mmap> {
    // SAFETY: the map is private to this process and never written through. What remains is that
    // another process changes or truncates the file while it is mapped, which the documentation of
    // `Checkpoint` forbids, as every reader of weights by memory map must.
    unsafe { Mmap::map(file) }
}
