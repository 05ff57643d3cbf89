//! The cases of Mojo's layout tests that share a convention with this algebra.
//!
//! A case names a function of Mojo's library; the files of this folder map each to its counterpart
//! here. A case without a counterpart, or whose counterpart has another meaning, is skipped, for a
//! [`SkipReason`].

mod case;
mod copies;
mod functions;
mod iterators;
mod reason;
mod slices;
mod tensor;
mod tuples;
mod views;

use serde_json::Value as Json;

use crate::cli::layout::verdict::Verdict;
use case::{CaseOutcome, GoldenCase, Obstacle};

pub use reason::SkipReason;

/// Judges a case, or skips one whose convention differs.
pub(super) fn verdict(case: &Json) -> Verdict {
    let case = GoldenCase::of(case);
    let call = || format!("{}{}", case.name, case.args);
    match found(&case) {
        Ok(found) if same(&found, case.expected) => Verdict::Pass,
        Ok(found) => Verdict::Fail(format!("{} gave {found}, expected {}", call(), case.expected)),
        Err(Obstacle::Differs(reason)) => Verdict::Skip(reason),
        Err(Obstacle::Refused(refusal)) => {
            Verdict::Fail(format!("{} was refused ({refusal}), expected {}", call(), case.expected))
        }
    }
}

/// The result of this library for a case.
fn found(case: &GoldenCase<'_>) -> CaseOutcome {
    // A text shows any integer; elsewhere -1 stands for a number that is known at run time only.
    if !case.name.starts_with("String(") && (unknown(case.args) || unknown(case.expected)) {
        return Err(Obstacle::Differs(SkipReason::Unknown));
    }
    for table in [
        functions::counterpart,
        tuples::counterpart,
        slices::counterpart,
        iterators::counterpart,
        copies::counterpart,
        views::counterpart,
    ] {
        if let Some(outcome) = table(case) {
            return outcome;
        }
    }
    Err(Obstacle::Differs(SkipReason::NoCounterpart))
}

/// Whether a shape, stride or tuple has -1 in it. Next to the values of run time, a static layout
/// may.
fn unknown(json: &Json) -> bool {
    match json {
        Json::Array(items) => items.iter().any(unknown),
        Json::Object(fields) => fields.iter().any(|(name, field)| {
            let numbers = ["shape", "stride", "layout", "t"].contains(&name.as_str());
            (numbers && contains(field, -1)) || (name != "static_layout" && unknown(field))
        }),
        _ => false,
    }
}

fn contains(json: &Json, value: i64) -> bool {
    match json {
        Json::Array(items) => items.iter().any(|item| contains(item, value)),
        Json::Object(fields) => fields.values().any(|field| contains(field, value)),
        other => other.as_i64() == Some(value),
    }
}

/// Equality of that library: a tuple of one is its element. A stride over one element means nothing
/// and is not compared.
fn same(found: &Json, expected: &Json) -> bool {
    match (found, expected) {
        (Json::Object(_), Json::Object(_)) if found.get("stride").is_some() && expected.get("stride").is_some() => {
            same(&found["shape"], &expected["shape"])
                && same(
                    &effective(&found["shape"], &found["stride"]),
                    &effective(&expected["shape"], &expected["stride"]),
                )
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Json::Array(a), b) if a.len() == 1 => same(&a[0], b),
        (a, Json::Array(b)) if b.len() == 1 => same(a, &b[0]),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// The strides, with 0 where the extent is 1.
fn effective(shape: &Json, stride: &Json) -> Json {
    match (shape, stride) {
        (Json::Array(shape), Json::Array(stride)) => shape.iter().zip(stride).map(|(s, d)| effective(s, d)).collect(),
        (extent, _) if extent.as_i64() == Some(1) => Json::from(0),
        (_, stride) => stride.clone(),
    }
}
