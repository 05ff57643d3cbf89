//! Ctrl-C: what an interrupt ends in good order, and what it leaves behind.
//!
//! The first interrupt of work that can end early ([`Interrupt`]) ends that work; any other ends the process, with exit
//! code 130. Before a process ends so, files that are not yet whole ([`Unfinished`]) are removed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tempfile::NamedTempFile;

use super::Failure;
use crate::engine::Abort;

/// The exit code of what a person ended by Ctrl-C, as shells have it: 128 and the signal's number.
const CODE: u8 = 130;

/// What the handler needs to know.
struct State {
    /// Ends the work that runs, if that can end early.
    early: Option<Box<dyn Fn() + Send>>,
    came: bool,
    unfinished: BTreeSet<PathBuf>,
}

static STATE: Mutex<State> = Mutex::new(State { early: None, came: false, unfinished: BTreeSet::new() });

/// The state; what a thread that panicked left of it is whole.
fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on Ctrl-C (or SIGINT) is heard here. A process has one handler: later calls change nothing.
fn listen() -> io::Result<()> {
    static LISTENING: OnceLock<Result<(), String>> = OnceLock::new();
    let listening = LISTENING.get_or_init(|| ctrlc::set_handler(heard).map_err(|error| error.to_string()));
    listening.clone().map_err(io::Error::other)
}

/// Runs on a thread of its own.
fn heard() {
    let mut state = state();
    if !std::mem::replace(&mut state.came, true)
        && let Some(early) = &state.early
    {
        return early();
    }
    for path in &state.unfinished {
        // It may have got its place a moment ago.
        let _ = fs::remove_file(path);
    }
    // The state stays locked: no file is begun or moved any more.
    std::process::exit(CODE.into())
}

/// Whether Ctrl-C came to work that can end early.
pub struct Interrupt(());

impl Interrupt {
    /// From now on the first Ctrl-C aborts an engine's work.
    pub fn aborts(abort: Abort) -> Result<Interrupt, Failure> {
        Interrupt::ends(move || abort.abort())
    }

    /// From now on the first Ctrl-C is kept for whoever asks whether it came.
    pub fn noticed() -> Result<Interrupt, Failure> {
        Interrupt::ends(|| ())
    }

    fn ends(early: impl Fn() + Send + 'static) -> Result<Interrupt, Failure> {
        state().early = Some(Box::new(early));
        listen()?;
        Ok(Interrupt(()))
    }

    /// Whether it came.
    pub fn came(&self) -> bool {
        state().came
    }

    /// The exit code of work that is done, or was interrupted.
    pub fn exit_code(&self) -> ExitCode {
        if self.came() { ExitCode::from(CODE) } else { ExitCode::SUCCESS }
    }
}

/// A file that an interrupt removes, as long as this lives.
pub struct Unfinished(PathBuf);

impl Unfinished {
    /// Makes a file and watches over it. An interrupt that comes meanwhile is heard when it is watched.
    pub fn make(make: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<(NamedTempFile, Unfinished)> {
        listen()?;
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
