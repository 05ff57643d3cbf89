//! The ops of a flow on a device.
//!
//! | file | what it holds |
//! |---|---|
//! | `spread`, `lanes` | how a row of a value lies in lanes; what a lane holds of it |
//! | `linear`, `registers` | scores that are sums of products, and the registers that they take |
//! | `recipe` | a pass as what is recorded, and what of it lanes cannot compute |
//! | `product` | the instructions of sums of products |
//! | `values`, `numbers` | every op of a flow on registers |
//! | `plan` | what the plans of all ops begin with |
//! | `buffers` | the buffers that a task names |
//! | `kept`, `sources` | what a flow stores to memory, and loads from it |
//! | `learned` | learned queries, by all warps |
//! | `amount` | a budget, and the candidates that it leaves |
//! | `stage`, `staged` | fields of candidates on their way through the ring, and warps that share them |
//! | `groups` | candidates dealt to groups of lanes |
//! | `score`, `across` | the indexer; ops across the blocks of a row |
//! | `summarise` | the cache pass |
//! | `select`, `search` | the exact selection |
//!
//! May import: `bind`, `flow`, `memory`, and the ops and `subject` of `program`.
//!
//! The code is recorded from the flow's graph: a device function is a flow for a model. It knows
//! device functions and tensors of `tilewright_kernels` by their public names alone.

mod across;
mod amount;
mod buffers;
mod groups;
mod kept;
mod lanes;
mod learned;
mod linear;
mod numbers;
mod plan;
mod product;
mod recipe;
mod registers;
mod score;
mod search;
mod select;
mod sources;
mod spread;
mod stage;
mod staged;
mod summarise;
mod values;
