//! Random programs with their schedules, and the exact judge of small ones, for property tests;
//! enabled by the feature `testing`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`generate`] | programs of at most 8 tasks over random queues, and the waits that they need |
//! | [`sharded`] | the same of several devices, which send each other parts of sums |
//! | [`draw`] | the computations of such programs: buffers and ops, no synchronisation |
//! | `families` | small models of families whose graphs the lowering changes |
//! | `plain_ops` | the unfused ops of tests, which no lowering emits |
//! | [`clashes`] | which tasks touch the same bytes |
//! | [`oracle`] | the judge: every interleaving of task starts and ends |
//! | `shrink` | smaller programs |
//! | `rng` | the generator of a seed |
//!
//! A scheduler or a validator of yours is held against the judge; what fails shrinks.
//!
//! ```
//! use proptest::prelude::*;
//! use tilewright_megakernel::{testing, validate::validate};
//! proptest!(ProptestConfig::with_cases(32), |(program in testing::programs(), other in testing::borderline_programs())| {
//!     prop_assert!(testing::judge(&program).is_ok());
//!     // Some of these race, deadlock or read unwritten elements.
//!     prop_assert_eq!(validate(&other).is_valid(), testing::judge(&other).is_ok());
//! });
//! ```

pub mod clashes;
pub mod draw;
mod families;
pub mod generate;
pub mod oracle;
mod plain_ops;
mod rng;
pub mod sharded;
mod shrink;
mod strategy;

pub use families::{small_families, small_family, small_latents, small_mixtures, small_norms};
pub use oracle::{Unsafe, judge};
pub use plain_ops::{Add, Combine, KvAppend, RmsNorm, SiluMul, register_plain_ops};
pub use rng::Rng;
pub use shrink::smallest;
pub use strategy::{borderline_programs, programs};
