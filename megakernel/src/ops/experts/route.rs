//! The choice of experts.

use serde::{Deserialize, Serialize};
use tilewright_kernels::experts::RouteShape;
use tilewright_kernels::naive;
use tilewright_kernels::route::{GroupedRouter, RouterKind, RouterScore};
use tilewright_layout::DType;

use super::routes::{shape, slots};
use crate::oracle::{Context, Done};
use crate::program::{Access, BufferId, Check, Footprint, OperandError, Operands, Region, Span, TaskOp, positive};

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
    /// A number for each expert that is added to its score for the choice, f32 `[experts]`; of
    /// groups alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<BufferId>,
    /// Rows of the batch: all.
    pub rows: Span,
}

/// The function from logits to the weights of the chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RouteKind {
    /// The softmax over all experts.
    All,
    /// The softmax over the chosen experts.
    Chosen,
    /// The sigmoid of each logit.
    Sigmoid,
    /// The scores of groups, of which the best are kept.
    Grouped {
        /// Whether scores are softmaxes; else they are sigmoids.
        softmax: bool,
        /// Groups of experts of one size: a power of two up to 32, of two experts or more.
        groups: u32,
        /// Groups that are kept.
        kept: u32,
        /// Whether the chosen weights are divided by their sum.
        renormalise: bool,
        /// The factor of the weights, applied last.
        scale: f32,
    },
}

impl Route {
    /// The router of the kernels that computes it.
    ///
    /// ```
    /// use tilewright_kernels::route::RouterKind;
    /// use tilewright_megakernel::{ops::{Route, RouteKind}, program::{BufferId, Span}};
    /// let [logits, routes] = [0, 1].map(BufferId);
    /// let (kind, rows) = (RouteKind::Chosen, Span::all(2));
    /// let route = Route { logits, routes, chosen: 8, kind, correction: None, rows };
    /// assert_eq!(route.router(), RouterKind::TopKThenSoftmax);
    /// ```
    pub fn router(&self) -> RouterKind {
        match self.kind {
            RouteKind::All => RouterKind::SoftmaxThenTopK { renormalise: false },
            RouteKind::Chosen => RouterKind::TopKThenSoftmax,
            RouteKind::Sigmoid => RouterKind::Grouped(GroupedRouter {
                score: RouterScore::Sigmoid,
                corrected: false,
                groups: 1,
                kept: 1,
                renormalise: false,
                scale: 1.0,
            }),
            RouteKind::Grouped { softmax, groups, kept, renormalise, scale } => RouterKind::Grouped(GroupedRouter {
                score: if softmax { RouterScore::Softmax } else { RouterScore::Sigmoid },
                corrected: self.correction.is_some(),
                groups,
                kept,
                renormalise,
                scale,
            }),
        }
    }

    /// Checks groups, and the correction; gives the region of that.
    fn corrected(&self, ops: &Operands, experts: usize) -> Check<Option<Region>> {
        let refused = |problem: String| OperandError::Refused { operand: "kind", problem };
        if let RouteKind::Grouped { groups, kept, scale, .. } = self.kind {
            let each = experts / (groups as usize).max(1);
            let divides = groups.is_power_of_two() && groups <= 32 && experts.is_multiple_of(groups as usize);
            if !divides || (groups > 1 && each < 2) || !(1..=groups).contains(&kept) {
                return Err(refused(format!(
                    "{kept} of {groups} groups of {experts} experts; groups are a power of two up to 32, of two experts or more"
                )));
            }
            if self.chosen > each * kept as usize {
                return Err(refused(format!("{} experts of {kept} groups of {each}", self.chosen)));
            }
            positive("scale", scale)?;
        } else if self.correction.is_some() {
            return Err(refused("only scores of groups are corrected".to_owned()));
        }
        let Some(correction) = self.correction else { return Ok(None) };
        ops.exactly("correction", correction, DType::F32, [experts])?;
        Ok(Some(Region::new(correction, &[Span::all(experts)])))
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
        let mut reads = vec![whole(self.logits, extents)];
        reads.extend(self.corrected(ops, experts)?);
        Ok(Footprint::new(reads, vec![whole(self.routes, table)]))
    }

    fn oracle(&self, on: &Context) -> Done {
        let [rows, experts] = on.shape(self.logits)?;
        let shape = RouteShape { rows: rows as u32, experts: experts as u32, chosen: self.chosen as u32 };
        let logits = on.read(self.logits, 0, rows * experts)?;
        let logits: Vec<f64> = logits.into_iter().map(f64::from).collect();
        let bias = match self.correction {
            Some(correction) => on.read(correction, 0, experts)?.into_iter().map(f64::from).collect(),
            None => Vec::new(),
        };
        let table = naive::route_table(self.router(), &logits, &bias, shape);
        let table: Vec<f32> = table.into_iter().map(|x| if x.is_nan() { 0.0 } else { x as f32 }).collect();
        on.write(self.routes, 0, &table)
    }

    fn accesses(&self) -> Vec<Access> {
        let all = [Access::input(self.logits).flagged(), Access::output(self.routes).flagged()];
        all.into_iter().chain(Access::weights(self.correction)).collect()
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
