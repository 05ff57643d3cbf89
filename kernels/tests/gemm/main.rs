//! Matrix products on trial.

mod counted;
mod custom;
mod grouped;
mod hopper;
mod lab;
mod mutants;
mod random;
mod resources;
mod trials;
