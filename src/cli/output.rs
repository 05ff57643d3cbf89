//! Output files. A regular file is [staged](crate::staged) in the folder of its target and renamed
//! over it, so it is complete or unchanged. Anything else that exists (a device, a FIFO, standard
//! output by name) is written through.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use thiserror::Error;

use super::interrupt::Unfinished;
use crate::staged::{self, folder_of};

/// Why an output file could not be written.
#[derive(Debug, Error)]
#[error("cannot write `{}`", path.display())]
pub struct OutputError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// An output, opened before the work for it begins so that a path that cannot be written is refused
/// at once.
pub struct CommandOutput {
    path: PathBuf,
    sink: Sink,
}

/// The destination of the bytes.
enum Sink {
    /// To a staged file in the folder of the target.
    Beside(Beside),
    /// To the device, FIFO or stream that exists.
    Through(File),
}

/// A staged file; dropping it removes it.
struct Beside {
    target: PathBuf,
    old: Option<Old>,
    file: NamedTempFile,
    _unfinished: Unfinished,
}

/// Attributes of the replaced file that the new one takes over.
struct Old {
    permissions: Permissions,
    /// User and group, on Unix.
    owner: Option<(u32, u32)>,
}

impl CommandOutput {
    /// Opens the output: a staged file for a regular one, or the device, FIFO or stream that the
    /// path names. A FIFO blocks here until it has a reader.
    pub fn create(path: &Path) -> Result<CommandOutput, OutputError> {
        let sink = Sink::open(path).map_err(|source| OutputError { path: path.to_owned(), source })?;
        Ok(CommandOutput { path: path.to_owned(), sink })
    }

    /// Writes the contents and moves a staged file to its place.
    pub fn write<E>(self, contents: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<(), super::Failure>
    where
        super::Failure: From<E>,
    {
        let CommandOutput { path, sink } = self;
        let error = |source| OutputError { path, source };
        let file = match &sink {
            Sink::Beside(beside) => beside.file.as_file(),
            Sink::Through(file) => file,
        };
        let mut writer = BufWriter::new(Watched { file, failed: None });
        let outcome = contents(&mut writer);
        let flushed = writer.flush();
        let (watched, _) = writer.into_parts();
        // An error of `contents` may hide that the disk is full.
        if let Some(source) = watched.failed {
            // A pipe without a reader ends the command as SIGPIPE ends others: silently.
            let is_pipe = matches!(sink, Sink::Through(_)) && source.kind() == io::ErrorKind::BrokenPipe;
            return Err(if is_pipe { source.into() } else { error(source).into() });
        }
        outcome?;
        let moved = flushed.and_then(|()| match sink {
            Sink::Beside(beside) => beside.persist(),
            Sink::Through(_) => Ok(()),
        });
        Ok(moved.map_err(error)?)
    }
}

impl Sink {
    fn open(path: &Path) -> io::Result<Sink> {
        if let Some(stream) = standard_stream(path)? {
            return Ok(Sink::Through(stream));
        }
        match Destination::of(path)? {
            Destination::Through => Ok(Sink::Through(OpenOptions::new().append(true).open(path)?)),
            Destination::File { target, old } => {
                if old.is_some() {
                    // A file that may not be written may not be replaced either.
                    OpenOptions::new().write(true).open(&target)?;
                }
                let (file, unfinished) = Unfinished::make(|| staged::file(folder_of(&target)))?;
                Ok(Sink::Beside(Beside { target, old, file, _unfinished: unfinished }))
            }
        }
    }
}

impl Beside {
    /// Moves the file to its place, with the mode and owner of the file that it replaces.
    fn persist(self) -> io::Result<()> {
        if let Some(old) = &self.old {
            keep_owner(self.file.path(), old.owner);
            fs::set_permissions(self.file.path(), old.permissions.clone())?;
        }
        staged::publish(self.file, &self.target)
    }
}

/// The file or device that a path names.
enum Destination {
    /// A regular file, or one that does not exist yet; links at the end of the path are resolved.
    File { target: PathBuf, old: Option<Old> },
    /// A device, a FIFO, or a file that another program holds open.
    Through,
}

/// Most symbolic links that are followed, as in Linux.
const MAX_LINKS: usize = 40;

impl Destination {
    fn of(path: &Path) -> io::Result<Destination> {
        let old = match fs::metadata(path) {
            Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(found) if !found.is_file() => return Ok(Destination::Through),
            Ok(found) => Some(Old { permissions: found.permissions(), owner: owner_of(&found) }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file name"));
        }
        let mut target = path.to_owned();
        for _ in 0..MAX_LINKS {
            let folder = folder_of(&target);
            // The links in /proc are open files, which stay with the program that opened them.
            if old.is_some() && fs::canonicalize(folder)?.starts_with("/proc") {
                return Ok(Destination::Through);
            }
            match fs::read_link(&target) {
                Ok(next) => target = folder.join(next),
                Err(_) => return Ok(Destination::File { target, old }),
            }
        }
        Err(io::Error::other(format!("it is a chain of more than {MAX_LINKS} symbolic links")))
    }
}

/// Standard output or standard error, if the path names it. The open stream is used: a file opened
/// anew would have its own position and overwrite what other programs write to it.
#[cfg(unix)]
fn standard_stream(path: &Path) -> io::Result<Option<File>> {
    use std::os::fd::AsFd;
    let Ok(streams) = fs::canonicalize("/proc/self/fd") else { return Ok(None) };
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(folder) = fs::canonicalize(folder_of(&target)) else { return Ok(None) };
        if folder == streams {
            let stream = match target.file_name().and_then(OsStr::to_str) {
                Some("1") => io::stdout().as_fd().try_clone_to_owned()?,
                Some("2") => io::stderr().as_fd().try_clone_to_owned()?,
                _ => return Ok(None),
            };
            return Ok(Some(stream.into()));
        }
        match fs::read_link(&target) {
            Ok(next) => target = folder.join(next),
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(not(unix))]
fn standard_stream(_: &Path) -> io::Result<Option<File>> {
    Ok(None)
}

#[cfg(unix)]
fn owner_of(file: &Metadata) -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    Some((file.uid(), file.gid()))
}

#[cfg(not(unix))]
fn owner_of(_: &Metadata) -> Option<(u32, u32)> {
    None
}

/// Gives a file an owner and a group, as far as the process may.
fn keep_owner(path: &Path, owner: Option<(u32, u32)>) {
    #[cfg(unix)]
    if let Some((user, group)) = owner
        && fs::metadata(path).is_ok_and(|new| owner_of(&new) != owner)
    {
        let _ = std::os::unix::fs::chown(path, Some(user), Some(group));
    }
    #[cfg(not(unix))]
    let _ = (path, owner);
}

/// A file, and the first error of writing to it.
struct Watched<'f> {
    file: &'f File,
    failed: Option<io::Error>,
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        if let Err(error) = &written
            && error.kind() != io::ErrorKind::Interrupted
        {
            let copy = || error.raw_os_error().map_or(error.kind().into(), io::Error::from_raw_os_error);
            self.failed.get_or_insert_with(copy);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
