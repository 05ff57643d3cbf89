//! Trials: one case, every executor. A kernel, what it is given, and what must come out.
//!
//! | file | what it holds |
//! |---|---|
//! | `case` | a trial as a value: buffers, arguments, grid |
//! | `expect` | what an output must hold, by how much it may differ, and the verdict |
//! | `element` | the numbers that buffers hold |
//! | `run` | a trial on a device: upload, poison, launch, read, compare |
//! | `draw` | random sizes and numbers, the same for the same seed |
//! | `shipped` | kernels that come with their own trials |
//! | `survey` | the mutation harness for kernels that have trials |
//!
//! A test states its case once and runs it on the simulator under seeds, and on a GPU:
//!
//! ```
//! use tilewright_codegen::device::sim;
//! use tilewright_codegen::trial::{Expected, Trial};
//! use tilewright_codegen::{gallery, ir::Arch, verify::verify};
//!
//! let kernel = verify(gallery::named("block_sum").unwrap().record(Arch::Sm90a))?;
//! let x: Vec<f32> = (0..2000).map(|i| (i % 7) as f32).collect();
//! let sums: Vec<f32> = x.chunks(1000).map(|row| row.iter().sum()).collect();
//!
//! let mut trial = Trial::new(kernel, 2).note("2 rows of 1000");
//! let x = trial.input("x", &x);
//! let out = trial.output("out", Expected::exact(&sums));
//! let trial = trial.pass(1000u32).pass(x).pass(out);
//!
//! for seed in 0..3 {
//!     let outcome = trial.run(&sim::open(seed))?;
//!     assert!(outcome.is_right(), "{outcome}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This module uses `device`, `ir`, `sim` and `verify`.

mod case;
mod draw;
mod element;
mod expect;
mod run;
mod shipped;
mod survey;

pub use case::{BufferId, Trial, TrialArg};
pub use draw::Draw;
pub use element::TrialElement;
pub use expect::{Bound, Compared, Expected, Mismatch};
pub use run::{Launched, TrialOutcome};
pub use shipped::Shipped;
pub use survey::survey;

// A trial's tensor maps are shaped as a device's are.
pub use crate::device::{Outside, Promotion, TensorShape, TileSwizzle};
