//! Attention of a decode step as tasks: a kv head's queries over one split of each row's tokens, in pages, merged by the
//! split that arrives last.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | a split of a kv head's tokens, from the ring and straight from the pages: [`attention`] |
//! | `merge` | the merge of the splits |
//! | `queries` | queries as operands, and the newest token where they are packets |
//! | `selected` | blocks of tokens that were chosen |
//! | `shares` | how the tokens of a row are split |

mod device;
mod merge;
mod queries;
mod selected;
mod shares;

pub use device::{Attention, Heads, attention};
pub use merge::Merged;
pub use selected::Selected;
pub use shares::Shares;
