//! The shape that an operator gives, and what it asks of the model.

use super::{Elementwise, FlowOp, InnerAxis, ProductOp, Rearrange, Reduction, RowOp, SourceOp};
use crate::declare::Declarations;
use crate::dim::{Dim, InnerShape, Relation};
use crate::error::FlowProblem;
use crate::op::Effect;

/// A relation that tracing could not decide.
pub type Need = (Dim, Relation, Dim);

/// The shape of an operator's value from those of its operands.
///
/// # Errors
/// [`FlowProblem`]: what the shapes break.
pub fn infer(
    op: &FlowOp,
    operands: &[InnerShape],
    declared: &Declarations,
    needs: &mut Vec<Need>,
) -> Result<InnerShape, FlowProblem> {
    let infer = Infer { op: op.name(), operands, needs };
    let shape = match op {
        FlowOp::Source(source) => of_source(*source, declared),
        FlowOp::Elementwise(op) => infer.elementwise(*op)?,
        FlowOp::Reduction(reduction) => infer.reduction(*reduction)?,
        FlowOp::Product(product) => infer.product(*product)?,
        FlowOp::Rearrange(rearrange) => infer.rearrange(*rearrange)?,
        FlowOp::Row(row) => infer.row(row)?,
        FlowOp::Effect(effect) => infer.effect(*effect, declared)?,
    };
    if shape.0.iter().all(|dim| dim.is_valid()) && shape.elements().is_valid() {
        Ok(shape)
    } else {
        Err(FlowProblem::Extent { op: op.name().into(), shape })
    }
}

fn of_source(source: SourceOp, declared: &Declarations) -> InnerShape {
    match source {
        SourceOp::Query => InnerShape([Dim::GROUP, Dim::HEAD_DIM]),
        SourceOp::Keys | SourceOp::Values => InnerShape([Dim::BLOCK, Dim::HEAD_DIM]),
        SourceOp::Positions => InnerShape::SCORE,
        SourceOp::Field(field) | SourceOp::Fill(field, _) => declared.fields[field.index()].shape,
        SourceOp::Parameter(parameter) => declared.parameters[parameter.index()].shape,
        SourceOp::Load(state) => declared.states[state.index()].shape,
    }
}

struct Infer<'a> {
    op: &'static str,
    operands: &'a [InnerShape],
    needs: &'a mut Vec<Need>,
}

impl Infer<'_> {
    fn operand(&self, index: usize) -> InnerShape {
        self.operands[index]
    }

    fn mismatch(&self, operand: &'static str, found: InnerShape, other: InnerShape, rule: &'static str) -> FlowProblem {
        FlowProblem::Operands { op: self.op, operand, found, other, rule }
    }

    /// One extent for two: equal ones, or a number and one that the model must then have.
    fn unify(&mut self, a: Dim, b: Dim) -> Option<Dim> {
        if a == b {
            return Some(a);
        }
        match (a.is_constant(), b.is_constant()) {
            (true, true) | (false, false) => None,
            (true, false) => {
                self.needs.push((b, Relation::Equal, a));
                Some(a)
            }
            (false, true) => {
                self.needs.push((a, Relation::Equal, b));
                Some(b)
            }
        }
    }

    fn broadcast(&mut self, a: Dim, b: Dim) -> Option<Dim> {
        match (a == Dim::ONE, b == Dim::ONE) {
            (true, _) => Some(b),
            (_, true) => Some(a),
            (false, false) => self.unify(a, b),
        }
    }

    fn elementwise(mut self, op: Elementwise) -> Result<InnerShape, FlowProblem> {
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
                    return Err(FlowProblem::Range { op: self.op, start, end, size });
                }
                if !size.is_constant() {
                    self.needs.push((size, Relation::AtLeast, last));
                }
                Ok(x)
            }
        }
    }

    fn reduction(self, Reduction { axis, every, .. }: Reduction) -> Result<InnerShape, FlowProblem> {
        let mut shape = self.operand(0);
        let dim = &mut shape.0[axis.index()];
        *dim = match every {
            None => Dim::ONE,
            Some(0) => return Err(FlowProblem::Interleave { op: self.op, every: 0, size: *dim }),
            Some(every) => {
                let parts = dim.over(every);
                if !parts.is_valid() {
                    return Err(FlowProblem::Interleave { op: self.op, every, size: *dim });
                }
                if !dim.is_constant() {
                    self.needs.push((*dim, Relation::Multiple, Dim::of(every)));
                }
                parts
            }
        };
        Ok(shape)
    }

    fn product(mut self, product: ProductOp) -> Result<InnerShape, FlowProblem> {
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

    fn rearrange(mut self, rearrange: Rearrange) -> Result<InnerShape, FlowProblem> {
        let x = self.operand(0);
        match rearrange {
            Rearrange::Transpose => Ok(InnerShape([x.0[1], x.0[0]])),
            Rearrange::Reshape(to) => match self.unify(x.elements(), to.elements()) {
                Some(_) => Ok(to),
                None => Err(self.mismatch("x", x, to, "both must have as many elements")),
            },
        }
    }

    fn row(mut self, row: &RowOp) -> Result<InnerShape, FlowProblem> {
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

    fn effect(self, effect: Effect, declared: &Declarations) -> Result<InnerShape, FlowProblem> {
        let x = self.operand(0);
        let (wanted, rule) = match effect {
            Effect::Select => (InnerShape::SCORE, "a selection takes one number a block; reduce D0 and D1"),
            Effect::Save(state) => (declared.states[state.index()].shape, "a state is saved in its declared shape"),
            Effect::Store(field) => (declared.fields[field.index()].shape, "a field is stored in its declared shape"),
        };
        // What is declared is exact: a forgotten reduction is an error here, no demand on the
        // model.
        if x == wanted { Ok(wanted) } else { Err(self.mismatch("x", x, wanted, rule)) }
    }
}
