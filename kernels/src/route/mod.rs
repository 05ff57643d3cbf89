//! Experts: a router's choice, choices sorted by expert, and the weighted sum of results.
//!
//! | file | kernel |
//! |---|---|
//! | `router` | [`route_rows`]: logits to ids and weights, a warp for each row |
//! | `sort` | [`sort_choices`]: ids to offsets, order and inverse, by one block |
//! | `sum` | [`weighted_sum_rows`]: results of the chosen experts added to the residual stream |
//! | `trials` | random rows against the oracles of [`naive`](crate::naive) |
//!
//! With a [grouped product](crate::gemm::grouped) they make a layer of experts, on the device alone:
//!
//! | launch | reads | writes |
//! |---|---|---|
//! | router's product | activations | logits `[rows, experts]` |
//! | [`route_rows`] | logits | `ids`, `weights` `[rows, chosen]` |
//! | [`sort_choices`] | `ids` | `offsets` `[experts + 1]`, `order` `[rows · chosen]` |
//! | gate and up, gathered by `chosen` | activations, `offsets`, `order` | `[rows · chosen, inner]` by expert |
//! | down, scattered | the rows by expert, `offsets`, `order` | `y` `[rows · chosen, hidden]` by token |
//! | [`weighted_sum_rows`] | `y`, `weights` | the residual stream |
//!
//! May import: `naive`, `pdl`, `stored`, `tile`.

mod router;
mod sort;
mod sum;
mod trials;

pub(crate) use router::Scores;
pub use router::{GroupedRouter, RouterKind, RouterScore, RouterShape, route_rows};
pub use sort::{NO_PLACE, SORT_THREADS, SortShape, sort_choices};
pub use sum::{SumShape, weighted_sum_rows};
pub use trials::shipped;
