//! The graph machine: a step of many rows as a graph of launches.
//!
//! A step of hundreds of rows is bound by arithmetic: a level of it keeps every SM busy for tens of
//! microseconds. Compared with that, the cost of a launch between two levels is small. So each
//! level of the [plan](crate::lower::StepPlan) becomes one product, one attention, one norm over
//! all rows, by the library's standalone kernels, in the order of the levels on one stream. Keys
//! and values are those of the [device machine](super::device): this machine prefills prompts, and
//! the device machine decodes tokens.
//!
//! | file | what it holds |
//! |---|---|
//! | `op` | the graph's side of an op's row |
//! | `launches/` | the launches of ops, and the table that finds them |
//! | `planner`, `norms`, `products`, `experts`, `heads`, `choice`, `exchange` | what rows of ops ask: activations; norms; products; mixtures of experts; heads; the choice of tokens; sums of the parts of several devices |
//! | `launch` | a launch as data: kernel, grid, what its arguments name |
//! | `plan`, `build` | a step as launches; how it is made |
//! | `tuning` | what may be chosen of attention, products and exchanges |
//! | `kernels` | its kernels, compiled when they are first launched |
//! | `sequence` | rows that are consecutive tokens of a sequence |
//! | `activations` | what levels leave to the next |
//! | `weights`, `memory` | a model's weights on the device; what launches read and write |
//! | `machine` | the machine |
//! | `run` | steps whose tokens the device chooses |
//! | `masks` | rows whose tokens the host restricts |
//! | `peers` | the machine of several devices |
//! | `barriers`, `fault` | the host's side of device barriers; faults of barriers, for tests |
//! | `sums`, `nccl` | sums of several devices; NCCL |
//! | `shard` | the machine of one device of several processes |
//! | `stage` | a stage of a pipeline: what it takes and gives |
//! | `any` | either machine under one type |
//!
//! Rows at the beginning of a step that are sequences of their own attend by the library's decode
//! attention, whose blocks share the tokens of a row; consecutive tokens of a sequence by its
//! prefill attention. So a step holds decoding rows, and after them chunks of prompts.
//!
//! Products of up to 64 rows read the packed weights of the device machine on sm_90a. For more
//! rows, and elsewhere, weights are stored row by row as in checkpoints: a second copy in addition
//! to the packed one.

mod activations;
mod any;
mod barriers;
mod build;
mod choice;
mod exchange;
mod experts;
mod fault;
mod heads;
mod kernels;
mod launch;
mod launches;
mod machine;
mod masks;
mod memory;
mod nccl;
mod norms;
mod op;
mod peers;
mod plan;
mod planner;
mod products;
mod run;
mod sequence;
mod shard;
mod stage;
mod sums;
mod tuning;
mod weights;

pub use any::{AnyGraph, PeerWeights};
pub use fault::GraphFault;
pub(crate) use heads::{Appended, HeadsOut, HeadsPart};
pub use launch::{AllReduce, Launch, LaunchArg, LaunchGrid, LaunchMemory, Scratch};
pub use launches::register_launch_op;
pub use machine::{EachLogits, GraphMachine};

pub(crate) use activations::{Begun, Embedding, NormActivations, NormOf, ProductInput};
pub(crate) use experts::{ExpertProduct, ExpertSums};
pub use op::LaunchOp;
pub use peers::GraphPeers;
pub use plan::{ChoicePlan, GraphPlan, GraphTarget, LogitsPlan, MOST_QUEUED};
pub use planner::GraphPlanner;
pub(crate) use planner::RowHeads;
pub use shard::GraphShard;
pub use sums::Summand;
pub use tuning::{Exchange, GraphOptions, GraphTuning, NoExchange, ProductTuning};
pub use weights::GraphWeights;
