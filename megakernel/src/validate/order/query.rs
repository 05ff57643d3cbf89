//! A question of order.

/// Whether one task happens before another that ran later in the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::validate) struct Query {
    pub earlier: u32,
    pub later: u32,
}
