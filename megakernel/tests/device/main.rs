//! The device machine on the simulator: what the reference machine computes, under every seed; every failure an error.

mod activations;
mod agree;
mod choose;
mod ends;
mod faults;
mod lab;
mod mutants;
mod resident;
mod timeline;
