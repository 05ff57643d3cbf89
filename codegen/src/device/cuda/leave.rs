//! The end of a process whose libraries may still be at work.

use std::ffi::c_int;

unsafe extern "C" {
    /// POSIX: ends the process without handlers of `atexit` and destructors of libraries.
    safe fn _exit(status: c_int) -> !;
}

/// Ends the process at once, with an exit code; what it printed must be flushed.
///
/// Where a peer of a communicator is lost, threads of NCCL may be in a call that does not return.
/// An ordinary exit runs the destructors of libraries, which free what these threads use, and can
/// end in a crash in place of the exit code.
///
/// ```no_run
/// tilewright_codegen::device::cuda::leave(2);
/// ```
pub fn leave(code: u8) -> ! {
    _exit(code.into())
}
