//! Flows: conformance by letter, agreement of all executions, graphs and plans of random flows, the
//! algorithms by name.

mod agree;
mod algorithms;
mod conformance;
mod graphs;
mod naive;
mod program;
mod random_flow;
mod sketch;
mod state;
mod world;
