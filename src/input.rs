//! Reads text that a user names by a path: at most a stated size, and never from a FIFO that has no
//! writer.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

/// Why a text could not be read.
#[derive(Debug, Error)]
pub(crate) enum InputError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has more than {limit} bytes, the limit for such a file")]
    Long { limit: u64 },
    #[error("it is not UTF-8 text (first bad byte at {at})")]
    NotText { at: usize },
    #[error("it is a FIFO that no program has opened for writing within {} s", FIFO_TIMEOUT.as_secs())]
    NoWriter,
}

impl From<InputError> for io::Error {
    fn from(error: InputError) -> io::Error {
        match error {
            InputError::Io(source) => source,
            error => io::Error::other(error),
        }
    }
}

/// The time to wait for a program that opens a FIFO for writing.
const FIFO_TIMEOUT: Duration = Duration::from_secs(2);

/// The text of a file, a pipe or a device. The limit holds while reading: no more than `limit`
/// bytes are kept.
pub(crate) fn read(path: &Path, limit: u64) -> Result<String, InputError> {
    read_from(open(path)?, limit)
}

/// The bytes of a file, a pipe or a device.
pub(crate) fn read_bytes(path: &Path, limit: u64) -> Result<Vec<u8>, InputError> {
    bytes(open(path)?, limit)
}

/// The text that a reader yields.
pub(crate) fn read_from(reader: impl Read, limit: u64) -> Result<String, InputError> {
    text(bytes(reader, limit)?)
}

/// Opens a file, a pipe or a device for reading.
pub(crate) fn open(path: &Path) -> Result<File, InputError> {
    if is_fifo(path)? { open_fifo(path) } else { Ok(File::open(path)?) }
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

/// Opening a FIFO blocks until it has a writer, so a thread opens it; without a writer that thread
/// stays blocked.
fn open_fifo(path: &Path) -> Result<File, InputError> {
    let (sender, opened) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || sender.send(File::open(path)));
    Ok(opened.recv_timeout(FIFO_TIMEOUT).map_err(|_| InputError::NoWriter)??)
}
