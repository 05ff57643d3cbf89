//! The simulator: a machine that runs a kernel on the CPU and finds what is wrong with it.
//!
//! | module | what it holds |
//! |---|---|
//! | `program` | the kernel flattened into a line of steps |
//! | `number` | numbers as the hardware computes them |
//! | `order` | happens-before: vector clocks, releases, proxies |
//! | `memory` | the host's buffers, shared memory, and the shadow of both |
//! | `machine` | blocks and warps under a seeded scheduler, asynchronous engines |
//! | `step` | what each instruction does, by family |
//! | `host` | words that the host uses while a kernel runs |
//! | `fault`, `count` | what a kernel did wrong, and what it did |
//!
//! Blocks of a grid run together, or in waves where there are too many; blocks of a cluster always
//! together. Each seed is another interleaving of warps, of the lanes of a diverged warp and of the
//! completions of asynchronous copies and of `wgmma`, which happen as late as the program allows,
//! or earlier. Values are as of the interleaving that runs: the machine does not reorder a thread's
//! accesses. The race detector reports effects of a weaker memory instead.
//!
//! The machine takes what [`verify`](crate::verify) hands out and reads [`ir`](crate::ir), whose
//! rows say what each instruction means. Nothing here knows PTX.

mod count;
mod fault;
mod host;
mod launch;
mod machine;
mod memory;
#[warn(clippy::wildcard_enum_match_arm)]
pub mod mutate;
mod number;
mod order;
mod print;
#[warn(clippy::wildcard_enum_match_arm)]
mod program;
mod run;
#[warn(clippy::wildcard_enum_match_arm)]
mod step;
#[cfg(test)]
mod unverified;

pub use count::{Counters, SiteCounts};
pub use fault::{ByteRange, Fault, FaultKind, HostWhy, Other, StuckWarp, ThreadAt};
pub use host::{Answers, HostOrder, OnLoss, Opens};
pub(crate) use launch::PATIENCE;
pub use launch::{Arg, Checks, Interrupt, Launch, Left, Loss};
pub use memory::{Memory, MemoryElement, MemoryError, Why};
pub use print::PrintedLines;
pub use program::DecodeError;
pub use run::{Outcome, SimError, run};
pub use step::{OutOfBoundsFill, TensorElem, TensorMapDescriptor, TensorMapError, TensorSwizzle};
