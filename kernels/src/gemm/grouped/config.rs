//! What a kernel is specialised for.

use super::schedule::GroupTiling;
use super::store::RowStore;
use crate::epilogue::Epilogue;

/// A kernel's settings in addition to its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupedConfig {
    /// Groups.
    pub groups: u32,
    /// Whether rows of A are found by `order`, and the divisor of its numbers.
    pub gather: Option<u32>,
    /// Whether results go to the rows that `order` names.
    pub scatter: bool,
    pub how: RowStore,
    pub epilogue: Epilogue,
    /// Stages of the ring.
    pub stages: u32,
    /// Blocks of a cluster; 1 over `mma.sync`.
    pub cluster: u32,
    /// Whether a cluster's blocks are beside each other and share rows. Otherwise they are below each
    /// other and share weights.
    pub beside: bool,
    /// Rows of tiles of a group that are computed together.
    pub band: u32,
}

impl GroupedConfig {
    /// The schedule of clusters whose blocks have `rows` rows.
    pub fn tiling(&self, rows: u32) -> GroupTiling {
        GroupTiling { groups: self.groups, rows: rows * self.sharing()[1], band: self.band }
    }

    /// Blocks that share rows, and that share weights.
    pub fn sharing(&self) -> [u32; 2] {
        if self.beside { [self.cluster, 1] } else { [1, self.cluster] }
    }
}
