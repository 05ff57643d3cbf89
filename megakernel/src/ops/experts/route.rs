//! The choice of experts.

use serde::{Deserialize, Serialize};
use tilewright_kernels::experts::RouteShape;
use tilewright_kernels::naive;
use tilewright_kernels::route::{RouterKind, SigmoidRouter};
use tilewright_layout::DType;

use super::routes::{shape, slots};
use crate::oracle::{Context, Done};
use crate::program::{Access, BufferId, Check, Footprint, OperandError, Operands, Region, Span, TaskOp};

/// Chooses the experts of every row of the batch by the logits of a router: the `chosen` largest,
/// of equal ones the least expert first. Logits are in the order of [`f32::total_cmp`].
///
/// `routes` has a row for each expert that some row has chosen, in the order of experts, after a
/// first row whose first number is how many there are: the expert, and its weight for each row of
/// the batch, 0 where the row has not chosen it
/// ([`RouteTable`](tilewright_kernels::experts::RouteTable)). Rows beyond these are zeros on the
/// reference machine, and undefined on a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The router's logits, f32 `[rows, experts]`.
    pub logits: BufferId,
    /// The table of routes, f32 `[1 + slots, width]`.
    pub routes: BufferId,
    /// Experts for each row.
    pub chosen: usize,
    /// From logits to weights.
    pub kind: RouteKind,
    /// Rows of the batch: all.
    pub rows: Span,
}

/// The function from logits to the weights of the chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouteKind {
    /// The softmax over all experts.
    All,
    /// The softmax over the chosen experts.
    Chosen,
    /// The sigmoid of each logit.
    Sigmoid,
}

impl From<RouteKind> for RouterKind {
    fn from(kind: RouteKind) -> RouterKind {
        match kind {
            RouteKind::All => RouterKind::SoftmaxThenTopK { renormalise: false },
            RouteKind::Chosen => RouterKind::TopKThenSoftmax,
            RouteKind::Sigmoid => RouterKind::Sigmoid(SigmoidRouter {
                corrected: false,
                groups: 1,
                kept: 1,
                renormalise: false,
                scale: 1.0,
            }),
        }
    }
}

impl TaskOp for Route {
    fn name() -> &'static str {
        "route"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let extents @ [rows, experts] = ops.shape("logits", self.logits)?;
        ops.exactly("logits", self.logits, DType::F32, extents)?;
        all_rows(self.rows, rows)?;
        let shape = shape(rows, experts, self.chosen)?;
        slots(ops, self.routes, shape)?;
        let table = shape.table().map(|extent| extent as usize);
        let whole = |buffer, extents: [usize; 2]| Region::new(buffer, &extents.map(Span::all));
        Ok(Footprint::new(vec![whole(self.logits, extents)], vec![whole(self.routes, table)]))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [rows, experts] = on.shape(self.logits)?;
        let shape = RouteShape { rows: rows as u32, experts: experts as u32, chosen: self.chosen as u32 };
        let logits = on.read(self.logits, 0, rows * experts)?;
        let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
        let table = naive::route_table(self.kind.into(), &logits, shape);
        let table: Vec<f32> = table.into_iter().map(|x| if x.is_nan() { 0.0 } else { x as f32 }).collect();
        on.write(self.routes, 0, &table)
    }

    fn accesses(&self) -> Vec<Access> {
        vec![Access::input(self.logits).flagged(), Access::output(self.routes).flagged()]
    }
}

/// Checks that a task has all rows of the batch: experts are chosen, and read once, for all of
/// them.
pub(super) fn all_rows(found: Span, rows: usize) -> Check {
    if found == Span::all(rows) {
        Ok(())
    } else {
        Err(OperandError::Interval { name: "rows", span: found, extent: rows })
    }
}
