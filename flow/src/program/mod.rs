//! A flow as ops of a program: what the decode step of a model runs when a flow chooses what it
//! attends to.
//!
//! | op | tasks of a layer | what it does |
//! |---|---|---|
//! | [`Summarise`] | one for each kv head | stores the fields of each block that this step completes |
//! | [`Score`] | kv head × split | the indexer over a split of a row's candidate blocks; loads and saves states |
//! | [`Select`] | one for each kv head | the exact selection, as blocks that attention reads |
//!
//! Attention itself is the megakernel's, over a
//! [`Selection`](tilewright_megakernel::ops::Selection). [`Lowered`] adds these ops to every layer;
//! it takes part in a lowering only by the public
//! [`Indexer`](tilewright_megakernel::lower::Indexer).
//!
//! A program names its flow. What flows compute is not in the file: [`register`] makes one known,
//! those that ship are.
//!
//! May import: `algorithms`, `bind`, `flow`, `memory`, `run` and what these import.

mod device;
mod lower;
mod register;
mod registry;
mod score;
mod select;
mod subject;
mod summaries;
mod summarise;

pub use lower::{FlowSettings, Lowered, Phase, SLOT, SettingsError, observed_names, scores_name};
pub use register::{register, register_ops};
pub use registry::{RegisterError, flow};
pub use score::Score;
pub use select::Select;
pub use summaries::summaries;
pub use summarise::Summarise;
