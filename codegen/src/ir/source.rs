//! The source location of recorded code: lines of Rust.

use core::panic::Location;

/// The line of Rust that recorded something.
pub type Src = &'static Location<'static>;

/// The author's line for a line of a library: that of the innermost enclosing statement in another
/// file.
pub(crate) fn caller(around: &[Src], src: Src) -> Option<Src> {
    around.iter().rev().copied().find(|outer| outer.file() != src.file())
}
