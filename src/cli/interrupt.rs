//! Ctrl-C: the first ends the work that runs, the second the process.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Failure;
use crate::engine::Abort;

/// The exit code of what a person ended by Ctrl-C, as shells have it: 128 and the signal's number.
const CODE: u8 = 130;

/// Whether Ctrl-C came.
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on Ctrl-C (or SIGINT) aborts an engine's work instead of ending the process; once in a process.
    pub fn aborts(abort: Abort) -> Result<Interrupt, Failure> {
        let came = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&came);
        ctrlc::set_handler(move || {
            if seen.swap(true, Ordering::AcqRel) {
                std::process::exit(CODE.into());
            }
            abort.abort();
        })?;
        Ok(Interrupt(came))
    }

    /// Whether it came.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// The exit code of work that is done, or was interrupted.
    pub fn exit_code(&self) -> ExitCode {
        if self.came() { ExitCode::from(CODE) } else { ExitCode::SUCCESS }
    }
}
