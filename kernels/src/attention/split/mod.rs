//! Attention of a decode step as tasks: a kv head's queries over one split of each row's tokens, in
//! pages, merged by the split that arrives last.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | a split of a kv head's tokens, a block after the other: [`attention`] |
//! | `blocks` | where a warp's blocks come from: pages, the ring, chosen blocks |
//! | `latent` | a split of many heads that attend to one key, whose beginning is its value: [`latent_attention`] |
//! | `merge` | the merge of the splits |
//! | `queries` | queries as operands, and the newest token where they are packets |
//! | `selected` | blocks of tokens that were chosen |
//! | `shares` | how the tokens of a row are split |

mod blocks;
mod device;
mod latent;
mod merge;
mod pass;
mod problem;
mod queries;
mod selected;
mod shares;

pub use device::attention;
pub use latent::{LatentForm, latent_attention};
pub use problem::{HeadCounts, Merged, SplitAttention, SplitSignal};
pub use selected::TokenSelection;
pub use shares::{Hidden, Shares};
