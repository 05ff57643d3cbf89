//! The GEMV on the simulator: random shapes against f64, its layouts' laws, its accesses, its
//! mutants.

mod accesses;
mod codes;
mod hopper;
mod layouts;
mod mutants;
mod random;
mod resources;
