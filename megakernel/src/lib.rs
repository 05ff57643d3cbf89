//! The megakernel: one decode step of a model as a program of tasks, proved free of races and
//! deadlocks before it runs.
//!
//! A model is *lowered* to a [`Program`](program::Program): buffers, counters, and tasks that wait
//! for counters and signal them. The [validator](validate) proves that the program computes one
//! result under every timing. The [scheduler](schedule) gives each SM its queue of tasks. A back
//! end then runs the placed program:
//!
//! | back end | runs on |
//! |---|---|
//! | [`vm::reference::Machine`] | CPU threads; defines what a program computes |
//! | [`vm::device::DeviceMachine`] | a GPU or the simulator, as one persistent kernel for many tokens |
//! | [`vm::graph::GraphMachine`] | a GPU or the simulator, as a graph of launches, for 17 rows and more |
//!
//! # Example
//! A small random model, from its architecture to the next token:
//!
//! ```
//! use tilewright_codegen::target::Target;
//! use tilewright_layout::DType;
//! use tilewright_megakernel::lower::{LowerOptions, NEXT_TOKEN, lower};
//! use tilewright_graph::models::Llama;
//! use tilewright_megakernel::schedule::schedule;
//! use tilewright_megakernel::vm::StepCells;
//! use tilewright_megakernel::vm::reference::{KvState, Machine};
//! use tilewright_megakernel::weights::RandomWeights;
//!
//! let spec = Llama::small().vocab(40);
//! let program = lower(&spec, &|_| DType::BF16, Target::host(2), &LowerOptions::for_context(64))?;
//! let placed = schedule(program, 64)?;
//! let mut machine = Machine::new(placed, &RandomWeights::new(&spec, DType::BF16, 7)?, 1)?;
//! let mut kv = KvState::new(machine.program())?;
//! let output = machine.step(&mut kv, &StepCells { tokens: &[3], positions: &[0], page_table: &[0] })?;
//! let next = output.i32(NEXT_TOKEN)?[0];
//! assert!((0..40).contains(&next));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//! | module | what it holds |
//! |---|---|
//! | [`edges`] | data flow of a program: how producers hand results to consumers |
//! | [`lower`] | model to program |
//! | [`model`] | the architecture that is lowered |
//! | [`ops`] | what tasks compute: one row an op |
//! | [`oracle`] | what the oracle of an op computes on |
//! | [`program`] | a decode step as data |
//! | [`schedule`] | which SM runs what, in which order |
//! | `testing` | random programs and the exact judge of small ones; enabled by the feature `testing` |
//! | [`validate`] | the proof that a program has no race and no deadlock |
//! | [`vm`] | the back ends that run placed programs |
//! | [`weights`] | tensors by name, their bytes shared; random ones for benches |
//!
//! This crate reads no files and contains no kernels; `tilewright_kernels` has the device functions
//! that tasks run.
#![forbid(unsafe_code)]
#![deny(clippy::wildcard_enum_match_arm)]

pub mod edges;
pub mod lower;
pub mod model;
pub mod ops;
pub mod oracle;
pub mod program;
pub mod schedule;
#[cfg(feature = "testing")]
pub mod testing;
pub mod validate;
pub mod vm;
pub mod weights;
