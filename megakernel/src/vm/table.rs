//! The table by which a back end finds its side of an op.

use std::any::TypeId;
use std::sync::{PoisonError, RwLock};

use crate::ops::{Op, TaskOp};

/// Views an op as a back end's trait object, where it is the op of one type.
type View<V> = for<'a> fn(&'a Op) -> Option<&'a V>;

/// From types of ops to the trait objects by which a back end plans them: those that this crate
/// ships, and those that others registered.
pub(super) struct OpTable<V: ?Sized + 'static> {
    shipped: &'static [View<V>],
    registered: RwLock<Vec<(TypeId, View<V>)>>,
}

impl<V: ?Sized> OpTable<V> {
    /// The table of the shipped ops.
    pub const fn new(shipped: &'static [View<V>]) -> OpTable<V> {
        OpTable { shipped, registered: RwLock::new(Vec::new()) }
    }

    /// Adds a type of ops, if it is not there.
    pub fn register<T: TaskOp>(&self, view: View<V>) {
        let mut registered = self.registered.write().unwrap_or_else(PoisonError::into_inner);
        let id = TypeId::of::<T>();
        if !registered.iter().any(|(known, _)| *known == id) {
            registered.push((id, view));
        }
    }

    /// The back end's side of an op.
    pub fn of<'a>(&self, op: &'a Op) -> Option<&'a V> {
        let shipped = self.shipped.iter().find_map(|view| view(op));
        shipped.or_else(|| {
            let registered = self.registered.read().unwrap_or_else(PoisonError::into_inner);
            registered.iter().find_map(|(_, view)| view(op))
        })
    }
}
