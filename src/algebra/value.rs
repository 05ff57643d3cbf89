//! The values of the expression language and of the golden cases, and how they read and print.

use std::fmt;

use serde_json::{Value as Json, json};
use tilewright_layout::{Composed, Coord, IntTuple, Layout, LayoutError, Profile, Swizzle, Swizzled, Tiler};

use super::ExpressionRefusal;

/// A value: what an operation takes or gives.
#[derive(Clone, Debug, PartialEq)]
pub enum LayoutValue {
    /// An integer.
    Int(i64),
    /// `_`.
    Open,
    /// Yes or no.
    Bool(bool),
    /// A word, such as `LayoutRight` or `K_SW128`.
    Word(String),
    /// A tuple: a shape, a coordinate, a tiler, or a row of results.
    List(Vec<LayoutValue>),
    /// A layout.
    Layout(Box<Layout>),
    /// A swizzle.
    Swizzle(Swizzle),
    /// A swizzled layout.
    Swizzled(Box<Swizzled>),
}

impl LayoutValue {
    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            LayoutValue::Int(_) => "an integer",
            LayoutValue::Open => "_",
            LayoutValue::Bool(_) => "a truth value",
            LayoutValue::Word(_) => "a word",
            LayoutValue::List(_) => "a tuple",
            LayoutValue::Layout(_) => "a layout",
            LayoutValue::Swizzle(_) => "a swizzle",
            LayoutValue::Swizzled(_) => "a swizzled layout",
        }
    }

    fn mismatch(&self, expected: &'static str) -> ExpressionRefusal {
        ExpressionRefusal::Kind { expected, found: self.kind() }
    }

    /// The integer.
    ///
    /// # Errors
    /// [`ExpressionRefusal::Kind`] where it is something else; so do the methods below.
    pub fn int(&self) -> Result<i64, ExpressionRefusal> {
        match self {
            LayoutValue::Int(value) => Ok(*value),
            other => Err(other.mismatch("an integer")),
        }
    }

    /// The integer as an index or a count.
    pub fn index(&self) -> Result<usize, ExpressionRefusal> {
        let value = self.int()?;
        usize::try_from(value).map_err(|_| ExpressionRefusal::Negative { value })
    }

    /// The layout.
    pub fn layout(&self) -> Result<Layout, ExpressionRefusal> {
        match self {
            LayoutValue::Layout(layout) => Ok(**layout),
            other => Err(other.mismatch("a layout")),
        }
    }

    /// The integer or tuple of integers.
    pub fn tuple(&self) -> Result<IntTuple, ExpressionRefusal> {
        match self {
            LayoutValue::Int(value) => Ok(IntTuple::int(*value)),
            LayoutValue::List(items) => {
                Ok(IntTuple::tuple(&items.iter().map(LayoutValue::tuple).collect::<Result<Vec<_>, _>>()?)?)
            }
            other => Err(other.mismatch("an integer or a tuple of integers")),
        }
    }

    /// The nesting of an integer or tuple.
    pub fn profile(&self) -> Result<Profile, ExpressionRefusal> {
        Ok(self.tuple()?.profile())
    }

    /// The coordinate, in which `_` may stand.
    pub fn coord(&self) -> Result<Coord, ExpressionRefusal> {
        match self {
            LayoutValue::Open => Ok(Coord::ALL),
            LayoutValue::List(items) => {
                Ok(Coord::tuple(&items.iter().map(LayoutValue::coord).collect::<Result<Vec<_>, _>>()?)?)
            }
            other => Ok(Coord::of(other.tuple()?)),
        }
    }

    /// The tiler: an extent, a layout, `_`, or a tuple of tilers.
    pub fn tiler(&self) -> Result<Tiler, ExpressionRefusal> {
        match self {
            LayoutValue::Open => Ok(Tiler::KEEP),
            LayoutValue::Int(extent) => Ok(Tiler::extent(*extent)),
            LayoutValue::Layout(layout) => Ok(Tiler::layout(layout)),
            LayoutValue::List(items) => {
                Ok(Tiler::by_mode(&items.iter().map(LayoutValue::tiler).collect::<Result<Vec<_>, _>>()?)?)
            }
            other => Err(other.mismatch("an extent, a layout, _ or a tuple of these")),
        }
    }

    /// The swizzle, or the tuple of its three numbers.
    pub fn swizzle(&self) -> Result<Swizzle, ExpressionRefusal> {
        match self {
            LayoutValue::Swizzle(swizzle) => Ok(*swizzle),
            LayoutValue::List(items) if items.len() == 3 => {
                Ok(Swizzle::new(items[0].int()?, items[1].int()?, items[2].int()?)?)
            }
            other => Err(other.mismatch("a swizzle")),
        }
    }

    /// The word.
    pub fn word(&self) -> Result<&str, ExpressionRefusal> {
        match self {
            LayoutValue::Word(word) => Ok(word),
            other => Err(other.mismatch("a word")),
        }
    }

    /// Reads a value of the golden cases.
    ///
    /// # Errors
    /// [`ExpressionRefusal::Json`] for a value that the schema does not have;
    /// [`ExpressionRefusal::Layout`] for an invalid layout.
    pub fn from_json(json: &Json) -> Result<LayoutValue, ExpressionRefusal> {
        Ok(match json {
            Json::Number(number) => {
                LayoutValue::Int(number.as_i64().ok_or_else(|| ExpressionRefusal::Json { text: json.to_string() })?)
            }
            Json::Bool(truth) => LayoutValue::Bool(*truth),
            Json::String(word) if word == "_" => LayoutValue::Open,
            Json::String(word) => LayoutValue::Word(word.clone()),
            Json::Array(items) => {
                LayoutValue::List(items.iter().map(LayoutValue::from_json).collect::<Result<_, _>>()?)
            }
            Json::Object(fields) => {
                let field = |name: &str| fields.get(name).map(LayoutValue::from_json).transpose();
                match (field("shape")?, field("stride")?, field("swizzle")?) {
                    (Some(shape), Some(stride), None) => Layout::new(&shape.tuple()?, &stride.tuple()?)?.into(),
                    (None, None, Some(swizzle)) => LayoutValue::Swizzle(swizzle.swizzle()?),
                    _ => match (field("a")?, field("offset")?, field("b")?) {
                        (Some(a), Some(offset), Some(b)) => {
                            Swizzled::new(a.swizzle()?, offset.int()?, b.layout()?).checked()?.into()
                        }
                        _ => return Err(ExpressionRefusal::Json { text: json.to_string() }),
                    },
                }
            }
            Json::Null => return Err(ExpressionRefusal::Json { text: json.to_string() }),
        })
    }

    /// The value in the golden cases' schema.
    pub fn to_json(&self) -> Json {
        match self {
            LayoutValue::Int(value) => json!(value),
            LayoutValue::Open => json!("_"),
            LayoutValue::Bool(truth) => json!(truth),
            LayoutValue::Word(word) => json!(word),
            LayoutValue::List(items) => items.iter().map(LayoutValue::to_json).collect(),
            LayoutValue::Layout(layout) => {
                json!({ "shape": LayoutValue::from(layout.shape()).to_json(), "stride": LayoutValue::from(layout.stride()).to_json() })
            }
            LayoutValue::Swizzle(swizzle) => json!({ "swizzle": [swizzle.bits(), swizzle.base(), swizzle.shift()] }),
            LayoutValue::Swizzled(swizzled) => json!({
                "a": LayoutValue::Swizzle(swizzled.swizzle()).to_json(),
                "offset": swizzled.start(),
                "b": LayoutValue::from(swizzled.layout()).to_json(),
            }),
        }
    }
}

impl From<Layout> for LayoutValue {
    fn from(layout: Layout) -> LayoutValue {
        LayoutValue::Layout(Box::new(layout))
    }
}

impl From<Swizzled> for LayoutValue {
    fn from(swizzled: Swizzled) -> LayoutValue {
        LayoutValue::Swizzled(Box::new(swizzled))
    }
}

impl From<Composed> for LayoutValue {
    fn from(composed: Composed) -> LayoutValue {
        match composed {
            Composed::Plain(layout) => layout.into(),
            Composed::Swizzled(swizzled) => swizzled.into(),
        }
    }
}

impl From<IntTuple> for LayoutValue {
    fn from(tuple: IntTuple) -> LayoutValue {
        if tuple.is_int() {
            return LayoutValue::Int(tuple.values()[0]);
        }
        LayoutValue::List((0..tuple.rank()).filter_map(|i| tuple.mode(i).ok()).map(LayoutValue::from).collect())
    }
}

impl From<Vec<i64>> for LayoutValue {
    fn from(values: Vec<i64>) -> LayoutValue {
        LayoutValue::List(values.into_iter().map(LayoutValue::Int).collect())
    }
}

impl From<LayoutError> for ExpressionRefusal {
    fn from(error: LayoutError) -> ExpressionRefusal {
        ExpressionRefusal::Layout(error)
    }
}

impl fmt::Display for LayoutValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutValue::Int(value) => write!(f, "{value}"),
            LayoutValue::Open => f.write_str("_"),
            LayoutValue::Bool(truth) => write!(f, "{truth}"),
            LayoutValue::Word(word) => f.write_str(word),
            LayoutValue::List(items) => {
                f.write_str("(")?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{item}")?;
                }
                f.write_str(")")
            }
            LayoutValue::Layout(layout) => write!(f, "{layout}"),
            LayoutValue::Swizzle(swizzle) => write!(f, "{swizzle}"),
            LayoutValue::Swizzled(swizzled) => write!(f, "{swizzled}"),
        }
    }
}
