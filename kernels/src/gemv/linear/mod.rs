//! Linear layers of a decode step as tasks: a tile of strips of weights, from a ring that another
//! warp fills, times 1 to 16 rows of activations, with the epilogue that follows.
//!
//! Functions begin with everything they read visible to all consumer warps, and return with all
//! their stores done by some thread of these: the caller puts one barrier of theirs before it
//! publishes them.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | a tile of a linear layer with its epilogues |
//! | `qkv` | the projections of a kv head's group, rotated and appended |
//! | `a_operand` | where the A operand lives: in shared memory, in registers, in registers by phases, reloaded with every stage |
//! | `beyond` | what is said of activations that no f16 holds |
//! | `packing` | how rows lie in the MMA's A operand |
//! | `input` | where activations come from: plain or normalised |
//! | `scaled` | activations as their writers leave them: the operand's terms |
//! | `operand` | activations copied to shared memory |
//! | `ordered` | activations in the order of codes that have one of their own |
//! | `starts` | what the sums of codes begin with |
//! | `source` | activations straight to registers, without a copy |
//! | `held` | stages of weights in registers |
//! | `pass` | the passage of a tile's strips through the team |
//! | `phases` | rows that are longer than registers hold, some columns at a time |
//! | `parts` | sums of the parts that a contraction was cut into |
//! | `wide` | stages of codes with more activations than registers hold |
//! | `sums` | strips from the ring times activations, by [`product`](super::product), and the warps' sums |

mod a_operand;
mod ahead;
mod beyond;
mod device;
mod held;
mod input;
mod operand;
mod ordered;
mod packing;
mod parts;
mod pass;
mod phases;
mod qkv;
mod scaled;
mod source;
mod starts;
mod sums;
mod wide;

pub use a_operand::{AOperand, StageOrder};
pub use beyond::Beyond;
pub use device::{ArgmaxCandidates, LinearEpilogue, LinearScratch, LinearTask, linear};
pub use held::{HeldForm, HeldStage};
pub use input::Input;
pub use operand::SharedActivations;
pub use ordered::{Ordered, Reordering, columns};
pub use packing::Packing;
pub use parts::{PartSums, PostNorm};
pub use pass::{Announce, Early};
pub use phases::Phases;
pub use qkv::{Qkv, QueryKeyEpilogue, qkv};
pub use scaled::{ActivationOutput, Scaled, ScaledForm, ScaledOutput};
pub use sums::{ReadStages, SharedSums, WeightStages, in_pairs};
