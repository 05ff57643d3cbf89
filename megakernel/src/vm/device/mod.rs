//! The device machine: a placed program as one persistent kernel.
//!
//! The kernel is generated for the program: opcodes are device functions of `tilewright_kernels`,
//! specialised for the shapes that occur; one block per SM walks its queue. One warp runs ahead of
//! the others and streams weights, which depend on nothing, through a ring in shared memory, across
//! the boundaries of tasks and steps; the others wait for counters, compute, and publish.
//!
//! | file | what it holds |
//! |---|---|
//! | `options` | choices of speed |
//! | `thresholds` | limits by which the planner chooses, which are not options |
//! | `op` | the side of an op for this back end |
//! | `function` | planned tasks; opcodes: what of a task is constant in the code |
//! | `functions/` | the device functions of ops, and the table that finds them |
//! | `storage` | how operands are stored |
//! | `record` | what the kernel reads of a task |
//! | `place` | where everything else lies |
//! | `parts` | sums that are cut |
//! | `plan`, `shape` | a program as the kernel reads it; what code is generated for |
//! | `build`, `planner`, `lookup`, `order_lookup`, `tables` | how it is made: task by task, streams and memory, what ops ask, queues |
//! | `split` | the forms of split activations that products of a target can read |
//! | `orders` | tables by which activations come in the order of weights with an act-order |
//! | `status` | words that kernel and host share while it runs |
//! | `kernel/` | the kernel |
//! | `load` | packed and plain weights to the device |
//! | `resident` | machines from the weights of a model |
//! | `part` | what a machine has on one device |
//! | `machine` | the machine, on one device or several |
//! | `run` | its steps: one, or many in a launch |
//! | `propose` | launches that propose tokens of one sequence |
//! | `masks` | tokens that rows may choose, said by the host while a launch runs |
//! | `text` | a sequence that goes on by what its text repeats |
//! | `watch` | the host's eye on a launch |
//! | `timeline/` | times of tasks as a table, a trace and a picture |
//! | `fault` | faults to inject, for tests |

mod build;
mod fault;
mod function;
mod functions;
mod kernel;
mod load;
mod lookup;
mod machine;
mod masks;
mod op;
mod options;
mod order_lookup;
mod orders;
mod part;
mod place;
mod plan;
mod planner;
mod propose;
mod record;
mod resident;
mod run;
mod shape;
mod split;
mod status;
mod storage;
mod synchronise;
mod tables;
mod text;
mod thresholds;
pub mod timeline;
mod watch;

pub use fault::DeviceFault;
pub use function::{
    DeviceFunction, FunctionValue, Opcode, Planned, SharedBytes, Stretch, Taken, TokenFields, TokenStream,
};
pub use functions::{InputCode, LinearTile, PartTile, QkvTile, TileCode, register_device_op};
pub use kernel::{Call, Generation, RingFeed, record};
pub use lookup::Destinations;
pub use machine::DeviceMachine;
pub use op::DeviceOp;
pub use options::DeviceOptions;
pub use orders::OrderTable;
pub use place::{Places, Space, space};
pub use plan::Plan;
pub use planner::Planner;
pub use record::{BlockRecord, FIELDS, TaskRecord, WaitRecord};
pub use shape::{CellsPlan, Feedback};
pub use storage::{KvPools, RotationRows, ScaledCode, Storage};
pub use text::{Accepted, Text};
pub use thresholds::{FixedThresholds, Thresholds};
pub use tilewright_kernels::weights::WeightStages;
pub use timeline::TaskTimes;
