//! The journal of a call: rows are written as they are measured, so that a call that ends early can
//! be continued.

use std::cell::{Cell, RefCell};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use thiserror::Error;

use super::telemetry::Telemetry;
use crate::cli::Failure;
use crate::cli::paint::{self, OutputLevel, Word};
use crate::cli::progress::ItemBar;
use crate::results::{Call, OURS, ResultRow, Results, read_results, write_call, write_row};
use crate::staged;

/// The rows of a call.
pub struct Journal {
    /// The facts that all rows share.
    pub call: Call,
    /// The device's counters.
    pub telemetry: Telemetry,
    rows: RefCell<Vec<ResultRow>>,
    /// Rows of the same device, driver and commit that the file had before.
    before: Vec<ResultRow>,
    file: Option<RefCell<RowFile>>,
    until: Option<Instant>,
    left_out: Cell<usize>,
    /// Whether each shape is announced on standard error.
    told: bool,
    /// Rows of this call that are measured or skipped, and all that its suites have.
    done: Cell<usize>,
    expected: Cell<usize>,
    bar: ItemBar,
}

/// Why a file of rows cannot be continued.
#[derive(Debug, Error)]
enum JournalError {
    #[error("`{}` is not a regular file; rows are read from it and appended to it, so give one", path.display())]
    NotAFile { path: PathBuf },
    #[error("cannot write `{}`", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A file that rows are appended to. The line of the call is written with the first of them.
struct RowFile {
    file: File,
    path: PathBuf,
    has_call: bool,
    /// Whether this call created the file.
    is_new: bool,
}

impl RowFile {
    /// Opens a file for appending; also returns the rows that it has. An unfinished last line,
    /// which a killed process leaves, is removed.
    fn open(path: &Path) -> Result<(RowFile, Results), Failure> {
        let is_new = !path.exists();
        if !is_new && !fs::metadata(path)?.is_file() {
            return Err(JournalError::NotAFile { path: path.to_owned() }.into());
        }
        let failed = |source| JournalError::Open { path: path.to_owned(), source };
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        let bytes = read_results(path)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let (lines, rest) = bytes.split_at(whole);
        let mut results = Results::default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if rest.trim_ascii().is_empty() || serde_json::from_slice::<serde_json::Value>(rest).is_ok() {
            results.add(&String::from_utf8_lossy(&bytes), &name)?;
            if !rest.is_empty() {
                file.write_all(b"\n").map_err(failed)?;
            }
        } else {
            results.add(&String::from_utf8_lossy(lines), &name)?;
            file.set_len(whole as u64).map_err(failed)?;
            let number = lines.iter().filter(|&&byte| byte == b'\n').count() + 1;
            let text = format!("line {number} of `{}` is unfinished; it is removed", path.display());
            paint::line(Word::Note, &text);
        }
        Ok((RowFile { file, path: path.to_owned(), has_call: false, is_new }, results))
    }

    /// Appends a row by one write, and flushes it to the disk.
    fn append(&mut self, call: &Call, row: &ResultRow) -> io::Result<()> {
        let mut lines = Vec::new();
        if !self.has_call {
            write_call(&mut lines, call)?;
        }
        write_row(&mut lines, row)?;
        self.file.write_all(&lines)?;
        self.file.sync_data()?;
        if self.is_new && !self.has_call {
            staged::sync_folder(staged::folder_of(&self.path))?;
        }
        self.has_call = true;
        Ok(())
    }
}

impl Drop for RowFile {
    /// Removes a file that this call made and wrote no rows to.
    fn drop(&mut self) {
        if self.is_new && !self.has_call {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Journal {
    /// A journal of a call on a device, of the working tree's commit unless one is named.
    pub fn new(device: String, ordinal: Option<u32>, commit: Option<String>) -> Journal {
        let telemetry = Telemetry::of(&device, ordinal);
        let call = call_of(device, &telemetry, commit);
        Journal {
            call,
            telemetry,
            rows: RefCell::default(),
            before: Vec::new(),
            file: None,
            until: None,
            left_out: Cell::new(0),
            told: false,
            done: Cell::new(0),
            expected: Cell::new(0),
            bar: ItemBar::new("measuring", 0),
        }
    }

    /// Sets whether each shape and each row is announced on standard error. With --quiet none is.
    pub fn told(self, told: bool) -> Journal {
        Journal { told: told && paint::level() > OutputLevel::Quiet, ..self }
    }

    /// Continues a file: its rows of the same device, driver and commit are not measured again, new
    /// rows are appended.
    pub fn resume(mut self, path: &Path) -> Result<Journal, Failure> {
        let (file, results) = RowFile::open(path)?;
        let of = |call: &Call| (call.device.clone(), call.commit.clone(), call.driver.clone());
        let same = |call: &Call| of(call) == of(&self.call);
        let rows = results.rows.iter().filter(|row| same(results.call(row)));
        self.before = rows.map(|(_, row)| row.clone()).collect();
        self.file = Some(RefCell::new(file));
        Ok(self)
    }

    /// Sets a time after which no measurement begins.
    pub fn within(self, budget: Option<Duration>) -> Journal {
        Journal { until: budget.map(|budget| Instant::now() + budget), ..self }
    }

    /// Expects `rows` more rows: the progress bar counts them as they are measured or skipped.
    pub fn expect(&self, rows: usize) {
        self.expected.set(self.expected.get() + rows);
    }

    /// Rows that are measured or skipped, and rows that are expected.
    pub fn progress(&self) -> (usize, usize) {
        (self.done.get(), self.expected.get())
    }

    /// Counts rows that are measured or skipped.
    fn advance(&self, rows: usize) {
        self.done.set(self.done.get() + rows);
        let (done, expected) = self.progress();
        if expected > 0 {
            self.bar.show(done.min(expected), expected);
        }
    }

    /// Hides the progress bar while `print` writes to the terminal.
    pub fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// Removes the progress bar.
    pub fn finish(&self) {
        self.bar.clear();
    }

    /// Whether to skip a shape: the file has `rows` of our rows of it, or the time is over.
    pub fn skips(&self, suite: &str, shape: &[(&str, u64)], rows: usize) -> bool {
        if self.before.iter().filter(|row| is_of(row, suite, shape)).count() >= rows {
            self.advance(rows);
            return true;
        }
        let over = self.until.is_some_and(|until| Instant::now() >= until);
        self.left_out.set(self.left_out.get() + usize::from(over));
        if over {
            self.advance(rows);
        } else if self.told {
            let shape: Vec<String> = shape.iter().map(|(name, extent)| format!("{name}={extent}")).collect();
            let _ = self.suspend(|| writeln!(io::stderr(), "to measure: {suite} {}", shape.join(" ")));
        }
        over
    }

    /// The last of our rows of a suite and shape that the file had before and `test` accepts.
    pub fn before(&self, suite: &str, shape: &[(&str, u64)], test: impl Fn(&ResultRow) -> bool) -> Option<&ResultRow> {
        self.before.iter().rev().find(|row| is_of(row, suite, shape) && test(row))
    }

    /// The number of shapes that the time was too short for.
    pub fn left_out(&self) -> usize {
        self.left_out.get()
    }

    /// Keeps a row, and appends it to the file if there is one.
    pub fn keep(&self, row: ResultRow) -> io::Result<()> {
        if let Some(file) = &self.file {
            file.borrow_mut().append(&self.call, &row)?;
        }
        if self.told {
            let us = row.median_us.map_or(String::new(), |us| format!(": {us:.2} us"));
            let line = format!("measured: {} {} {}{us}", row.suite, row.shape_line(), row.variant);
            let _ = self.suspend(|| writeln!(io::stderr(), "{line}"));
        }
        self.advance(1);
        self.rows.borrow_mut().push(row);
        Ok(())
    }

    /// The rows of this call.
    pub fn rows(&self) -> Vec<ResultRow> {
        self.rows.borrow().clone()
    }
}

/// Whether a row is ours, of a suite and a shape.
fn is_of(row: &ResultRow, suite: &str, shape: &[(&str, u64)]) -> bool {
    row.suite == suite
        && row.who == OURS
        && row.shape.len() == shape.len()
        && shape.iter().all(|(name, extent)| row.shape.get(*name) == Some(extent))
}

/// Describes this call of the program on a device, for rows that are written all at once.
pub fn this_call(device: String, ordinal: Option<u32>) -> Call {
    let telemetry = Telemetry::of(&device, ordinal);
    call_of(device, &telemetry, None)
}

/// Describes this call of the program: what all its rows share.
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

/// The state of the working tree by git; `None` outside one, or without git.
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

    fn row(n: u64) -> ResultRow {
        let shape = [("n".to_owned(), n)].into();
        ResultRow { suite: "gemv".into(), who: OURS.into(), shape, samples_us: vec![2.0, 1.0], ..ResultRow::default() }
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

    /// A call that ends by itself ends at 100 %: every expected row is measured, was measured
    /// before, or is left out.
    #[test]
    fn measured_skipped_and_left_out_rows_count_as_progress() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.jsonl");
        journal("aaa").resume(&path).expect("opens").keep(row(8)).expect("writes");
        let journal = journal("aaa").resume(&path).expect("opens");
        journal.expect(3);
        journal.expect(1);
        assert_eq!(journal.progress(), (0, 4));
        assert!(journal.skips("gemv", &[("n", 8)], 1));
        assert_eq!(journal.progress(), (1, 4), "the file had it");
        assert!(!journal.skips("gemv", &[("n", 16)], 2));
        assert_eq!(journal.progress(), (1, 4), "a shape that begins is not done");
        journal.keep(row(16)).expect("writes");
        journal.keep(row(16)).expect("writes");
        assert_eq!(journal.progress(), (3, 4));
        let journal = journal.within(Some(Duration::ZERO));
        assert!(journal.skips("gemv", &[("n", 32)], 1));
        assert_eq!(journal.progress(), (4, 4), "there was no time for it");
    }
}
