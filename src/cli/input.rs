//! Texts that a user names by a path: no larger than is sensible, and no FIFO that nobody writes to.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

/// Why a text could not be read.
#[derive(Debug, Error)]
pub enum InputError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has more than {limit} bytes, the most that are read of such a file")]
    Long { limit: u64 },
    #[error("it is no UTF-8 text from byte {at} on")]
    NotText { at: usize },
    #[error("it is a FIFO that nobody has opened to write for {} s", PATIENCE.as_secs())]
    NoWriter,
}

/// How long a FIFO's writer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// The text of a file, a pipe or a device.
pub fn read(path: &Path, limit: u64) -> Result<String, InputError> {
    text(read_bytes(path, limit)?)
}

/// The bytes of a file, a pipe or a device.
pub fn read_bytes(path: &Path, limit: u64) -> Result<Vec<u8>, InputError> {
    bytes(if is_fifo(path)? { open_fifo(path)? } else { File::open(path)? }, limit)
}

/// The text that a reader gives.
pub fn read_from(reader: impl Read, limit: u64) -> Result<String, InputError> {
    text(bytes(reader, limit)?)
}

fn bytes(reader: impl Read, limit: u64) -> Result<Vec<u8>, InputError> {
    let mut bytes = Vec::new();
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(InputError::Long { limit }) } else { Ok(bytes) }
}

fn text(bytes: Vec<u8>) -> Result<String, InputError> {
    String::from_utf8(bytes).map_err(|error| InputError::NotText { at: error.utf8_error().valid_up_to() })
}

#[cfg(unix)]
fn is_fifo(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::FileTypeExt;
    Ok(fs::metadata(path)?.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_fifo(path: &Path) -> io::Result<bool> {
    fs::metadata(path).map(|_| false)
}

/// Opening a FIFO waits for its writer, without end where there is none; so it is opened on a thread that may stay behind.
fn open_fifo(path: &Path) -> Result<File, InputError> {
    let (sender, opened) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || sender.send(File::open(path)));
    Ok(opened.recv_timeout(PATIENCE).map_err(|_| InputError::NoWriter)??)
}
