//! Numbers on the command line: each has a range, so that no sum or product of them wraps.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use thiserror::Error;

/// Most tokens of a sequence: positions are `i32`.
pub const MOST_TOKENS: u64 = i32::MAX as u64;

/// Why a text is not a number that an option takes.
#[derive(Debug, Error)]
#[error("must be {expected}")]
pub struct NumberError {
    expected: &'static str,
}

/// A count within a range.
pub fn count(range: RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

/// Tokens of a sequence or of a prompt, at least one.
pub fn tokens() -> RangedU64ValueParser<usize> {
    count(1..=MOST_TOKENS)
}

/// A number above 0, at most a billion.
pub fn positive(text: &str) -> Result<f64, NumberError> {
    let number = text.parse().ok().filter(|number: &f64| *number > 0.0 && *number <= 1e9);
    number.ok_or(NumberError { expected: "a number above 0, at most 1e9" })
}

/// Milliseconds above 0, at most a century.
pub fn milliseconds(text: &str) -> Result<f64, NumberError> {
    let error = || NumberError { expected: "a positive number of milliseconds" };
    let number: f64 = text.parse().map_err(|_| error())?;
    let time = Duration::try_from_secs_f64(number / 1e3).map_err(|_| error())?;
    if time.is_zero() || time > CENTURY { Err(error()) } else { Ok(number) }
}

/// Seconds, at most a century.
pub fn seconds(text: &str) -> Result<f64, NumberError> {
    let error = || NumberError { expected: "a number of seconds, 0 or more" };
    let number: f64 = text.parse().map_err(|_| error())?;
    let time = Duration::try_from_secs_f64(number).map_err(|_| error())?;
    if time > CENTURY { Err(error()) } else { Ok(number) }
}

/// The longest time that an option takes, so that now and that time later is a time.
pub const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A time such as 90s or 10m, at most a century.
pub fn duration(text: &str) -> Result<Duration, humantime::DurationError> {
    humantime::parse_duration(text).map(|time| time.min(CENTURY))
}
