//! Bus errors: a mapped file that became shorter while it was in use.
//!
//! Weights are read through memory maps, which cost no copy. If another process truncates such a
//! file, the kernel sends SIGBUS at the next access. Without a handler the program would die
//! without a word.

/// The message that the program prints before it exits.
#[cfg(unix)]
const LINE: &[u8] =
    b"error: a mapped file, such as a checkpoint's weights, became shorter while it was in use, or its disk failed \
    (bus error); leave the files of a model alone while it runs\n";

/// Makes a bus error one line on standard error and exit code 2.
#[cfg(unix)]
#[expect(unsafe_code, reason = "the standard library has no handlers of signals")]
pub fn report_truncated_files() {
    extern "C" fn report(_: libc::c_int) {
        // SAFETY: `write` and `_exit` are async-signal-safe, and the line is static.
        unsafe {
            libc::write(libc::STDERR_FILENO, LINE.as_ptr().cast(), LINE.len());
            libc::_exit(2);
        }
    }
    let handler = report as extern "C" fn(libc::c_int);
    // SAFETY: the handler is a function of the right signature that calls async-signal-safe
    // functions alone.
    unsafe { libc::signal(libc::SIGBUS, handler as libc::sighandler_t) };
}

#[cfg(not(unix))]
pub fn report_truncated_files() {}
