//! What edges are chosen from.

use super::walk::Edges;
use crate::program::{Access, Program};

/// A program with its edges and its accesses by task.
#[derive(Clone, Copy)]
pub(super) struct Flow<'p> {
    pub program: &'p Program,
    pub edges: &'p Edges,
    pub accesses: &'p [Vec<Access>],
}
