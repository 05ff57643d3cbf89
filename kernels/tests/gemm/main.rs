//! Matrix products on trial.

mod hopper;
mod lab;
mod resources;
