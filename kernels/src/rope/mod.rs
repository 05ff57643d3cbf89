//! Rotary position embedding, with the norm of heads before it where a model has one, for tasks and
//! as a kernel.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | heads on a block: [`rope`] |
//! | `launch` | the kernel, a block for each row |
//! | `runs` | the kernel for queries, keys and values that a stacked projection left |
//! | `trials` | random heads and pages against the f64 oracle |

mod device;
mod launch;
mod runs;
mod trials;

pub use device::{HeadNorm, HeadPart, HeadRotation, Rotation, rope};
pub(crate) use device::{rotated, rotated_first};
pub use launch::{RopeShape, rope_rows};
pub use runs::{HeadRun, HeadRuns, rope_runs};
pub use trials::shipped;
