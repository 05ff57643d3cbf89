//! The program: one decode step as buffers, tasks, counters and per-SM queues.
//!
//! A program is data. It is lowered once per model and batch; what changes per token (positions,
//! token ids, page tables) lives in step inputs (cells). This module does not judge programs:
//! [`crate::validate`] does, and back ends run only what it accepted.
//!
//! | file | what it holds |
//! |---|---|
//! | `id` | typed indexes |
//! | `buffer` | named arrays: weights, activations, KV pools, cells, inputs, outputs |
//! | `dtype` | element types by name, and as kernels have them |
//! | `quantised` | how a weight is quantised |
//! | `region` | boxes of indexes |
//! | `op` | the trait of ops, and an op of any type |
//! | `operand` | checked access to buffers |
//! | `footprint` | what a task does to memory |
//! | `access` | the representations of operands that device functions support |
//! | `task` | tasks, waits, counters |
//! | `stored` | the forms in which weights are stored |
//! | `json` | the versioned text form |
//!
//! May import: `oracle`, `weights`.

mod access;
mod buffer;
mod dtype;
mod footprint;
mod id;
mod json;
mod op;
mod operand;
mod quantised;
mod region;
mod stored;
mod task;

use serde::{Deserialize, Serialize};
use tilewright_codegen::target::Target;

pub use access::{Access, AccessRole, Choice, Partial, SplitAccess, SplitRead, Written};
pub use buffer::{Buffer, BufferKind, Source};
pub(crate) use dtype::float_of;
pub use footprint::{CellUse, Footprint, Paging, Role, SLOT_WORDS};
pub use id::{BufferId, CounterId, DeviceId, SmId, TaskId};
pub use json::{FORMAT, JsonError, VERSION};
pub use op::{Op, OpValue, TaskOp};
pub use operand::{Check, OperandError, Operands, index, interval, multiple, positive, same_extents};
pub use quantised::Quantised;
pub use region::{AccessKind, MAX_RANK, Region, Span};
pub use task::{Counter, MAX_SIGNALS, MAX_WAITS, Task, Wait};

/// Most devices of a program.
pub const MAX_DEVICES: usize = 64;

/// One decode step as data: buffers, counters, tasks and, once placed, a queue of tasks for each
/// SM.
///
/// A program is built by [`lower`](crate::lower::lower) or by hand, as here, and read from and
/// written to JSON (`docs/program.md`). Its fields are public, and nothing about them is
/// guaranteed: [`validate`](crate::validate::validate) judges a program, and back ends take a
/// [`Placed`](crate::validate::Placed) only.
///
/// ```
/// use tilewright_codegen::target::Target;
/// use tilewright_layout::DType;
/// use tilewright_megakernel::program::{BufferKind, Program, Region, TaskId};
/// use tilewright_megakernel::ops::Copy;
/// use tilewright_megakernel::validate::Placed;
///
/// let mut program = Program::new("one copy", Target::host(1));
/// let x = program.add_buffer("x", BufferKind::Input, DType::F32, &[1, 8]);
/// let y = program.add_buffer("y", BufferKind::Output, DType::F32, &[1, 8]);
/// let whole = |buffer| Region::whole(buffer, &[1, 8]);
/// let task = program.add_task("copy", Copy { src: whole(x), dst: whole(y) }, vec![], vec![])?;
/// program.queues = Some(vec![vec![task]]);
///
/// let again = Program::from_json(&program.to_json()?)?;
/// assert_eq!(again, program);
/// assert_eq!(Placed::new(again)?.queues(), [[TaskId(0)]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// A display name: model and batch.
    pub name: String,
    /// The device it is made for.
    pub target: Target,
    /// The number of devices that it runs on, 1 by default.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub devices: usize,
    /// All arrays; `buffers[i].id == i`.
    pub buffers: Vec<Buffer>,
    /// All counters; `counters[i].id == i`.
    pub counters: Vec<Counter>,
    /// All tasks; `tasks[i].id == i`.
    pub tasks: Vec<Task>,
    /// The order of work on each SM, `target.sms` of each device, every task in exactly one; `None`
    /// before scheduling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<Vec<TaskId>>>,
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(devices: &usize) -> bool {
    *devices == 1
}

impl Program {
    /// The SMs of all devices: as many queues has the program when it is placed.
    pub fn all_sms(&self) -> usize {
        self.target.sms.saturating_mul(self.devices)
    }

    /// The SMs of a device among those of all.
    pub fn sms_of(&self, device: DeviceId) -> std::ops::Range<usize> {
        let first = device.index().saturating_mul(self.target.sms);
        first..first.saturating_add(self.target.sms)
    }

    /// An empty program for a device.
    pub fn new(name: impl Into<String>, target: Target) -> Program {
        let buffers = Vec::new();
        let counters = Vec::new();
        let tasks = Vec::new();
        Program { name: name.into(), target, devices: 1, buffers, counters, tasks, queues: None }
    }

    /// The buffer of that name.
    pub fn buffer_named(&self, name: &str) -> Option<&Buffer> {
        self.buffers.iter().find(|b| b.name == name)
    }

    /// Adds a buffer and gives its id.
    pub fn add_buffer(
        &mut self,
        name: impl Into<String>,
        kind: BufferKind,
        dtype: tilewright_layout::DType,
        shape: &[usize],
    ) -> BufferId {
        let id = BufferId::from(self.buffers.len());
        let name = name.into();
        let shape = shape.to_vec();
        self.buffers.push(Buffer {
            id,
            name,
            kind,
            dtype,
            shape,
            source: None,
            quantised: None,
            scale: None,
            offset: None,
            multiplier: None,
            arena: None,
            device: None,
        });
        id
    }

    /// Adds a counter and gives its id.
    pub fn add_counter(&mut self, name: impl Into<String>) -> CounterId {
        let id = CounterId::from(self.counters.len());
        self.counters.push(Counter { id, name: name.into(), init: 0 });
        id
    }

    /// Adds a task whose regions are the op's footprint, and gives its id.
    ///
    /// # Errors
    /// If an operand of the op is invalid.
    pub fn add_task(
        &mut self,
        label: impl Into<String>,
        op: impl Into<Op>,
        waits: Vec<Wait>,
        signals: Vec<CounterId>,
    ) -> Result<TaskId, OperandError> {
        let id = TaskId::from(self.tasks.len());
        let op = op.into();
        let Footprint { reads, writes, .. } = op.footprint(&Operands::new(&self.buffers))?;
        self.tasks.push(Task {
            id,
            label: label.into(),
            op,
            reads,
            writes,
            waits,
            signals,
            sm: None,
            device: DeviceId(0),
        });
        Ok(id)
    }
}
