//! Validity as a type: what was checked can be told from what was not.

use std::fmt;
use std::ops::Deref;

use super::report::Report;
use super::validate;
use crate::program::{Program, TaskId};

/// A program without violations. It cannot be changed; take it back with [`Checked::into_program`]
/// to do so.
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

/// A checked program that has queues: every task is in exactly one, and their order is part of what
/// was checked.
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

/// A program that the validator refused, with its report.
///
/// `Display` is one line: the first violation with its task and region, and how many more there
/// are. [`Rejected::report`] has all of them, and `Debug` prints them. A report without errors
/// means that the program was asked to be [`Placed`] and has no queues.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_megakernel::program::{CounterId, Program};
/// use tilewright_megakernel::validate::Checked;
/// let mut program = Program::new("waits for nothing", Target::host(1));
/// program.add_counter("ready");
/// program.counters[0].init = 7;
/// program.counters[0].id = CounterId(3);
/// let rejected = Checked::new(program).unwrap_err();
/// assert_eq!(rejected.report().errors.len(), 2);
/// let line = rejected.to_string();
/// assert!(line.starts_with("the program is not valid: counter c0 `ready`: "), "{line}");
/// assert!(line.ends_with("(first of 2 errors)"), "{line}");
/// ```
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

    /// The full report, with every violation.
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
        match self.0.report.errors.as_slice() {
            [] => f.write_str("the program has no queues; schedule it before it is loaded"),
            [only] => write!(f, "the program is not valid: {only}"),
            [first, ..] => {
                write!(f, "the program is not valid: {first} (first of {} errors)", self.0.report.errors.len())
            }
        }
    }
}

/// The report alone: a program has too many lines to print.
impl fmt::Debug for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.report.is_valid() {
            true => fmt::Display::fmt(self, f),
            false => self.0.report.fmt(f),
        }
    }
}

impl std::error::Error for Rejected {}
