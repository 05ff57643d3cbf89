//! The exchange between devices that share a model, between launches: sums of their parts, and
//! barriers.
//!
//! | file | what it holds |
//! |---|---|
//! | `barrier` | a launch on each device that ends when all have reached it |
//! | `norm` | parts added to rows of the residual stream, and the norm before or after it |
//! | `parts` | sums of rows of some arrays, stored in some others, a block for each row |
//! | `trials` | random sums against the f64 oracle |

mod barrier;
mod norm;
mod parts;
mod trials;

pub use barrier::{BARRIER_GAVE_UP, BARRIER_LEFT, BARRIER_POLLS, BARRIER_WORDS, device_barrier, wait_for_devices};
pub use norm::{ResidualAdd, SumNormShape, sum_rms_norm};
pub use parts::{PartsShape, sum_parts};
pub use trials::shipped;
