//! The values of the expression language and of the golden cases, and how they read and print.

use std::fmt;

use serde_json::{Value as Json, json};
use tilewright_layout::{Composed, Coord, IntTuple, Layout, LayoutError, Profile, Swizzle, Swizzled, Tiler};

use super::Refusal;

/// A value: what an operation takes or gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// `_`.
    Open,
    /// Yes or no.
    Bool(bool),
    /// A word, such as `LayoutRight` or `K_SW128`.
    Word(String),
    /// A tuple: a shape, a coordinate, a tiler, or a row of results.
    List(Vec<Value>),
    /// A layout.
    Layout(Box<Layout>),
    /// A swizzle.
    Swizzle(Swizzle),
    /// A swizzled layout.
    Swizzled(Box<Swizzled>),
}

impl Value {
    /// What kind of value it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Int(_) => "an integer",
            Value::Open => "_",
            Value::Bool(_) => "a truth value",
            Value::Word(_) => "a word",
            Value::List(_) => "a tuple",
            Value::Layout(_) => "a layout",
            Value::Swizzle(_) => "a swizzle",
            Value::Swizzled(_) => "a swizzled layout",
        }
    }

    fn mismatch(&self, expected: &'static str) -> Refusal {
        Refusal::Kind { expected, found: self.kind() }
    }

    /// The integer.
    ///
    /// # Errors
    /// [`Refusal::Kind`] where it is something else; so do the methods below.
    pub fn int(&self) -> Result<i64, Refusal> {
        match self {
            Value::Int(value) => Ok(*value),
            other => Err(other.mismatch("an integer")),
        }
    }

    /// The integer as an index or a count.
    pub fn index(&self) -> Result<usize, Refusal> {
        let value = self.int()?;
        usize::try_from(value).map_err(|_| Refusal::Negative { value })
    }

    /// The layout.
    pub fn layout(&self) -> Result<Layout, Refusal> {
        match self {
            Value::Layout(layout) => Ok(**layout),
            other => Err(other.mismatch("a layout")),
        }
    }

    /// The integer or tuple of integers.
    pub fn tuple(&self) -> Result<IntTuple, Refusal> {
        match self {
            Value::Int(value) => Ok(IntTuple::int(*value)),
            Value::List(items) => Ok(IntTuple::tuple(&items.iter().map(Value::tuple).collect::<Result<Vec<_>, _>>()?)?),
            other => Err(other.mismatch("an integer or a tuple of integers")),
        }
    }

    /// The nesting of an integer or tuple.
    pub fn profile(&self) -> Result<Profile, Refusal> {
        Ok(self.tuple()?.profile())
    }

    /// The coordinate, in which `_` may stand.
    pub fn coord(&self) -> Result<Coord, Refusal> {
        match self {
            Value::Open => Ok(Coord::ALL),
            Value::List(items) => Ok(Coord::tuple(&items.iter().map(Value::coord).collect::<Result<Vec<_>, _>>()?)?),
            other => Ok(Coord::of(other.tuple()?)),
        }
    }

    /// The tiler: an extent, a layout, `_`, or a tuple of tilers.
    pub fn tiler(&self) -> Result<Tiler, Refusal> {
        match self {
            Value::Open => Ok(Tiler::KEEP),
            Value::Int(extent) => Ok(Tiler::extent(*extent)),
            Value::Layout(layout) => Ok(Tiler::layout(layout)),
            Value::List(items) => Ok(Tiler::by_mode(&items.iter().map(Value::tiler).collect::<Result<Vec<_>, _>>()?)?),
            other => Err(other.mismatch("an extent, a layout, _ or a tuple of these")),
        }
    }

    /// The swizzle, or the tuple of its three numbers.
    pub fn swizzle(&self) -> Result<Swizzle, Refusal> {
        match self {
            Value::Swizzle(swizzle) => Ok(*swizzle),
            Value::List(items) if items.len() == 3 => {
                Ok(Swizzle::new(items[0].int()?, items[1].int()?, items[2].int()?)?)
            }
            other => Err(other.mismatch("a swizzle")),
        }
    }

    /// The word.
    pub fn word(&self) -> Result<&str, Refusal> {
        match self {
            Value::Word(word) => Ok(word),
            other => Err(other.mismatch("a word")),
        }
    }

    /// Reads a value of the golden cases.
    ///
    /// # Errors
    /// [`Refusal::Json`] for a value that the schema does not have; [`Refusal::Layout`] for a
    /// layout that is none.
    pub fn from_json(json: &Json) -> Result<Value, Refusal> {
        Ok(match json {
            Json::Number(number) => {
                Value::Int(number.as_i64().ok_or_else(|| Refusal::Json { text: json.to_string() })?)
            }
            Json::Bool(truth) => Value::Bool(*truth),
            Json::String(word) if word == "_" => Value::Open,
            Json::String(word) => Value::Word(word.clone()),
            Json::Array(items) => Value::List(items.iter().map(Value::from_json).collect::<Result<_, _>>()?),
            Json::Object(fields) => {
                let field = |name: &str| fields.get(name).map(Value::from_json).transpose();
                match (field("shape")?, field("stride")?, field("swizzle")?) {
                    (Some(shape), Some(stride), None) => Layout::new(&shape.tuple()?, &stride.tuple()?)?.into(),
                    (None, None, Some(swizzle)) => Value::Swizzle(swizzle.swizzle()?),
                    _ => match (field("a")?, field("offset")?, field("b")?) {
                        (Some(a), Some(offset), Some(b)) => {
                            Swizzled::new(a.swizzle()?, offset.int()?, b.layout()?).checked()?.into()
                        }
                        _ => return Err(Refusal::Json { text: json.to_string() }),
                    },
                }
            }
            Json::Null => return Err(Refusal::Json { text: json.to_string() }),
        })
    }

    /// The value in the golden cases' schema.
    pub fn to_json(&self) -> Json {
        match self {
            Value::Int(value) => json!(value),
            Value::Open => json!("_"),
            Value::Bool(truth) => json!(truth),
            Value::Word(word) => json!(word),
            Value::List(items) => items.iter().map(Value::to_json).collect(),
            Value::Layout(layout) => {
                json!({ "shape": Value::from(layout.shape()).to_json(), "stride": Value::from(layout.stride()).to_json() })
            }
            Value::Swizzle(swizzle) => json!({ "swizzle": [swizzle.bits(), swizzle.base(), swizzle.shift()] }),
            Value::Swizzled(swizzled) => json!({
                "a": Value::Swizzle(swizzled.swizzle()).to_json(),
                "offset": swizzled.start(),
                "b": Value::from(swizzled.layout()).to_json(),
            }),
        }
    }
}

impl From<Layout> for Value {
    fn from(layout: Layout) -> Value {
        Value::Layout(Box::new(layout))
    }
}

impl From<Swizzled> for Value {
    fn from(swizzled: Swizzled) -> Value {
        Value::Swizzled(Box::new(swizzled))
    }
}

impl From<Composed> for Value {
    fn from(composed: Composed) -> Value {
        match composed {
            Composed::Plain(layout) => layout.into(),
            Composed::Swizzled(swizzled) => swizzled.into(),
        }
    }
}

impl From<IntTuple> for Value {
    fn from(tuple: IntTuple) -> Value {
        if tuple.is_int() {
            return Value::Int(tuple.values()[0]);
        }
        Value::List((0..tuple.rank()).filter_map(|i| tuple.mode(i).ok()).map(Value::from).collect())
    }
}

impl From<Vec<i64>> for Value {
    fn from(values: Vec<i64>) -> Value {
        Value::List(values.into_iter().map(Value::Int).collect())
    }
}

impl From<LayoutError> for Refusal {
    fn from(error: LayoutError) -> Refusal {
        Refusal::Layout(error)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Int(value) => write!(f, "{value}"),
            Value::Open => f.write_str("_"),
            Value::Bool(truth) => write!(f, "{truth}"),
            Value::Word(word) => f.write_str(word),
            Value::List(items) => {
                f.write_str("(")?;
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{item}")?;
                }
                f.write_str(")")
            }
            Value::Layout(layout) => write!(f, "{layout}"),
            Value::Swizzle(swizzle) => write!(f, "{swizzle}"),
            Value::Swizzled(swizzled) => write!(f, "{swizzled}"),
        }
    }
}
