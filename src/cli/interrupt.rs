//! Ctrl-C: ends work in good order and removes unfinished files.
//!
//! The first interrupt of work that can end early ([`Interrupt`]) ends that work. Any other ends
//! the process with exit code 130, after removing files that are not yet complete ([`Unfinished`]).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::NamedTempFile;

use super::Failure;
use crate::engine::Abort;

/// Exit code after Ctrl-C, as shells report it: 128 and the number of SIGINT.
pub(super) const CODE: u8 = 130;

/// The state that the handler reads.
struct InterruptState {
    /// Ends the running work, if it can end early.
    early: Option<Box<dyn Fn() + Send>>,
    came: bool,
    unfinished: BTreeSet<PathBuf>,
}

static STATE: Mutex<InterruptState> =
    Mutex::new(InterruptState { early: None, came: false, unfinished: BTreeSet::new() });

/// Locks the state, which is consistent even if a thread panicked while it held the lock.
fn state() -> MutexGuard<'static, InterruptState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the handler of SIGINT. A process has one: later calls do nothing.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| ctrlc::set_handler(handle).map_err(|error| error.to_string()));
    installed.clone().map_err(io::Error::other)
}

/// Handles an interrupt, on a thread of its own.
fn handle() {
    let mut state = state();
    if !std::mem::replace(&mut state.came, true)
        && let Some(early) = &state.early
    {
        return early();
    }
    for path in &state.unfinished {
        // It may have been moved to its place a moment ago.
        let _ = fs::remove_file(path);
    }
    // The state stays locked, so that no other thread stages or moves a file.
    std::process::exit(CODE.into())
}

/// Work that Ctrl-C ends early.
pub struct Interrupt(());

impl Interrupt {
    /// Makes the first Ctrl-C abort an engine's work.
    pub fn aborts(abort: Abort) -> Result<Interrupt, Failure> {
        Interrupt::ends(move || abort.abort())
    }

    /// Makes the first Ctrl-C only set [`Interrupt::came`], which the work polls.
    pub fn noticed() -> Result<Interrupt, Failure> {
        Interrupt::ends(|| ())
    }

    fn ends(early: impl Fn() + Send + 'static) -> Result<Interrupt, Failure> {
        state().early = Some(Box::new(early));
        install()?;
        Ok(Interrupt(()))
    }

    /// Whether Ctrl-C was pressed.
    pub fn came(&self) -> bool {
        state().came
    }

    /// The exit code of work that ended by itself or was interrupted.
    pub fn exit_code(&self) -> ExitCode {
        if self.came() { ExitCode::from(CODE) } else { ExitCode::SUCCESS }
    }
}

/// A file that an interrupt removes while this value lives.
pub struct Unfinished(PathBuf);

impl Unfinished {
    /// Creates a file and registers it. An interrupt in between is handled once it is registered.
    pub fn make(make: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<(NamedTempFile, Unfinished)> {
        install()?;
        let mut state = state();
        let file = make()?;
        state.unfinished.insert(file.path().to_owned());
        let unfinished = Unfinished(file.path().to_owned());
        Ok((file, unfinished))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        state().unfinished.remove(&self.0);
    }
}
