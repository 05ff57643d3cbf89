//! Reading and writing results: a file of JSON lines, or a folder of such files.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use super::row::OutOfRange;
use super::{Call, ResultRow};
use crate::input::{self, InputError};

/// Most bytes of a file of results.
const LIMIT: u64 = 256 << 20;

/// Error of reading results.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message names every field")]
pub enum ResultsError {
    #[error("results `{}` cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("results `{}` have more than {LIMIT} bytes, the most that are read of a file; split it", path.display())]
    Long { path: PathBuf },
    #[error("line {line} of `{file}` is neither a call nor a row; docs/dashboard.md has the schema")]
    Line {
        file: String,
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {line} of `{file}`: `{}` is {:e}, expected {}", out.field, out.value, out.expected)]
    Range { file: String, line: usize, out: OutOfRange },
    #[error("`{}` has no row of results; give a folder of .jsonl files that `bench --out` wrote", path.display())]
    Empty { path: PathBuf },
}

/// Calls and their rows, read from files.
///
/// ```
/// use tilewright::results::Results;
/// let text = r#"{"call": {"id": "a", "date": "2026-01-01", "device": "D", "command": "c"}}
/// {"suite": "gemv", "who": "tilewright", "shape": {"n": 8}, "samples_us": [2.0, 3.0, 2.5]}"#;
/// let mut results = Results::default();
/// results.add(text, "a.jsonl").unwrap();
/// assert_eq!(results.call(&results.rows[0]).device, "D");
/// assert_eq!(results.rows[0].1.samples_us.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// Calls in the order in which they were read.
    pub calls: Vec<Call>,
    /// Rows, each with the index of its call.
    pub rows: Vec<(usize, ResultRow)>,
    /// Index of a call by its id and source.
    index: HashMap<(String, Option<String>), usize>,
}

impl Results {
    /// Reads a file, or all `.jsonl` files of a folder in the order of their names.
    ///
    /// # Errors
    /// If a file cannot be read, a line is neither a call nor a row, a number is out of range, or
    /// there is no row.
    pub fn open(path: &Path) -> Result<Results, ResultsError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ResultsError::Read { path, source }
        };
        let mut files = Vec::new();
        if path.is_dir() {
            for entry in fs::read_dir(path).map_err(failed(path))? {
                let file = entry.map_err(failed(path))?.path();
                if file.extension().is_some_and(|extension| extension == "jsonl") {
                    files.push(file);
                }
            }
            files.sort();
        } else {
            files.push(path.to_owned());
        }
        let mut results = Results::default();
        for file in files {
            results.add_file(&file)?;
        }
        if results.rows.is_empty() {
            return Err(ResultsError::Empty { path: path.to_owned() });
        }
        Ok(results)
    }

    /// Adds the rows of a file, which may be empty.
    ///
    /// # Errors
    /// If it cannot be read or has more than 256 MiB, a line is neither a call nor a row, or a
    /// number is out of range.
    pub fn add_file(&mut self, path: &Path) -> Result<(), ResultsError> {
        let text = input::read(path, LIMIT).map_err(|error| failed(path, error))?;
        self.add(&text, &path.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Adds the lines of a file. Rows before the first call, as the peers' scripts print them, get
    /// a call named after the file.
    ///
    /// # Errors
    /// If a line is neither a call nor a row, or a number of it is out of range.
    pub fn add(&mut self, text: &str, file: &str) -> Result<(), ResultsError> {
        let mut current = None;
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let failed = |source| ResultsError::Line { file: file.to_owned(), line: at + 1, source };
            let out_of_range = |out| ResultsError::Range { file: file.to_owned(), line: at + 1, out };
            let mut value: Value = serde_json::from_str(line).map_err(failed)?;
            match value.get_mut("call").map(Value::take) {
                Some(call) => {
                    let call: Call = serde_json::from_value(call).map_err(failed)?;
                    call.check().map_err(out_of_range)?;
                    current = Some(self.enter(call));
                }
                None => {
                    let row: ResultRow = serde_json::from_value(value).map_err(failed)?;
                    row.check().map_err(out_of_range)?;
                    let unnamed = || Call { id: file.to_owned(), ..Call::default() };
                    let call = *current.get_or_insert_with(|| self.enter(unnamed()));
                    self.rows.push((call, row));
                }
            }
        }
        Ok(())
    }

    /// Returns the index of a call and adds it if it is new. A call whose rows were converted from
    /// two sources has two entries with one id, because remarks name lines of their source.
    fn enter(&mut self, call: Call) -> usize {
        *self.index.entry((call.id.clone(), call.source.clone())).or_insert_with(|| {
            self.calls.push(call);
            self.calls.len() - 1
        })
    }

    /// Returns the call of a row.
    pub fn call(&self, row: &(usize, ResultRow)) -> &Call {
        &self.calls[row.0]
    }

    /// Writes calls and rows, one JSON object per line.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut rows: Vec<Vec<&ResultRow>> = vec![Vec::new(); self.calls.len()];
        self.rows.iter().for_each(|(call, row)| rows[*call].push(row));
        for (call, rows) in self.calls.iter().zip(rows) {
            write_call(to, call)?;
            rows.into_iter().try_for_each(|row| write_row(to, row))?;
        }
        Ok(())
    }
}

/// Reads a file of results, at most 256 MiB.
#[cfg(feature = "cli")]
pub(crate) fn read_results(path: &Path) -> Result<Vec<u8>, ResultsError> {
    input::read_bytes(path, LIMIT).map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: InputError) -> ResultsError {
    let path = path.to_owned();
    match error {
        InputError::Long { .. } => ResultsError::Long { path },
        error => ResultsError::Read { path, source: error.into() },
    }
}

/// Writes the line of a call.
///
/// # Errors
/// Those of the writer.
pub fn write_call(to: &mut dyn Write, call: &Call) -> io::Result<()> {
    writeln!(to, "{}", json!({ "call": call }))
}

/// Writes the line of a row.
///
/// # Errors
/// Those of the writer.
pub fn write_row(to: &mut dyn Write, row: &ResultRow) -> io::Result<()> {
    writeln!(to, "{}", serde_json::to_string(row)?)
}
