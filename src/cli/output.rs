//! Output files that are whole or absent: written beside the target, then renamed over it.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use thiserror::Error;

/// Why an output file could not be written.
#[derive(Debug, Error)]
#[error("cannot write `{}`", path.display())]
pub struct OutputError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// An output that was opened before the work for it began, so that a path that cannot be written is refused at once.
pub struct Output {
    path: PathBuf,
    file: NamedTempFile,
}

impl Output {
    /// Opens a temporary file in the folder of `path`.
    pub fn create(path: &Path) -> Result<Output, OutputError> {
        let error = |source| OutputError { path: path.to_owned(), source };
        if path.is_dir() {
            return Err(error(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let file = NamedTempFile::new_in(folder).map_err(error)?;
        Ok(Output { path: path.to_owned(), file })
    }

    /// Writes the contents and moves the file to its place.
    pub fn write<E>(self, contents: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<(), super::Failure>
    where
        super::Failure: From<E>,
    {
        let Output { path, file } = self;
        let error = |source| OutputError { path: path.clone(), source };
        let mut writer = BufWriter::new(file);
        contents(&mut writer)?;
        let file = writer.into_inner().map_err(|e| error(e.into_error()))?;
        set_default_permissions(file.path()).map_err(error)?;
        file.persist(&path).map_err(|e| error(e.error))?;
        Ok(())
    }
}

/// Temporary files are private; an output is as readable as any other new file.
#[cfg(unix)]
fn set_default_permissions(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn set_default_permissions(_: &Path) -> io::Result<()> {
    Ok(())
}
