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
//! | `function` | the device's side of an op's row; opcodes: what of a task is constant in the code |
//! | `storage` | how operands are stored |
//! | `record` | what the kernel reads of a task |
//! | `stream` | packed weights: the order in which they are streamed |
//! | `place` | where everything else lies |
//! | `packed` | what lies where among packed weights, for products of other machines |
//! | `parts` | sums that are cut |
//! | `plan` | a program as the kernel wants it |
//! | `planner`, `lookup`, `tables` | how it is made: streams and memory, what rows of ops ask, queues |
//! | `split` | the forms of split activations that products of a target can read |
//! | `orders` | tables by which activations come in the order of weights with an act-order |
//! | `status` | words that kernel and host share while it runs |
//! | `kernel/` | the kernel |
//! | `kernels` | kernels, each compiled once |
//! | `load` | weights to the device |
//! | `resident` | what machines of one model share there |
//! | `part` | what a machine has on one device |
//! | `machine` | the machine, on one device or several |
//! | `run` | its steps: one, or many in a launch |
//! | `text` | a sequence that goes on by what its text repeats |
//! | `watch` | the host's eye on a launch |
//! | `timeline/` | times of tasks as a table, a trace and a picture |
//! | `error` | what can go wrong |
//! | `fault` | faults to inject, for tests |
//! | `unsupported` | programs that it does not run |

mod error;
mod fault;
mod function;
mod kernel;
mod kernels;
pub(in crate::vm) mod load;
mod lookup;
mod machine;
mod options;
mod orders;
mod packed;
mod part;
mod place;
mod plan;
mod planner;
mod record;
mod resident;
mod run;
mod split;
mod status;
mod storage;
mod stream;
mod synchronise;
mod tables;
mod text;
pub mod timeline;
mod unsupported;
mod watch;

pub use error::{LaunchError, LoadError};
pub use fault::DeviceFault;
pub use function::{
    DeviceFunction, DeviceOp, FunctionValue, Opcode, Planned, SharedBytes, Stretch, Taken, TokenFields, TokenStream,
};
pub use kernel::{Call, Generation, RingFeed, record};
pub use kernels::{Compilation, DeviceKernels};
pub use lookup::{Destinations, multiple, pool_fits, rows_of};
pub use machine::DeviceMachine;
pub use options::{Dealing, DeviceOptions};
pub use orders::OrderTable;
pub use packed::Packed;
pub(super) use packed::PackedStrips;
pub use place::{Places, Space, space};
pub(super) use plan::one_device;
pub use plan::{Feedback, Lengths, NoFeedback, Plan, RotationTable};
pub use planner::Planner;
pub use record::{BlockRecord, FIELDS, TaskRecord, WaitRecord};
pub use resident::{DeviceKv, DeviceWeights};
pub(in crate::vm) use run::check_count;
pub(super) use run::end_ids;
pub use run::{MAX_ENDS, MAX_STEPS, NO_TOKEN};
pub use storage::{KvPools, RotationRows, ScaledCode, Storage};
pub use stream::{Rows, Stream};
pub use text::{Accepted, Text};
pub use tilewright_kernels::gemv::linear::WeightStages;
pub use timeline::TaskTimes;
pub use unsupported::Unsupported;
pub use watch::AbortHandle;
