//! The layout algebra by name: a language of expressions, its values, and one table of operations
//! that the command line, golden cases and other languages share.
//!
//! ```
//! use tilewright::algebra::{LayoutValue, apply, evaluate};
//! let tiles = evaluate("zipped_divide((4,6):(6,1), (2,3))")?;
//! assert_eq!(tiles.to_string(), "((2,3),(2,2)):((6,1),(12,3))");
//! assert_eq!(apply("size", &[tiles])?, LayoutValue::Int(24));
//! # Ok::<(), tilewright::algebra::ExpressionRefusal>(())
//! ```

mod arguments;
mod drawing;
pub mod expression;
mod mistake;
mod operations;
mod refusal;
mod swizzle_operations;
mod value;

#[cfg(feature = "cli")]
pub(crate) use arguments::{arg, listed};
pub use drawing::{svg, text};
pub use expression::{evaluate, locate};
pub use mistake::Mistake;
pub use operations::apply;
pub use refusal::ExpressionRefusal;
#[cfg(feature = "cli")]
pub(crate) use swizzle_operations::shared_memory;
pub use value::LayoutValue;
