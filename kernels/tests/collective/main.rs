//! Collectives against plain loops on the simulator, whose race detector is always on: random
//! numbers with ties, NaN and infinities, ragged counts; and planted bugs, which must be found.
//!
//! The laws also hold on the device that `TILEWRIGHT_DEVICE` names.

mod group;
mod laws;
mod planted;
mod shared;
