//! Failure of a subcommand: the chain of causes on one line, and exit code 2. Prints nothing if the
//! reader of standard output closed the pipe.

use std::error::Error;
use std::io;

use super::paint::{self, Word};
use crate::chain;

/// Exit code of a process whose reader closed the pipe, as shells report SIGPIPE: 128 and the
/// signal's number.
pub(super) const BROKEN_PIPE: u8 = 141;

/// Any error that ends a subcommand.
///
/// `?` converts every error type to it. It prints the chain of sources on one line, outermost
/// first.
#[derive(Debug)]
pub struct Failure(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure(error.into())
    }
}

impl Failure {
    /// Prints the failure to standard error and returns its exit code.
    pub fn report(&self) -> u8 {
        if self.is_broken_pipe() {
            return BROKEN_PIPE;
        }
        paint::line(Word::Error, &self.line());
        2
    }

    /// Whether the reader of standard output closed it, as `head` does.
    ///
    /// Only writes to standard output yield a bare `io::Error`: files and sockets wrap theirs in an
    /// error that names them.
    fn is_broken_pipe(&self) -> bool {
        self.0.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The chain of causes as one line.
    fn line(&self) -> String {
        chain(&*self.0).replace(['\n', '\r'], " ")
    }
}
