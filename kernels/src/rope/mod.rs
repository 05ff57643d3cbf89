//! Rotary position embedding, with the norm of heads before it where a model has one, as a kernel:
//! [`decode::rope`](crate::decode::rope) on a grid.
//!
//! | file | what it holds |
//! |---|---|
//! | `launch` | the kernel, a block for each row |
//! | `trials` | random heads and pages against the f64 oracle |

mod launch;
mod trials;

pub use launch::{RopeShape, rope_rows};
pub use trials::shipped;
