//! The shape that an op on rows gives, and what it asks of the model.

use std::cell::RefCell;

use thiserror::Error;

use super::{Elementwise, InnerAxis, ProductOp, Rearrange, Reduction, RowOp};
use crate::dim::{Dim, InnerShape, Need, Relation};

/// A rule of shapes that an op on rows breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RowProblem {
    /// Two shapes that do not go together.
    #[error("operand {operand} has shape {found}, which does not fit {other}: {rule}")]
    Operands {
        /// The operand.
        operand: &'static str,
        /// Its shape.
        found: InnerShape,
        /// The shape that it should go with.
        other: InnerShape,
        /// The rule.
        rule: &'static str,
    },
    /// An extent that no model has.
    #[error("shape {shape} has an extent that is 0, a fraction or too large; give whole extents of at least 1")]
    Extent {
        /// The shape.
        shape: InnerShape,
    },
    /// A range outside its axis.
    #[error("range {start}..{end} is not within the axis of {size}; give start ≤ end ≤ {size}")]
    Range {
        /// First index.
        start: u32,
        /// Index after the last.
        end: u32,
        /// The axis.
        size: Dim,
    },
    /// Neighbours that do not fill the axis.
    #[error("{every} neighbours do not divide the axis of {size}; give a divisor of at least 1")]
    Interleave {
        /// The number of neighbours.
        every: u32,
        /// The axis.
        size: Dim,
    },
}

type Shaped = Result<InnerShape, RowProblem>;

/// The shapes of an op's operands, and where it puts what it asks of the model.
pub(crate) struct RowShapes<'a> {
    pub operands: &'a [InnerShape],
    pub needs: &'a RefCell<Vec<Need>>,
}

impl RowShapes<'_> {
    fn operand(&self, index: usize) -> InnerShape {
        self.operands[index]
    }

    fn mismatch(&self, operand: &'static str, found: InnerShape, other: InnerShape, rule: &'static str) -> RowProblem {
        RowProblem::Operands { operand, found, other, rule }
    }

    /// Unifies two extents: equal ones, or a number and an extent that the model must then have.
    fn unify(&self, a: Dim, b: Dim) -> Option<Dim> {
        if a == b {
            return Some(a);
        }
        match (a.is_constant(), b.is_constant()) {
            (true, true) | (false, false) => None,
            (true, false) => {
                self.need(b, Relation::Equal, a);
                Some(a)
            }
            (false, true) => {
                self.need(a, Relation::Equal, b);
                Some(b)
            }
        }
    }

    fn broadcast(&self, a: Dim, b: Dim) -> Option<Dim> {
        match (a == Dim::ONE, b == Dim::ONE) {
            (true, _) => Some(b),
            (_, true) => Some(a),
            (false, false) => self.unify(a, b),
        }
    }

    pub fn elementwise(&self, op: Elementwise) -> Shaped {
        let x = self.operand(0);
        match op {
            Elementwise::Unary(_) => Ok(x),
            Elementwise::Binary(_) => {
                let y = self.operand(1);
                let rule = "extents must be equal, or 1 in one operand";
                let dims = [0, 1].map(|axis| self.broadcast(x.0[axis], y.0[axis]));
                match dims {
                    [Some(d0), Some(d1)] => Ok(InnerShape([d0, d1])),
                    _ => Err(self.mismatch("y", y, x, rule)),
                }
            }
            Elementwise::MaskSlice { axis, start, end, .. } => {
                let size = x.0[axis.index()];
                let last = Dim::of(end.max(1));
                if start > end || (size.is_constant() && last > size) {
                    return Err(RowProblem::Range { start, end, size });
                }
                if !size.is_constant() {
                    self.need(size, Relation::AtLeast, last);
                }
                Ok(x)
            }
        }
    }

    pub fn reduction(&self, Reduction { axis, every, .. }: Reduction) -> Shaped {
        let mut shape = self.operand(0);
        let dim = &mut shape.0[axis.index()];
        *dim = match every {
            None => Dim::ONE,
            Some(0) => return Err(RowProblem::Interleave { every: 0, size: *dim }),
            Some(every) => {
                let parts = dim.over(every);
                if !parts.is_valid() {
                    return Err(RowProblem::Interleave { every, size: *dim });
                }
                if !dim.is_constant() {
                    self.need(*dim, Relation::Multiple, Dim::of(every));
                }
                parts
            }
        };
        Ok(shape)
    }

    pub fn product(&self, product: ProductOp) -> Shaped {
        let x = self.operand(0);
        let y = self.operand(1);
        match product {
            ProductOp::Gemv => {
                let rule = "both must be one row, of as many elements; reduce D0 first, or use gemm";
                let rows = (self.unify(x.0[0], Dim::ONE), self.unify(y.0[0], Dim::ONE));
                match (rows, self.unify(x.0[1], y.0[1])) {
                    ((Some(_), Some(_)), Some(_)) => Ok(InnerShape::SCORE),
                    _ => Err(self.mismatch("y", y, x, rule)),
                }
            }
            ProductOp::Gemm => match self.unify(x.0[1], y.0[1]) {
                Some(_) => Ok(InnerShape([y.0[0], x.0[0]])),
                None => {
                    Err(self.mismatch("y", y, x, "the sum runs over D1 of both, which must be equal; transpose one"))
                }
            },
            ProductOp::LearnedQuery(_) => {
                let out = InnerShape([Dim::ONE, x.0[1]]);
                let rule = "weights have a row for each element of the query: [d0·d1, rank]";
                for (operand, weights) in [("w_q", y), ("w_k", self.operand(2))] {
                    let fits = self.unify(weights.0[0], x.elements()).and(self.unify(weights.0[1], y.0[1]));
                    if fits.is_none() {
                        return Err(self.mismatch(operand, weights, x, rule));
                    }
                }
                Ok(out)
            }
            ProductOp::Kron(axes) => {
                let dims = [0, 1].map(|axis| {
                    let a = x.0[axis];
                    let b = y.0[axis];
                    if axes[axis] { Some(a.times(b)) } else { self.broadcast(a, b) }
                });
                match dims {
                    [Some(d0), Some(d1)] => Ok(InnerShape([d0, d1])),
                    _ => {
                        Err(self.mismatch("y", y, x, "an axis outside the product must be equal, or 1 in one operand"))
                    }
                }
            }
        }
    }

    pub fn rearrange(&self, rearrange: Rearrange) -> Shaped {
        let x = self.operand(0);
        match rearrange {
            Rearrange::Transpose => Ok(InnerShape([x.0[1], x.0[0]])),
            Rearrange::Reshape(to) => match self.unify(x.elements(), to.elements()) {
                Some(_) => Ok(to),
                None => Err(self.mismatch("x", x, to, "both must have as many elements")),
            },
        }
    }

    pub fn row(&self, row: &RowOp) -> Shaped {
        let x = self.operand(0);
        if let RowOp::Conv1d(taps) = row {
            let inner = InnerShape(taps.inner().map(Dim::of));
            for axis in [InnerAxis::D0, InnerAxis::D1] {
                let d = x.0[axis.index()];
                let w = inner.0[axis.index()];
                if w != Dim::ONE && self.unify(d, w).is_none() {
                    return Err(self.mismatch("weights", inner, x, "inner extents must be those of x, or 1"));
                }
            }
        }
        Ok(x)
    }

    /// Compares a value with a declared shape. Declarations are exact: a forgotten reduction is an
    /// error, not a demand on the model.
    pub fn exactly(&self, wanted: InnerShape, rule: &'static str) -> Shaped {
        let x = self.operand(0);
        if x == wanted { Ok(wanted) } else { Err(self.mismatch("x", x, wanted, rule)) }
    }

    fn need(&self, left: Dim, relation: Relation, right: Dim) {
        self.needs.borrow_mut().push(Need { left, relation, right });
    }
}
