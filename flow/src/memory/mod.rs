//! The memory of a flow's execution: pages of a pool, requests with page tables and states,
//! budgets, selections.
//!
//! * A page holds `page_tokens` tokens of every key head; a block holds `block_tokens` tokens of
//!   one key head, contiguous. Block `(page·key heads + head)·blocks a page + block in the page`.
//! * Fields depend on tokens alone and are stored with the keys: requests that share pages share
//!   them.
//! * States belong to a request. Pages stay shared, and a page that is given to another request
//!   carries nothing over.

mod budget;
mod pool;
mod rows;
mod select;

pub use budget::Budget;
pub use pool::{FlowPool, FlowRequest, PoolShape};
pub use rows::{Chunk, RowTable};
pub use select::{BlockSelection, order_key, top_k};
