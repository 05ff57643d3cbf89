//! Attention of a decode step as tasks: a kv head's queries over one split of each row's tokens, in
//! pages, merged by the split that arrives last.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | a split of a kv head's tokens, a block after the other: [`attention`] |
//! | `blocks` | where a warp's blocks come from: pages, the ring, chosen blocks |
//! | `merge` | the merge of the splits |
//! | `queries` | queries as operands, and the newest token where they are packets |
//! | `selected` | blocks of tokens that were chosen |
//! | `shares` | how the tokens of a row are split |

mod blocks;
mod device;
mod merge;
mod pass;
mod problem;
mod queries;
mod selected;
mod shares;

pub use device::attention;
pub use problem::{HeadCounts, Merged, SplitAttention, SplitSignal};
pub use selected::TokenSelection;
pub use shares::{Hidden, Shares};
