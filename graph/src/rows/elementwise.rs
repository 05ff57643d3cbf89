//! Functions of one element of each operand.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{InnerAxis, Num};

/// The result of a comparison that does not hold. Finite, so that a sum of it is not NaN.
pub const REFUSED: f64 = -1e30;

/// An operator of one operand. Constants are in the order of the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unary {
    /// The element. It gives a value of a block what an operator on all blocks takes.
    Copy,
    /// `x` where `x ≥ α`, else `β`.
    Relu(Num, Num),
    /// `1 / (1 + e^(β·x + α))`; the usual one has α = 0, β = −1.
    Sigmoid(Num, Num),
    /// `x / (1 + e^(β·x + α))`.
    Silu(Num, Num),
    /// `β·x + α`.
    Affine(Num, Num),
    /// The magnitude.
    Abs,
    /// The natural logarithm.
    Log,
    /// e to the power.
    Exp,
}

/// The relation that a comparison of two elements tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "a variant is its comparison")]
pub enum Comparison {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// An operator of two operands. An extent of 1 broadcasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binary {
    /// The larger; the other one where one is NaN.
    Maximum,
    /// The smaller; the other one where one is NaN.
    Minimum,
    /// The product.
    Multiply,
    /// `α·x + β·y`.
    Add(Num, Num),
    /// 0 where the comparison holds, else −1e30.
    Where(Comparison),
}

/// An operator on one element of each operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Elementwise {
    /// Of one operand.
    Unary(Unary),
    /// Of two operands.
    Binary(Binary),
    /// `inside` on `[start, end)` of an axis, `outside` elsewhere, whatever the operand holds.
    MaskSlice {
        /// The axis that the range is of.
        axis: InnerAxis,
        /// First index inside.
        start: u32,
        /// First index after it.
        end: u32,
        /// The number inside.
        inside: Num,
        /// The number elsewhere.
        outside: Num,
    },
}

impl Comparison {
    /// Every comparison.
    pub const ALL: [Comparison; 6] = [
        Comparison::Equal,
        Comparison::NotEqual,
        Comparison::Greater,
        Comparison::GreaterEqual,
        Comparison::Less,
        Comparison::LessEqual,
    ];

    fn holds(self, x: f64, y: f64) -> bool {
        match self {
            Comparison::Equal => x == y,
            Comparison::NotEqual => x != y,
            Comparison::Greater => x > y,
            Comparison::GreaterEqual => x >= y,
            Comparison::Less => x < y,
            Comparison::LessEqual => x <= y,
        }
    }
}

impl Unary {
    /// The operator on an element.
    pub fn apply(self, x: f64) -> f64 {
        let logistic = |a: Num, b: Num| 1.0 / (1.0 + (b.0 * x + a.0).exp());
        match self {
            Unary::Copy => x,
            Unary::Relu(a, b) => {
                if x >= a.0 {
                    x
                } else {
                    b.0
                }
            }
            Unary::Sigmoid(a, b) => logistic(a, b),
            Unary::Silu(a, b) => x * logistic(a, b),
            Unary::Affine(a, b) => b.0 * x + a.0,
            Unary::Abs => x.abs(),
            Unary::Log => x.ln(),
            Unary::Exp => x.exp(),
        }
    }
}

impl Binary {
    /// The operator on two elements.
    pub fn apply(self, x: f64, y: f64) -> f64 {
        match self {
            Binary::Maximum => x.max(y),
            Binary::Minimum => x.min(y),
            Binary::Multiply => x * y,
            Binary::Add(a, b) => a.0 * x + b.0 * y,
            Binary::Where(comparison) => {
                if comparison.holds(x, y) {
                    0.0
                } else {
                    REFUSED
                }
            }
        }
    }

    /// Whether exchanging the operands changes nothing.
    pub fn is_commutative(self) -> bool {
        match self {
            Binary::Maximum | Binary::Minimum | Binary::Multiply => true,
            Binary::Add(a, b) => a == b,
            Binary::Where(comparison) => matches!(comparison, Comparison::Equal | Comparison::NotEqual),
        }
    }
}

impl Elementwise {
    /// The name in text forms and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Elementwise::Unary(unary) => match unary {
                Unary::Copy => "copy",
                Unary::Relu(..) => "relu",
                Unary::Sigmoid(..) => "sigmoid",
                Unary::Silu(..) => "silu",
                Unary::Affine(..) => "affine",
                Unary::Abs => "abs",
                Unary::Log => "log",
                Unary::Exp => "exp",
            },
            Elementwise::Binary(binary) => match binary {
                Binary::Maximum => "maximum",
                Binary::Minimum => "minimum",
                Binary::Multiply => "multiply",
                Binary::Add(..) => "add",
                Binary::Where(comparison) => match comparison {
                    Comparison::Equal => "where_equal",
                    Comparison::NotEqual => "where_not_equal",
                    Comparison::Greater => "where_greater",
                    Comparison::GreaterEqual => "where_greater_equal",
                    Comparison::Less => "where_less",
                    Comparison::LessEqual => "where_less_equal",
                },
            },
            Elementwise::MaskSlice { .. } => "mask_slice",
        }
    }
}

impl fmt::Display for Elementwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Elementwise::Unary(Unary::Relu(a, b) | Unary::Sigmoid(a, b) | Unary::Silu(a, b) | Unary::Affine(a, b)) => {
                write!(f, "({a}, {b})")
            }
            Elementwise::Binary(Binary::Add(a, b)) if a != Num(1.0) || b != Num(1.0) => write!(f, "({a}, {b})"),
            Elementwise::MaskSlice { axis, start, end, inside, outside } => {
                write!(f, "({axis:?} {start}..{end}: {inside}, else {outside})")
            }
            Elementwise::Unary(_) | Elementwise::Binary(_) => Ok(()),
        }
    }
}
