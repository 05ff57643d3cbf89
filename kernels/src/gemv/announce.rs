//! Announcements of a tile: that its results are about to come.

/// When a tile says that its results are about to come: where their readers look for the results
/// themselves, packets, they need not hear of them any later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Early {
    /// After the products of its last group, before the warps' sums are added up.
    Sums,
    /// Before the products of its last group.
    Products,
}

/// An action of thread 0 just before the results of a tile are stored.
#[derive(Clone, Copy)]
pub struct Announce<'a> {
    /// The point of the task at which it is made.
    pub at: Early,
    /// Records the announcement.
    pub say: &'a dyn Fn(),
}
