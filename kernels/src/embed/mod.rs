//! Rows of the embedding table as a kernel: [`decode::embed`](crate::decode::embed) on a grid.
//!
//! | file | what it holds |
//! |---|---|
//! | `launch` | the kernel, a block for each row |
//! | `trials` | random tables |

mod launch;
mod trials;

pub use launch::{EmbedShape, embed_rows};
pub use trials::shipped;
