//! `tilewright layout`: the layout algebra from the command line.

pub mod check;
mod mojo;
mod operations;
mod quirk;
mod refusal;
mod swizzle_operations;
mod value;

pub use operations::apply;
pub use refusal::Refusal;
pub use value::Value;
