//! Plans of placed programs: each task is planned by its op's device function.

use super::functions::device_op;
use super::planner::Planner;
use super::record::TaskRecord;
use super::{DeviceOptions, Plan};
use crate::program::Task;
use crate::validate::Placed;
use crate::vm::Unsupported;
use crate::vm::unsupported::one_device;

impl Plan {
    /// Plans a placed program. Packets are used where the order that remains without their releases
    /// is the validator's for all other memory; elsewhere every signal releases.
    ///
    /// # Errors
    /// If the program has ops, shapes or types that the device functions do not have.
    pub fn new(placed: &Placed, options: DeviceOptions) -> Result<Plan, Unsupported> {
        if options.propose {
            one_device(placed)?;
        }
        match planned(placed, options) {
            // Without packets every signal releases and every wait acquires.
            Err(Unsupported::Unordered { .. }) if options.packets => {
                planned(placed, DeviceOptions { packets: false, ..options })
            }
            plan => plan,
        }
    }
}

fn planned(placed: &Placed, options: DeviceOptions) -> Result<Plan, Unsupported> {
    let mut planner = Planner::new(placed, options, rows(placed))?;
    let records = placed.tasks.iter().map(|task| {
        record(&mut planner, task).map_err(|source| Unsupported::Task {
            task: task.id,
            label: task.label.clone(),
            source: Box::new(source),
        })
    });
    let records = records.collect::<Result<Vec<_>, _>>()?;
    planner.finish(records)
}

/// The record of a task.
fn record(planner: &mut Planner, task: &Task) -> Result<TaskRecord, Unsupported> {
    planner.begin(task);
    let op = device_op(&task.op).ok_or(Unsupported::Op { op: task.op.name() })?;
    let planned = op.plan(planner)?;
    planner.record(task, planned)
}

/// The end of the rows of the batch.
fn rows(placed: &Placed) -> u32 {
    placed.tasks.iter().map(|task| device_op(&task.op).map_or(1, |op| op.rows().hi as u32)).max().unwrap_or(1)
}
