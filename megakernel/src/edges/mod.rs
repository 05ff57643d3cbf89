//! Edges: the data flow of a program, and how producers hand results to consumers.
//!
//! An [`Edge`] is one generation of a buffer: the tasks that write it and the tasks that read it.
//! [`Edges`] finds them in one walk. [`ChosenEdges`] gives each edge a [`Transport`] and an
//! [`ActivationLayout`] by one rule, from the [accesses](crate::ops::Access) that ops state.
//!
//! | file | what it holds |
//! |---|---|
//! | `walk` | generations, producers and consumers of every buffer |
//! | `choose` | the rule |
//! | `partial` | partial results of attention: what their merge needs |
//! | `chosen` | the chosen edges, by buffer and by task |
//! | `summary` | the edges of a program, alike ones in a row |
//! | `poll` | which tasks poll flagged words without waiting for a semaphore |
//!
//! This module imports [`program`](crate::program), [`ops`](crate::ops) and
//! [`validate`](crate::validate), and no back end.

mod choose;
mod chosen;
mod flow;
mod partial;
mod poll;
mod summary;
#[cfg(test)]
mod tests;
mod walk;

pub use choose::{Activations, EdgeRule, FlaggedUse, SplitForms};
pub use chosen::{ActivationLayout, ChosenEdge, ChosenEdges, SplitActivations, TaskGenerations, Transport};
pub use partial::{Merge, PartialError};
pub use summary::EdgeSummary;
pub use walk::{Edge, Edges};
