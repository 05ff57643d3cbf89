//! Matrix products on trial.

mod hopper;
mod lab;
mod random;
mod resources;
