//! Rings on the simulator: every kind of ring computes what plain loops compute, under seeds and
//! for any number of tiles; every synchronising instruction that is removed or weakened is found
//! out.

mod kernels;
mod mutants;
mod refused;
mod sums;
