//! Random programs: how they are made, run on the simulator and compared.
//!
//! | file | what it holds |
//! |---|---|
//! | `rng` | random numbers, bits worth trying |
//! | `draw` | legal instructions of a row |
//! | `program` | the program being made: values, places, what is observed |
//! | `compute` | computing rows, and what makes them well defined |
//! | `memory` | cells, exchanges, sums, copies |
//! | `flow` | branches, loops, whole programs |
//! | `batch` | many programs as one kernel |
//! | `approx` | the bounds of rows that have one |
//! | `matrix` | matrix multiplies |
//! | `corpus` | programs with the results of a GPU |
//! | `shrink` | the smallest program that still differs |

#![allow(dead_code, reason = "the tests read the corpus, the example writes it")]

pub mod approx;
pub mod batch;
pub mod compute;
pub mod corpus;
pub mod draw;
pub mod flow;
pub mod matrix;
pub mod memory;
pub mod program;
pub mod rng;
pub mod shrink;
