//! Tasks and counters: what runs, and what orders it.

use serde::{Deserialize, Serialize};

use super::id::{CounterId, DeviceId, SmId, TaskId};
use super::op::Op;
use super::region::Region;

/// Most waits of one task.
pub const MAX_WAITS: usize = 8;
/// Most counters that one task signals.
pub const MAX_SIGNALS: usize = 8;

/// A unit of work that one SM does without interruption.
///
/// It starts when every wait is satisfied and the task before it in its SM's queue is done; when it
/// is done, it adds 1 to each counter in `signals`, with release semantics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Its index in [`Program::tasks`](super::Program::tasks).
    pub id: TaskId,
    /// Its display name, such as `layers.3.qkv.h2[4]`.
    pub label: String,
    /// The op that it computes.
    pub op: Op,
    /// Regions it reads: exactly the op's footprint.
    pub reads: Vec<Region>,
    /// Regions it writes: exactly the op's footprint.
    pub writes: Vec<Region>,
    /// Conditions that must hold before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// Counters that it adds 1 to when it is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<CounterId>,
    /// The SM that it must run on, where someone decided so by hand; the scheduler honours or
    /// refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm: Option<SmId>,
    /// The device that it runs on, the first where nothing is said.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub device: DeviceId,
}

/// A condition: the counter has reached the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// The counter.
    pub counter: CounterId,
    /// Signals of this step that must have arrived; at least 1.
    pub threshold: u32,
}

/// A counter in device memory. It only grows; a launch that runs many steps scales thresholds by
/// the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// Its index in [`Program::counters`](super::Program::counters).
    pub id: CounterId,
    /// Its display name.
    pub name: String,
    /// Its value before the step. Only 0 is valid: a head start would let a task start before its
    /// producers.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub init: u32,
}

fn first() -> DeviceId {
    DeviceId(0)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(device: &DeviceId) -> bool {
    device.0 == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}
