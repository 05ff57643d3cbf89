//! Rows of the embedding table, for tasks and as a kernel.
//!
//! | file | what it holds |
//! |---|---|
//! | `device` | rows on a block: [`embed`] |
//! | `launch` | the kernel, a block for each row |
//! | `trials` | random tables |

mod device;
mod launch;
mod trials;

pub use device::{Embed, EmbedNorm, EmbedTable, embed};
pub use launch::{EmbedShape, TableOrder, embed_rows};
pub use trials::shipped;
