//! A case of Mojo's and what came of computing it.

use serde_json::Value as Json;
use tilewright_layout::view::ViewError;
use tilewright_layout::{IntTuple, Layout, LayoutError};

use super::SkipReason;
use crate::algebra::{ExpressionRefusal, LayoutValue};

/// A case: the function that it calls, in that library's words, and what must come out.
#[derive(Clone, Copy)]
pub(super) struct GoldenCase<'c> {
    pub(super) name: &'c str,
    pub(super) args: &'c Json,
    pub(super) expected: &'c Json,
    pub(super) note: &'c str,
}

/// Why there is no result.
pub(super) enum Obstacle {
    /// This library refused.
    Refused(ExpressionRefusal),
    /// The conventions differ.
    Differs(SkipReason),
}

pub(super) type CaseOutcome = Result<Json, Obstacle>;

impl<'c> GoldenCase<'c> {
    pub(super) fn of(json: &'c Json) -> GoldenCase<'c> {
        let text = |name: &str| json[name].as_str().unwrap_or_default();
        GoldenCase { name: text("fn"), args: &json["args"], expected: &json["expected"], note: text("note") }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.args.get(name).is_some()
    }

    pub(super) fn value(&self, name: &str) -> Result<LayoutValue, Obstacle> {
        Ok(LayoutValue::from_json(&self.args[name])?)
    }

    pub(super) fn tuple(&self, name: &str) -> Result<IntTuple, Obstacle> {
        Ok(self.value(name)?.tuple()?)
    }

    pub(super) fn layout(&self, name: &str) -> Result<Layout, Obstacle> {
        Ok(self.value(name)?.layout()?)
    }

    pub(super) fn int(&self, name: &str) -> Result<i64, Obstacle> {
        Ok(self.value(name)?.int()?)
    }

    pub(super) fn index(&self, name: &str) -> Result<usize, Obstacle> {
        Ok(self.value(name)?.index()?)
    }

    /// The integers of a coordinate, as indices.
    pub(super) fn indices(&self, name: &str) -> Result<Vec<usize>, Obstacle> {
        Ok(indices(&self.tuple(name)?)?)
    }
}

/// The integers of a tuple, none below 0.
pub(super) fn indices(tuple: &IntTuple) -> Result<Vec<usize>, ExpressionRefusal> {
    let index = |&value| usize::try_from(value).map_err(|_| ExpressionRefusal::Negative { value });
    tuple.values().iter().map(index).collect()
}

/// The integers in a text such as `4,4`; other parts are skipped.
pub(super) fn numbers(text: &str) -> Vec<usize> {
    text.split(',').filter_map(|number| number.trim().parse().ok()).collect()
}

/// The text between the first `open` and the last `close`.
pub(super) fn between(text: &str, open: char, close: char) -> &str {
    let inner = text.split_once(open).map_or("", |(_, rest)| rest);
    inner.rsplit_once(close).map_or("", |(inner, _)| inner)
}

impl From<ExpressionRefusal> for Obstacle {
    fn from(refusal: ExpressionRefusal) -> Obstacle {
        Obstacle::Refused(refusal)
    }
}

impl From<LayoutError> for Obstacle {
    fn from(error: LayoutError) -> Obstacle {
        Obstacle::Refused(error.into())
    }
}

impl From<ViewError> for Obstacle {
    fn from(error: ViewError) -> Obstacle {
        Obstacle::Refused(ExpressionRefusal::View(error))
    }
}
