//! The exchange between devices that share a model, between launches: sums of their parts, and
//! barriers.
//!
//! | file | what it holds |
//! |---|---|
//! | `meet` | a launch on each device that ends when all have come to it |
//! | `norm` | parts added to rows of the residual stream, and the norm before or after it |
//! | `parts` | sums of rows of some arrays, stored in some others, a block for each row |
//! | `trials` | random sums against the f64 oracle |

mod meet;
mod norm;
mod parts;
mod trials;

pub use meet::{MEET_GAVE_UP, MEET_LEFT, MEET_POLLS, MEET_WORDS, meet, meet_others};
pub use norm::{ResidualAdd, SumNormShape, sum_rms_norm};
pub use parts::{PartsShape, sum_parts};
pub use trials::shipped;
