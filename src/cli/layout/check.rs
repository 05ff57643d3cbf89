//! Running golden cases: one JSON object a line, an operation with its arguments and what must come
//! out.
//!
//! A case has `id`, `op`, `args`, and one of:
//! * `out`: the result must equal it;
//! * `error`: the call must be refused;
//! * `out` with `violates`: the recorded result breaks the operation's own definition, so the call
//!   must be refused, or give another result that keeps the definition;
//! * `error` with `out` and `because`: the recorded library refuses the call, and this one gives
//!   `out`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde_json::{Value as Json, json};
use thiserror::Error;

use super::fragment_cases::fragment_case;
use super::{SkipReason, mojo, quirk};
use crate::algebra::{ExpressionRefusal, LayoutValue, apply, shared_memory as tile_of};
use crate::cli::layout::verdict::Verdict;
use crate::input;

/// The number of failures that the report keeps.
const KEPT: usize = 10;

/// The most bytes of a file of cases, and of one of its lines.
const LONGEST_FILE: u64 = 64 << 20;
const LONGEST_LINE: u64 = 1 << 20;

/// The longest line about a failure, in characters.
const LONGEST: usize = 400;

/// Why a file of golden cases could not be read.
#[derive(Debug, Error)]
pub enum CheckError {
    /// The file cannot be opened or read.
    #[error("cannot read {path}")]
    Io {
        /// The file.
        path: String,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A file or a line beyond what golden cases need, such as one without an end.
    #[error("{path} has more than {limit} bytes {part}; split the file")]
    TooLong {
        /// The file.
        path: String,
        /// The file, or the line.
        part: String,
        /// The limit.
        limit: u64,
    },
    /// A line is not JSON, or not a case.
    #[error("{path}, line {line}: {reason}")]
    Malformed {
        /// The file.
        path: String,
        /// The line, counted from 1.
        line: usize,
        /// The defect.
        reason: String,
    },
}

/// The outcome of a file's cases.
#[derive(Debug, Default)]
pub struct Tally {
    /// Cases that hold.
    pub passed: usize,
    /// Cases that do not.
    pub failed: usize,
    /// Cases of a convention that this algebra does not share: how many for each reason.
    pub skipped: BTreeMap<SkipReason, usize>,
    /// The first failures, one line each.
    pub failures: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        for (reason, count) in &self.skipped {
            writeln!(f, "{count} skipped: {}: {}", reason.cases(), reason.why())?;
        }
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        let skipped: usize = self.skipped.values().sum();
        if skipped > 0 {
            write!(f, " ({skipped} of another convention skipped)")?;
        }
        Ok(())
    }
}

/// Runs every case of a file.
///
/// # Errors
/// [`CheckError`] if the file cannot be read or a line is not a case.
pub fn run(path: &Path) -> Result<Tally, CheckError> {
    let name = path.display().to_string();
    let io = |source| CheckError::Io { path: name.clone(), source };
    let mut tally = Tally::default();
    let mut lines = Lines {
        path: &name,
        file: BufReader::new(input::open(path).map_err(|error| io(error.into()))?),
        read: 0,
        number: 0,
    };
    while let Some((number, line)) = lines.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let malformed = |reason: String| CheckError::Malformed { path: name.clone(), line: number + 1, reason };
        let case: Json = serde_json::from_str(&line).map_err(|error| malformed(error.to_string()))?;
        let verdict = verdict(&case).ok_or_else(|| malformed("no golden case: `op` and `args` are missing".into()))?;
        match verdict {
            Verdict::Pass => tally.passed += 1,
            Verdict::Skip(reason) => *tally.skipped.entry(reason).or_default() += 1,
            Verdict::Fail(how) => {
                tally.failed += 1;
                if tally.failures.len() < KEPT {
                    let id = case["id"].as_str().map_or_else(|| format!("line {}", number + 1), str::to_owned);
                    tally.failures.push(shortened(&format!("{id}: {how}")));
                }
            }
        }
    }
    Ok(tally)
}

/// The lines of a file, none of them longer than memory should hold, nor all of them.
struct Lines<'p> {
    path: &'p str,
    file: BufReader<File>,
    read: u64,
    number: usize,
}

impl Lines<'_> {
    /// The next line and its number, counted from 0.
    fn next_line(&mut self) -> Result<Option<(usize, String)>, CheckError> {
        let path = || self.path.to_owned();
        let io = |source| CheckError::Io { path: path(), source };
        let mut bytes = Vec::new();
        let read = self.file.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut bytes).map_err(io)? as u64;
        self.read += read;
        if read > LONGEST_LINE {
            let part = format!("in line {}", self.number + 1);
            return Err(CheckError::TooLong { path: path(), part, limit: LONGEST_LINE });
        }
        if self.read > LONGEST_FILE {
            return Err(CheckError::TooLong { path: path(), part: "in all".into(), limit: LONGEST_FILE });
        }
        let line = String::from_utf8(bytes).map_err(|error| io(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        self.number += 1;
        Ok((read > 0).then_some((self.number - 1, line)))
    }
}

/// The text, cut to [`LONGEST`] characters.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Judges one case; `None` if the object is not a case.
pub fn verdict(case: &Json) -> Option<Verdict> {
    if case.get("fn").is_some() && case.get("expected").is_some() {
        return Some(mojo::verdict(case));
    }
    let name = case["op"].as_str()?;
    let args = case["args"].as_array()?;
    if case.get("out").is_none() && case.get("error").is_none() {
        return None;
    }
    let outcome = evaluate(name, args, case);
    Some(match (case.get("out"), case.get("error"), case.get("violates")) {
        (None, Some(_), _) => match outcome {
            Err(refusal) if !refusal.to_string().is_empty() => Verdict::Pass,
            Err(_) => Verdict::Fail(format!("{} refused without a message", call(name, args))),
            Ok(result) => Verdict::Fail(format!("{} must be refused, gave {result}", call(name, args))),
        },
        (Some(_), _, Some(_)) => match outcome {
            Err(_) => Verdict::Pass,
            Ok(result) if quirk::keeps_definition(name, args, &result) => Verdict::Pass,
            Ok(result) => Verdict::Fail(format!("{} gave {result}, which breaks its definition", call(name, args))),
        },
        (out, ..) => match outcome {
            Ok(result) if Some(&result) == out => Verdict::Pass,
            Ok(result) => Verdict::Fail(format!("{} gave {result}, expected {}", call(name, args), case["out"])),
            Err(refusal) => {
                Verdict::Fail(format!("{} was refused ({refusal}), expected {}", call(name, args), case["out"]))
            }
        },
    })
}

fn call(name: &str, args: &[Json]) -> String {
    let args: Vec<String> =
        args.iter().map(|arg| LayoutValue::from_json(arg).map_or(arg.to_string(), |v| v.to_string())).collect();
    format!("{name}({})", args.join(", "))
}

/// The result in the schema of the cases.
fn evaluate(name: &str, args: &[Json], case: &Json) -> Result<Json, ExpressionRefusal> {
    let args = args.iter().map(LayoutValue::from_json).collect::<Result<Vec<_>, _>>()?;
    match name {
        "gmma_atom" | "gmma_smem_layout" => shared_memory(name, &args, case),
        "mma_fragment" => fragment_case(name, &args, case),
        _ => Ok(apply(name, &args)?.to_json()),
    }
}

/// A shared-memory layout, with the weighted sum of its table; the table itself where the case has
/// one.
fn shared_memory(name: &str, args: &[LayoutValue], case: &Json) -> Result<Json, ExpressionRefusal> {
    let (bytes, tile) = tile_of(name, args)?;
    let mut sum = 0i64;
    for i in 0..tile.size() {
        sum = (sum + (i + 1) % 1_000_000_007 * (tile.at(i) % 1_000_000_007)) % 1_000_000_007;
    }
    let mut out = json!({
        "swizzle_bytes": LayoutValue::Swizzle(bytes).to_json(),
        "swizzle_elems": LayoutValue::Swizzle(tile.swizzle()).to_json(),
        "layout": LayoutValue::from(tile.layout()).to_json(),
        "wsum": sum,
    });
    if case["out"].get("table").is_some() {
        out["table"] = (0..tile.size()).map(|i| tile.at(i)).collect();
    }
    Ok(out)
}
