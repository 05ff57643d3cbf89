//! Extents that depend on the model: symbols, their products and exact quotients.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An extent of a value: a number times powers of the model's own extents.
///
/// * [`Dim::GROUP`] `G`: query heads that share a key head;
/// * [`Dim::HEAD_DIM`] `D`: elements of a head;
/// * [`Dim::BLOCK`] `B`: tokens of a block.
///
/// Two extents are equal when they are equal for every model. An extent that is 0, or divided by 0,
/// is not valid; what declares a shape refuses it.
///
/// ```
/// use tilewright_graph::dim::{Dim, ModelShape};
/// let halves = Dim::BLOCK.over(16).times(Dim::GROUP);
/// assert_eq!(halves.to_string(), "G·B/16");
/// assert_eq!(Dim::of(2).times(Dim::BLOCK.over(2)), Dim::BLOCK);
/// let model = ModelShape { kv_heads: 8, group: 4, head_dim: 128, block_tokens: 64 };
/// assert_eq!(halves.bind(&model), Ok(16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dim {
    times: u32,
    over: u32,
    powers: [u8; 3],
}

/// The largest number in an extent. Beyond it an extent is not valid.
const MOST: u32 = 1 << 31;
/// The largest extent in a model.
const LARGEST: u64 = 1 << 40;

impl Dim {
    /// The extent 1, which broadcasts.
    pub const ONE: Dim = Dim::of(1);
    /// Query heads that share a key head.
    pub const GROUP: Dim = Dim { times: 1, over: 1, powers: [1, 0, 0] };
    /// Elements of a head.
    pub const HEAD_DIM: Dim = Dim { times: 1, over: 1, powers: [0, 1, 0] };
    /// Tokens of a block.
    pub const BLOCK: Dim = Dim { times: 1, over: 1, powers: [0, 0, 1] };

    /// A number.
    pub const fn of(extent: u32) -> Dim {
        Dim { times: extent, over: 1, powers: [0; 3] }
    }

    /// The product.
    pub const fn times(self, other: Dim) -> Dim {
        let mut powers = self.powers;
        let mut symbol = 0;
        while symbol < 3 {
            powers[symbol] = powers[symbol].saturating_add(other.powers[symbol]);
            symbol += 1;
        }
        Dim { times: self.times.saturating_mul(other.times), over: self.over.saturating_mul(other.over), powers }
            .reduced()
    }

    /// The quotient, which must be a whole number for the model that the flow is bound to.
    pub const fn over(self, parts: u32) -> Dim {
        Dim { over: self.over.saturating_mul(parts), ..self }.reduced()
    }

    const fn reduced(self) -> Dim {
        let mut a = self.times;
        let mut b = self.over;
        while b != 0 {
            (a, b) = (b, a % b);
        }
        match (self.times.checked_div(a), self.over.checked_div(a)) {
            (Some(times), Some(over)) => Dim { times, over, ..self },
            _ => self,
        }
    }

    /// Whether some model has this extent: neither 0 nor a fraction for all of them, nor too large
    /// to write.
    pub const fn is_valid(self) -> bool {
        let fraction = self.over != 1 && self.is_constant();
        self.times != 0 && self.over != 0 && self.times <= MOST && self.over <= MOST && !fraction
    }

    /// The number, if it is the same for every model.
    pub const fn number(self) -> Option<u32> {
        if self.is_constant() && self.over == 1 { Some(self.times) } else { None }
    }

    /// Whether it depends on the tokens of a block.
    pub const fn is_of_blocks(self) -> bool {
        self.powers[2] > 0
    }

    /// Whether it is valid and in lowest terms, as every operation leaves it.
    pub(crate) fn is_reduced(self) -> bool {
        self.is_valid() && self.reduced() == self
    }

    /// Whether it is the same for every model.
    pub const fn is_constant(self) -> bool {
        self.powers[0] == 0 && self.powers[1] == 0 && self.powers[2] == 0
    }

    /// The extent in a model.
    ///
    /// # Errors
    /// [`ExtentError::Fraction`] if the model's extents do not divide; [`ExtentError::Extent`] if
    /// it is 0 or too large.
    pub fn bind(self, model: &ModelShape) -> Result<usize, ExtentError> {
        let refused = || ExtentError::Extent { dim: self, model: *model };
        let mut product = u64::from(self.times);
        for (power, extent) in self.powers.iter().zip([model.group, model.head_dim, model.block_tokens]) {
            for _ in 0..*power {
                product = product.checked_mul(extent as u64).filter(|&p| p <= LARGEST).ok_or_else(refused)?;
            }
        }
        if self.over == 0 || product == 0 {
            return Err(refused());
        }
        let over = u64::from(self.over);
        if !product.is_multiple_of(over) {
            return Err(ExtentError::Fraction { dim: self, model: *model });
        }
        usize::try_from(product / over).map_err(|_| refused())
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut factors = Vec::new();
        if self.times != 1 || self.is_constant() {
            factors.push(self.times.to_string());
        }
        for (power, name) in self.powers.iter().zip(["G", "D", "B"]) {
            factors.extend(std::iter::repeat_n(name.to_string(), usize::from(*power)));
        }
        f.write_str(&factors.join("·"))?;
        if self.over == 1 { Ok(()) } else { write!(f, "/{}", self.over) }
    }
}

/// The two inner extents `[d0, d1]` of a value; its rows are what the format says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InnerShape(pub [Dim; 2]);

impl InnerShape {
    /// A single number per row: the operand of a selection.
    pub const SCORE: InnerShape = InnerShape([Dim::ONE, Dim::ONE]);

    /// The number of elements of a row.
    pub const fn elements(self) -> Dim {
        self.0[0].times(self.0[1])
    }

    /// The extents in a model.
    ///
    /// # Errors
    /// As [`Dim::bind`], for each extent and for the elements of a row.
    pub fn bind(self, model: &ModelShape) -> Result<[usize; 2], ExtentError> {
        let extents = [self.0[0].bind(model)?, self.0[1].bind(model)?];
        let elements = (extents[0] as u64).checked_mul(extents[1] as u64);
        let refused = || ExtentError::Extent { dim: self.elements(), model: *model };
        elements.filter(|&elements| elements <= LARGEST).map(|_| extents).ok_or_else(refused)
    }
}

impl fmt::Display for InnerShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.0[0], self.0[1])
    }
}

impl fmt::Debug for InnerShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A required relation between two extents in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Both extents are the same number.
    Equal,
    /// The left extent is a whole multiple of the right one.
    Multiple,
    /// The left extent is at least the right one.
    AtLeast,
}

/// Two extents and their required relation in a model, which types alone could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The extent on the left.
    pub left: Dim,
    /// The required relation.
    pub relation: Relation,
    /// The extent on the right.
    pub right: Dim,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relation = match self.relation {
            Relation::Equal => "=",
            Relation::Multiple => "a multiple of",
            Relation::AtLeast => "at least",
        };
        write!(f, "{} {relation} {}", self.left, self.right)
    }
}

/// Heads and blocks of one attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelShape {
    /// Key heads. Each selects its own blocks.
    pub kv_heads: usize,
    /// Query heads that share a key head.
    pub group: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Tokens of a block, the unit of a selection.
    pub block_tokens: usize,
}

impl fmt::Display for ModelShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ModelShape { kv_heads, group, head_dim, block_tokens } = self;
        write!(f, "G = {group}, D = {head_dim}, B = {block_tokens}, {kv_heads} key heads")
    }
}

/// Why an extent has no number in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExtentError {
    /// An extent that is 0 or too large in this model.
    #[error("extent {dim} is 0 or too large for a model of {model}; choose other sizes")]
    Extent {
        /// The extent.
        dim: Dim,
        /// The model.
        model: ModelShape,
    },
    /// An extent that is not a whole number in this model.
    #[error("extent {dim} is not a whole number for a model of {model}; choose sizes that divide")]
    Fraction {
        /// The extent.
        dim: Dim,
        /// The model.
        model: ModelShape,
    },
}
