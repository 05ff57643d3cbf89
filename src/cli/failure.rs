//! How a subcommand fails: a chain of causes on one line, exit code 2.

use std::error::Error;
use std::process::ExitCode;

use super::paint::{self, Word};

/// Any error that ends a subcommand.
///
/// It is built from every error type by `?`, and prints the chain of sources, outermost first, on one line.
#[derive(Debug)]
pub struct Failure(Box<dyn Error>);

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure(error.into())
    }
}

impl Failure {
    /// Prints the failure to standard error and gives the exit code for it.
    pub fn report(&self) -> ExitCode {
        paint::line(Word::Error, &self.line());
        ExitCode::from(2)
    }

    /// The chain of causes as one line. A cause whose text its parent already ends with is not repeated.
    fn line(&self) -> String {
        let mut line = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !line.ends_with(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            cause = error.source();
        }
        line.replace(['\n', '\r'], " ")
    }
}
