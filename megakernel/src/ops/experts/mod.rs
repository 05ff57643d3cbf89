//! Mixtures of experts: the choice of experts, gate and up of the chosen ones, and their sum.
//!
//! | file | what it holds |
//! |---|---|
//! | `route` | the choice of experts for the rows of a step |
//! | `routes` | its table, as the oracles read it |
//! | `gate_up` | gate, up and activation of the chosen experts |
//! | `down` | the second product, summed over the chosen experts |
//!
//! The weights of all experts lie below each other: `[experts · n, k]`. Which of them a task reads
//! is known when the step runs; its footprint has all of them.

mod down;
mod gate_up;
mod route;
mod routes;

pub use down::{ExpertDown, ExpertOutput};
pub use gate_up::{ExpertGateUp, SlotStrips};
pub use route::{Route, RouteKind};
