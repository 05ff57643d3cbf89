//! What a module of the library keeps to itself: no file outside names it, but for files that are
//! listed with a reason.

mod mma;
mod ring;
mod tree;
