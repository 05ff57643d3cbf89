//! Generators and oracles for property tests of layouts and kernels. Requires the feature
//! `testing`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`layouts`] | random shapes, layouts and swizzles |
//! | [`extents`] | random extents around tiles, ragged batches |
//! | [`laws`] | what the operators of the algebra promise |
//! | [`programs`] | random programs with their schedules, and the exact judge of small ones |
//! | [`naive`] | the oracles: each op as a plain loop |
//! | [`trial`] | a kernel, what it is given and what must come out, on the simulator or a GPU |
//!
//! `tests/outside` depends on this crate alone and uses them, and so do the crates of
//! `examples/templates`.

pub use tilewright_codegen::trial;
pub use tilewright_kernels::naive;
pub use tilewright_kernels::testing as extents;
pub use tilewright_layout::laws;
pub use tilewright_layout::testing as layouts;
pub use tilewright_megakernel::testing as programs;
