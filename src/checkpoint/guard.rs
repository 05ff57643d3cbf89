//! Panics of libraries that read untrusted files, turned into errors.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    /// Whether this thread is inside of [`catching`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread becomes an error: a program's panic hook should then print
/// nothing.
pub fn panic_is_handled() -> bool {
    GUARDED.with(Cell::get)
}

/// Runs a library's code and returns the message of a panic as an error.
pub(crate) fn catching<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let outcome = GUARDED.with(|guarded| {
        let outer = guarded.replace(true);
        let outcome = panic::catch_unwind(AssertUnwindSafe(work));
        guarded.set(outer);
        outcome
    });
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
    })
}
