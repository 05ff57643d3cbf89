//! The reference machine against the oracles, against itself, and against faults.

mod devices;
mod faults;
mod fusion;
mod lab;
mod model;
mod ops;
mod paging;
mod stages;
