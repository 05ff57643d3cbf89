//! What a room of the library keeps to itself: nobody outside of it spells it, but for files that are named with a reason.

mod mma;
mod ring;
mod tree;
