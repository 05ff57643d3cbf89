//! Validity as a type: what was checked can be told from what was not.

use std::fmt;
use std::ops::Deref;

use super::report::Report;
use super::validate;
use crate::program::{Program, TaskId};

/// A program without violations. It cannot be changed; take it back with [`Checked::into_program`] to do so.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_megakernel::{program::Program, validate::Checked};
/// let checked = Checked::new(Program::new("nothing", Target::host(1))).unwrap();
/// assert_eq!(checked.tasks.len(), 0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Checked(Program);

impl Checked {
    /// Checks a program.
    ///
    /// # Errors
    /// The program itself, with every violation.
    pub fn new(program: Program) -> Result<Checked, Rejected> {
        let report = validate(&program);
        if report.is_valid() { Ok(Checked(program)) } else { Err(Rejected::new(program, report)) }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.0
    }

    /// The program, to be changed: it is unchecked again.
    pub fn into_program(self) -> Program {
        self.0
    }
}

impl Deref for Checked {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0
    }
}

/// A checked program that has queues: every task is in exactly one, and their order is part of what was checked.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_megakernel::{program::Program, validate::Placed};
/// let mut program = Program::new("nothing", Target::host(2));
/// let rejected = Placed::new(program.clone()).unwrap_err();
/// assert_eq!(rejected.to_string(), "the program has no queues; schedule it before it is loaded");
/// program.queues = Some(vec![vec![], vec![]]);
/// assert_eq!(Placed::new(program).unwrap().queues().len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Placed(Checked);

impl Placed {
    /// Checks a placed program.
    ///
    /// # Errors
    /// The program itself, with every violation; or without any, if it has no queues.
    pub fn new(program: Program) -> Result<Placed, Rejected> {
        let checked = Checked::new(program)?;
        if checked.0.queues.is_some() {
            Ok(Placed(checked))
        } else {
            let report = validate(&checked.0);
            Err(Rejected::new(checked.0, report))
        }
    }

    /// The tasks of every SM, in the order in which it runs them.
    pub fn queues(&self) -> &[Vec<TaskId>] {
        self.0.0.queues.as_deref().unwrap_or_default()
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.0.0
    }

    /// The program, to be changed: it is unchecked again.
    pub fn into_program(self) -> Program {
        self.0.0
    }
}

impl Deref for Placed {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.0.0
    }
}

impl From<Placed> for Checked {
    fn from(placed: Placed) -> Checked {
        placed.0
    }
}

/// A program that was refused, and why.
///
/// Its text is the report; if that has no errors, the program was asked to be [`Placed`] and has no queues.
#[derive(Clone, PartialEq)]
pub struct Rejected(Box<Inside>);

#[derive(Clone, PartialEq)]
struct Inside {
    program: Program,
    report: Report,
}

impl Rejected {
    fn new(program: Program, report: Report) -> Rejected {
        Rejected(Box::new(Inside { program, report }))
    }

    /// What was found.
    pub fn report(&self) -> &Report {
        &self.0.report
    }

    /// The program as it was given.
    pub fn into_program(self) -> Program {
        self.0.program
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.report.is_valid() {
            f.write_str("the program has no queues; schedule it before it is loaded")
        } else {
            self.0.report.fmt(f)
        }
    }
}

/// The report alone: a program has too many lines to print.
impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Rejected {}
