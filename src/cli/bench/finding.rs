//! The row of one shape of a suite, and the check of its error against a limit.

use super::timing::Times;
use crate::cli::Failure;
use crate::cli::bench::error::BenchError;
use crate::results::{OURS, ResultRow, Summary};

/// Builds a row of ours: times, bytes that must move, operations, and the relative error.
pub fn row(suite: &str, shape: &[(&str, u64)], times: Times, [bytes, operations]: [u64; 2], error: f64) -> ResultRow {
    let shape = shape.iter().map(|&(name, extent)| (name.to_owned(), extent)).collect();
    let found =
        ResultRow { suite: suite.into(), who: OURS.into(), shape, samples_us: times.samples, ..ResultRow::default() };
    let summary = Summary::of(&found);
    ResultRow {
        median_us: summary.map(|summary| summary.median),
        best_us: summary.map(|summary| summary.best),
        bytes: Some(bytes),
        operations: (operations > 0).then_some(operations),
        error: Some(error),
        ..found
    }
}

/// Fails if the error exceeds the limit or is NaN.
pub fn check(row: ResultRow, limit: f64) -> Result<ResultRow, Failure> {
    match row.error {
        Some(error) if error <= limit => Ok(row),
        error => {
            let name = format!("{} {} {}", row.suite, row.shape_line(), row.variant);
            Err(BenchError::Wrong { row: name, error: error.unwrap_or(f64::NAN), limit }.into())
        }
    }
}
