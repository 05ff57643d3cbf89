//! How a back end keeps the order of a program between memory accesses.

/// How a back end keeps the order of a program between memory accesses.
///
/// The validator's order says which task is done before which starts. On a device that is an order
/// in time; accesses of memory are ordered only where a signal releases and a wait acquires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Synchronisation {
    /// For each task, whether it waits for its counters with acquire loads.
    pub acquires: Vec<bool>,
    /// For each task, whether it signals its counters with releases.
    pub releases: Vec<bool>,
}
