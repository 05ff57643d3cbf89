//! Output that appears whole or not at all: staged in the folder of its target, flushed to the
//! disk, then renamed.
//!
//! A staged file or folder is named `.tilewright-XXXXXX.tmp` and locked (`flock`) while its process
//! lives. A killed process leaves it unlocked; the next process that stages output in the same
//! folder removes it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

#[cfg(any(feature = "cli", test))]
use tempfile::NamedTempFile;
use tempfile::{Builder, TempDir};

const PREFIX: &str = ".tilewright-";
const SUFFIX: &str = ".tmp";

/// The number of attempts to find a name after another process swept it between its creation and
/// its lock.
const ATTEMPTS: usize = 16;

/// The folder that a path lies in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a file in `folder`, with the mode that the umask leaves. Dropping it removes it.
///
/// # Errors
/// If the folder does not exist or is not writable.
#[cfg(any(feature = "cli", test))]
pub(crate) fn file(folder: &Path) -> io::Result<NamedTempFile> {
    sweep(folder);
    for _ in 0..ATTEMPTS {
        let mut builder = builder();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(folder)?;
        if claim(file.as_file(), file.path()) {
            return Ok(file);
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Flushes a staged file to the disk and moves it to its place: after a power cut there is the old
/// file or the new one.
///
/// # Errors
/// Those of the file system; the file that was there stays.
#[cfg(any(feature = "cli", test))]
pub(crate) fn publish(file: NamedTempFile, target: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    sync_folder(folder_of(target))
}

/// A folder that is not yet at its place; dropping it removes it.
pub(crate) struct StagedFolder {
    folder: TempDir,
    /// Holds the lock; `None` where a folder cannot be locked.
    _lock: Option<File>,
}

/// Creates a folder in `parent`, with the mode that the umask leaves.
///
/// # Errors
/// If `parent` does not exist or is not writable.
pub(crate) fn folder(parent: &Path) -> io::Result<StagedFolder> {
    sweep(parent);
    for _ in 0..ATTEMPTS {
        let mut builder = builder();
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
        let folder = builder.tempdir_in(parent)?;
        match File::open(folder.path()) {
            Ok(lock) if claim(&lock, folder.path()) => return Ok(StagedFolder { folder, _lock: Some(lock) }),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Windows opens no folders as files: nothing is swept there.
            Err(_) => return Ok(StagedFolder { folder, _lock: None }),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

impl StagedFolder {
    /// The path of the folder until it is published.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Flushes the folder's files and the folder to the disk and moves it to its place, where there
    /// is nothing or an empty folder.
    ///
    /// # Errors
    /// Those of the file system; the staged folder is removed then.
    pub(crate) fn publish(self, target: &Path) -> io::Result<()> {
        for entry in fs::read_dir(self.path())? {
            flush(&entry?.path())?;
        }
        sync_folder(self.path())?;
        fs::rename(self.path(), target)?;
        // Nothing is at the old path any more that could be removed.
        let _ = self.folder.keep();
        sync_folder(folder_of(target))
    }
}

fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    builder
}

/// Locks what was created; `false` if a sweep removed it, or is about to.
fn claim(file: &File, path: &Path) -> bool {
    match file.try_lock() {
        Ok(()) => path.exists(),
        Err(TryLockError::WouldBlock) => false,
        // A file system without locks: nothing is swept there.
        Err(TryLockError::Error(_)) => true,
    }
}

/// Removes what killed processes left staged in a folder. Failures are left to the next sweep.
fn sweep(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_staged(path)) {
        let _ = remove_if_abandoned(&path);
    }
}

fn is_staged(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

fn remove_if_abandoned(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    // A link, a FIFO or a device is not ours.
    if !kind.is_file() && !kind.is_dir() {
        return Ok(());
    }
    let file = File::open(path)?;
    match file.try_lock() {
        Ok(()) if kind.is_dir() => fs::remove_dir_all(path),
        Ok(()) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// Flushes a file or a folder to the disk.
fn flush(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Flushes a folder's entries. Some file systems flush them by themselves and refuse.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    match flush(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        // Windows opens no folders as files.
        Err(_) if cfg!(windows) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn abandoned_output_is_swept_and_that_of_a_living_process_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let alive = file(folder.path()).expect("stages");
        // As SIGKILL leaves them: there, and unlocked.
        fs::write(folder.path().join(".tilewright-dead.tmp"), "half").expect("writes");
        fs::write(folder.path().join(".tmpOther"), "another program's").expect("writes");
        let new = file(folder.path()).expect("stages");
        assert!(alive.path().exists() && new.path().exists());
        assert_eq!(names(folder.path()).len(), 3, "{:?}", names(folder.path()));
        publish(new, &folder.path().join("out")).expect("moves");
        drop(alive);
        assert_eq!(names(folder.path()), [".tmpOther", "out"]);
    }

    #[test]
    fn an_abandoned_folder_is_swept_and_that_of_a_living_process_is_not() {
        let parent = tempfile::tempdir().expect("a folder");
        let alive = super::folder(parent.path()).expect("stages");
        fs::write(alive.path().join("config.json"), "{}").expect("writes");
        let dead = parent.path().join(".tilewright-dead.tmp");
        fs::create_dir(&dead).expect("makes");
        fs::write(dead.join("model.safetensors"), "half").expect("writes");
        // Files and folders sweep each other.
        drop(file(parent.path()).expect("stages"));
        assert!(!dead.exists() && alive.path().exists());
        let staged = alive.path().to_owned();
        let out = parent.path().join("out");
        alive.publish(&out).expect("moves");
        assert_eq!((names(parent.path()), names(&out)), (vec!["out".into()], vec!["config.json".into()]));
        assert!(!staged.exists());
    }

    #[test]
    fn a_folder_that_is_not_published_is_absent() {
        let parent = tempfile::tempdir().expect("a folder");
        let out = parent.path().join("out");
        fs::create_dir(&out).expect("makes");
        fs::write(out.join("theirs"), "").expect("writes");
        let staged = super::folder(parent.path()).expect("stages");
        fs::write(staged.path().join("ours"), "").expect("writes");
        staged.publish(&out).expect_err("a folder with files is in its place");
        drop(super::folder(parent.path()).expect("stages"));
        assert_eq!((names(parent.path()), names(&out)), (vec!["out".into()], vec!["theirs".into()]));
    }

    /// `/dev/null` cannot be flushed: what is published in its place fails where it is flushed, and
    /// before it is renamed.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_cannot_be_flushed_is_not_published() {
        let null = Path::new("/dev/null");
        assert_eq!(flush(null).expect_err("is not flushed").kind(), io::ErrorKind::InvalidInput);
        sync_folder(null).expect("a file system that refuses to flush a folder");

        let parent = tempfile::tempdir().expect("a folder");
        let out = parent.path().join("out");
        let staged = file(parent.path()).expect("stages");
        let path = staged.into_temp_path();
        let unsynced = NamedTempFile::from_parts(File::open(null).expect("opens"), path);
        assert_eq!(publish(unsynced, &out).expect_err("is not flushed").kind(), io::ErrorKind::InvalidInput);
        assert!(names(parent.path()).is_empty(), "neither staged nor published");

        let staged = super::folder(parent.path()).expect("stages");
        std::os::unix::fs::symlink(null, staged.path().join("model.safetensors")).expect("links");
        assert_eq!(staged.publish(&out).expect_err("is not flushed").kind(), io::ErrorKind::InvalidInput);
        assert!(names(parent.path()).is_empty(), "neither staged nor published");
    }

    #[cfg(unix)]
    #[test]
    fn what_only_has_the_name_of_a_staged_file_is_left_alone() {
        let parent = tempfile::tempdir().expect("a folder");
        let precious = parent.path().join("precious");
        fs::write(&precious, "mine").expect("writes");
        std::os::unix::fs::symlink(&precious, parent.path().join(".tilewright-link.tmp")).expect("links");
        drop(file(parent.path()).expect("stages"));
        assert_eq!(names(parent.path()), [".tilewright-link.tmp", "precious"]);
    }
}
