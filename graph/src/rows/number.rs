//! Constants of operators, which are compared bit for bit.

use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use crate::dim::{Dim, ExtentError, ModelShape};

/// A constant of an operator. Equal means the same bits, so that operators can be compared and
/// hashed.
/// JSON has it as text, because numbers of JSON are finite.
///
/// ```
/// use tilewright_graph::rows::Num;
/// let text = serde_json::to_string(&Num(f64::NEG_INFINITY))?;
/// assert_eq!((text.as_str(), serde_json::from_str::<Num>(&text)?), (r#""-inf""#, Num(f64::NEG_INFINITY)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Num(pub f64);

impl From<Num> for String {
    fn from(number: Num) -> String {
        number.to_string()
    }
}

impl TryFrom<String> for Num {
    type Error = std::num::ParseFloatError;

    fn try_from(text: String) -> Result<Num, Self::Error> {
        text.parse().map(Num)
    }
}

impl PartialEq for Num {
    fn eq(&self, other: &Num) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Num {}

impl Hash for Num {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A factor: a number, or one that follows from the model.
///
/// ```
/// use tilewright_graph::{dim::{Dim, ModelShape}, rows::Scale};
/// let model = ModelShape { kv_heads: 1, group: 4, head_dim: 64, block_tokens: 16 };
/// assert_eq!(Scale::inverse_root(Dim::HEAD_DIM).bind(&model), Ok(0.125));
/// assert_eq!(Scale::from(0.5).bind(&model), Ok(0.5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// The number.
    Number(Num),
    /// The reciprocal root of the extent.
    InverseRoot(Dim),
}

impl Scale {
    /// The reciprocal root of an extent, as attention scales by its head's elements.
    pub const fn inverse_root(dim: Dim) -> Scale {
        Scale::InverseRoot(dim)
    }

    /// The number in a model.
    ///
    /// # Errors
    /// As [`Dim::bind`].
    pub fn bind(self, model: &ModelShape) -> Result<f64, ExtentError> {
        match self {
            Scale::Number(Num(number)) => Ok(number),
            Scale::InverseRoot(dim) => Ok(1.0 / (dim.bind(model)? as f64).sqrt()),
        }
    }
}

impl From<f64> for Scale {
    fn from(number: f64) -> Scale {
        Scale::Number(Num(number))
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scale::Number(number) => number.fmt(f),
            Scale::InverseRoot(dim) => write!(f, "1/√{dim}"),
        }
    }
}
