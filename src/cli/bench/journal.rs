//! The journal of a call: its rows as they come, each written at once, so that a call that ends early goes on where it ended.

use std::cell::{Cell, RefCell};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use super::telemetry::Telemetry;
use crate::cli::Failure;
use crate::results::{Call, OURS, Results, Row, write_call, write_row};

/// The rows of a call.
pub struct Journal {
    /// What is the same for all rows.
    pub call: Call,
    /// The device's counters.
    pub telemetry: Telemetry,
    rows: RefCell<Vec<Row>>,
    /// Rows that the file held already, by the same device, driver and commit.
    before: Vec<Row>,
    file: Option<RefCell<File>>,
    until: Option<Instant>,
    left_out: Cell<usize>,
    /// Whether every shape is said on standard error.
    told: bool,
}

impl Journal {
    /// A journal of a call on a device, of the working tree's commit unless one is named.
    pub fn new(device: String, ordinal: Option<u32>, commit: Option<String>) -> Journal {
        let telemetry = Telemetry::of(&device, ordinal);
        let call = call_of(device, &telemetry, commit);
        let (rows, before) = (RefCell::default(), Vec::new());
        Journal { call, telemetry, rows, before, file: None, until: None, left_out: Cell::new(0), told: false }
    }

    /// The same, which says on standard error what it measures and what it has measured.
    pub fn told(self, told: bool) -> Journal {
        Journal { told, ..self }
    }

    /// Goes on with a file: rows of the same device, driver and commit in it are not measured again, new ones are added to it.
    pub fn resume(mut self, path: &Path) -> Result<Journal, Failure> {
        if path.exists() && fs::metadata(path)?.len() > 0 {
            let mut results = Results::default();
            results.add_file(path)?;
            let of = |call: &Call| (call.device.clone(), call.commit.clone(), call.driver.clone());
            let same = |call: &Call| of(call) == of(&self.call);
            let rows = results.rows.iter().filter(|row| same(results.call(row)));
            self.before = rows.map(|(_, row)| row.clone()).collect();
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        write_call(&mut file, &self.call)?;
        self.file = Some(RefCell::new(file));
        Ok(self)
    }

    /// The same with a time after which no measurement begins.
    pub fn within(self, budget: Option<Duration>) -> Journal {
        Journal { until: budget.map(|budget| Instant::now() + budget), ..self }
    }

    /// Whether our rows of that suite and shape, so many, are there already, or the time is over; then the shape is left out.
    pub fn skips(&self, suite: &str, shape: &[(&str, u64)], rows: usize) -> bool {
        if self.before.iter().filter(|row| is_of(row, suite, shape)).count() >= rows {
            return true;
        }
        let over = self.until.is_some_and(|until| Instant::now() >= until);
        self.left_out.set(self.left_out.get() + usize::from(over));
        if self.told && !over {
            let shape: Vec<String> = shape.iter().map(|(name, extent)| format!("{name}={extent}")).collect();
            let _ = writeln!(io::stderr(), "to measure: {suite} {}", shape.join(" "));
        }
        over
    }

    /// The last row of ours of a suite and shape that the file held already, of those that a test accepts.
    pub fn before(&self, suite: &str, shape: &[(&str, u64)], test: impl Fn(&Row) -> bool) -> Option<&Row> {
        self.before.iter().rev().find(|row| is_of(row, suite, shape) && test(row))
    }

    /// Shapes that the time was too short for.
    pub fn left_out(&self) -> usize {
        self.left_out.get()
    }

    /// Keeps a row, and writes it where there is a file.
    pub fn keep(&self, row: Row) -> io::Result<()> {
        if let Some(file) = &self.file {
            let mut file = file.borrow_mut();
            write_row(&mut *file, &row)?;
            file.flush()?;
        }
        if self.told {
            let us = row.median_us.map_or(String::new(), |us| format!(": {us:.2} us"));
            let _ = writeln!(io::stderr(), "measured: {} {} {}{us}", row.suite, row.shape_line(), row.variant);
        }
        self.rows.borrow_mut().push(row);
        Ok(())
    }

    /// The rows of this call.
    pub fn rows(&self) -> Vec<Row> {
        self.rows.borrow().clone()
    }
}

/// Whether a row is ours, of a suite and a shape.
fn is_of(row: &Row, suite: &str, shape: &[(&str, u64)]) -> bool {
    row.suite == suite
        && row.who == OURS
        && row.shape.len() == shape.len()
        && shape.iter().all(|(name, extent)| row.shape.get(*name) == Some(extent))
}

/// This call of the program on a device, for rows that are written all at once.
pub fn this_call(device: String, ordinal: Option<u32>) -> Call {
    let telemetry = Telemetry::of(&device, ordinal);
    call_of(device, &telemetry, None)
}

/// What is the same for all rows of this call of the program.
fn call_of(device: String, telemetry: &Telemetry, commit: Option<String>) -> Call {
    let (sm_mhz, memory_mhz) = telemetry.clocks().unzip();
    let tree = if commit.is_some() { None } else { working_tree() };
    let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let command: Vec<String> = std::env::args().skip(1).collect();
    Call {
        id: format!("{date} {device}"),
        date,
        driver: telemetry.driver(),
        device,
        commit: commit.or_else(|| tree.as_ref().map(|tree| tree.commit.clone())),
        committed: tree.as_ref().map(|tree| tree.committed.clone()),
        clean: tree.map(|tree| tree.clean),
        command: format!("tilewright {}", command.join(" ")),
        sm_mhz,
        memory_mhz,
        power_limit_watts: telemetry.power_limit(),
        ..Call::default()
    }
}

/// The working tree that the call runs in.
struct Tree {
    commit: String,
    committed: String,
    clean: bool,
}

/// What git says of the working tree; `None` outside one, or without git.
fn working_tree() -> Option<Tree> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let committed = git(&["log", "-1", "--format=%cI"])?;
    let clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(Tree { commit, committed, clean })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(commit: &str) -> Journal {
        Journal::new("a device of a test".to_owned(), None, Some(commit.to_owned()))
    }

    fn row(n: u64) -> Row {
        let shape = [("n".to_owned(), n)].into();
        Row { suite: "gemv".into(), who: OURS.into(), shape, samples_us: vec![2.0, 1.0], ..Row::default() }
    }

    #[test]
    fn a_call_that_ended_early_goes_on_where_it_ended_and_another_commit_begins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.jsonl");
        let first = journal("aaa").resume(&path).expect("opens");
        first.keep(row(8)).expect("writes");
        drop(first);
        let second = journal("aaa").resume(&path).expect("opens");
        assert!(second.skips("gemv", &[("n", 8)], 1) && !second.skips("gemv", &[("n", 16)], 1));
        assert!(!second.skips("gemm", &[("n", 8)], 1) && !second.skips("gemv", &[("n", 8), ("k", 8)], 1));
        assert!(!second.skips("gemv", &[("n", 8)], 2), "half of a pair of rows is measured again");
        assert_eq!(second.left_out(), 0);
        second.keep(row(16)).expect("writes");
        assert!(!journal("bbb").resume(&path).expect("opens").skips("gemv", &[("n", 8)], 1));
        let all = Results::open(&path).expect("reads");
        assert_eq!(all.rows.iter().map(|(_, row)| row.shape["n"]).collect::<Vec<_>>(), [8, 16]);
        assert_eq!(all.rows[0].1.samples_us, [2.0, 1.0]);
    }

    #[test]
    fn no_measurement_begins_when_the_time_is_over() {
        let journal = journal("aaa").within(Some(Duration::ZERO));
        assert!(journal.skips("gemv", &[("n", 8)], 1) && journal.skips("gemv", &[("n", 16)], 1));
        assert_eq!(journal.left_out(), 2);
    }
}
