//! Plans of steps: each level by the launches of its op.

use super::launches::launch_op;
use super::plan::{GraphPlan, GraphTarget};
use super::planner::GraphPlanner;
use super::tuning::GraphOptions;
use crate::lower::StepPlan;
use crate::vm::Unsupported;
use crate::vm::resident::Packed;
use crate::vm::unsupported::one_device;

impl GraphPlan {
    /// Plans a step for a device.
    ///
    /// # Errors
    /// Ops, types and shapes that no launch computes.
    pub fn new(step: &StepPlan, target: GraphTarget) -> Result<GraphPlan, Unsupported> {
        GraphPlan::beside(step, target, None)
    }

    /// Plans a step beside machines that stream packed weights: products of up to 64 rows read
    /// these in place.
    ///
    /// # Errors
    /// As [`GraphPlan::new`].
    pub fn beside(step: &StepPlan, target: GraphTarget, packed: Option<&Packed>) -> Result<GraphPlan, Unsupported> {
        GraphPlan::tuned(step, target, packed, GraphOptions::default())
    }

    /// Plans a step of one device with the given settings.
    ///
    /// # Errors
    /// As [`GraphPlan::new`].
    pub fn tuned(
        step: &StepPlan,
        target: GraphTarget,
        packed: Option<&Packed>,
        options: GraphOptions<'_>,
    ) -> Result<GraphPlan, Unsupported> {
        one_device(step)?;
        GraphPlan::of_device(step, 0, target, packed, options)
    }

    /// Plans the launches of one of a step's devices. Where there are several, parts of sums are
    /// exchanged at [barriers](GraphPlan::meet): each adds the parts to a share of the
    /// rows, reading those of its peers, and stores the norm of these on all.
    /// [`GraphOptions::exchange`] sets another exchange.
    ///
    /// # Errors
    /// As [`GraphPlan::new`].
    pub fn of_device(
        step: &StepPlan,
        device: usize,
        target: GraphTarget,
        packed: Option<&Packed>,
        options: GraphOptions<'_>,
    ) -> Result<GraphPlan, Unsupported> {
        let mut planner = GraphPlanner::new(step, device, target, packed, options)?;
        planner.enter()?;
        for level in step.levels().iter().filter(|level| level.is_of(device)) {
            let row = launch_op(&level.op).ok_or(Unsupported::Launch { what: "such an op" });
            row.and_then(|row| row.launch(&mut planner))
                .map_err(|source| Unsupported::Level { level: level.name.clone(), source: Box::new(source) })?;
        }
        planner.finish()
    }
}
