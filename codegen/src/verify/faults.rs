//! Collects the errors of a kernel, statement by statement.

use super::{ErrorKind, VerifyError};
use crate::ir::{Kernel, Stmt, text};

/// The kernel being checked, and what was found.
pub(super) struct Faults<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) errors: Vec<VerifyError>,
}

impl<'a> Faults<'a> {
    /// Notes an error at a statement.
    pub(super) fn at(&mut self, stmt: &Stmt, kind: ErrorKind) {
        let inst = text::line(self.kernel, stmt);
        self.errors.push(VerifyError { kind, at: Some(stmt.id), inst, src: Some(stmt.src) });
    }

    /// Notes an error of the kernel as a whole.
    pub(super) fn whole(&mut self, kind: ErrorKind) {
        self.errors.push(VerifyError { kind, at: None, inst: String::new(), src: None });
    }

    /// Notes an error at a statement unless the condition holds.
    pub(super) fn require(&mut self, holds: bool, stmt: &Stmt, kind: impl FnOnce() -> ErrorKind) {
        if !holds {
            self.at(stmt, kind());
        }
    }

    /// The statements, in the order of the text.
    pub(super) fn statements(&self) -> Vec<&'a Stmt> {
        let mut all = Vec::new();
        self.kernel.walk(&mut |stmt| all.push(stmt));
        all
    }
}
