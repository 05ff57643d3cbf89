//! Loads, stores, atomics.

use super::ptr::{Global, Ptr, SpaceOf, Writable};
use super::val::{Atomic, Raw};
use super::{Builder, IntoVal, Scalar, Val};
use crate::ir::attr::{AtomOp, AtomOrder, Eviction, LdCache, LdOrder, Prefetch, RedOrder, Scope, StCache, StOrder};
use crate::ir::{MemOp, Ty};

/// The options of a load: order, cache, prefetch, policy.
///
/// ```
/// use tilewright_codegen::{build::Load, ir::attr::LdCache};
/// const STREAM: Load<'static> = Load::WEAK.cache(LdCache::NcNoAllocate);
/// ```
#[derive(Clone, Copy)]
pub struct Load<'k> {
    order: LdOrder,
    cache: LdCache,
    prefetch: Prefetch,
    policy: Option<Val<'k, u64>>,
}

impl<'k> Load<'k> {
    /// Without order, hints of the default.
    pub const WEAK: Load<'static> =
        Load { order: LdOrder::Weak, cache: LdCache::Default, prefetch: Prefetch::None, policy: None };

    /// Sets the cache hint.
    pub const fn cache(self, cache: LdCache) -> Load<'k> {
        Load { cache, ..self }
    }

    /// Sets the prefetch size.
    pub const fn prefetch(self, prefetch: Prefetch) -> Load<'k> {
        Load { prefetch, ..self }
    }

    /// Sets the memory order.
    pub const fn order(self, order: LdOrder) -> Load<'k> {
        Load { order, ..self }
    }

    /// Sets the access policy of L2.
    pub fn policy<'a>(self, policy: Val<'a, u64>) -> Load<'a> {
        Load { order: self.order, cache: self.cache, prefetch: self.prefetch, policy: Some(policy) }
    }
}

/// The options of a store: order, cache, policy.
#[derive(Clone, Copy)]
pub struct Store<'k> {
    order: StOrder,
    cache: StCache,
    policy: Option<Val<'k, u64>>,
}

impl<'k> Store<'k> {
    /// Without order, hints of the default.
    pub const WEAK: Store<'static> = Store { order: StOrder::Weak, cache: StCache::Default, policy: None };

    /// Sets the cache hint.
    pub const fn cache(self, cache: StCache) -> Store<'k> {
        Store { cache, ..self }
    }

    /// Sets the memory order.
    pub const fn order(self, order: StOrder) -> Store<'k> {
        Store { order, ..self }
    }

    /// Sets the access policy of L2.
    pub fn policy<'a>(self, policy: Val<'a, u64>) -> Store<'a> {
        Store { order: self.order, cache: self.cache, policy: Some(policy) }
    }
}

impl<'k, S: SpaceOf, T: Scalar> Ptr<'k, S, T> {
    /// The element, by a weak load.
    #[track_caller]
    pub fn load(self) -> Val<'k, T> {
        let [value] = self.load_as(Load::WEAK);
        value
    }

    /// `N` elements by one weak load: N is 1, 2, 4 or 8, at most 16 bytes.
    #[track_caller]
    pub fn load_vec<const N: usize>(self) -> [Val<'k, T>; N] {
        self.load_as(Load::WEAK)
    }

    /// `N` elements by one load of a given kind.
    #[track_caller]
    pub fn load_as<const N: usize>(self, how: Load<'k>) -> [Val<'k, T>; N] {
        let Load { order, cache, prefetch, .. } = how;
        let ty = T::TY;
        let at = self.addr();
        let policy = how.policy.map(|p| p.op);
        let values = self.k.values(&[ty; N], |d| MemOp::Ld { ty, d, at, policy, order, cache, prefetch });
        core::array::from_fn(|i| Val::new(self.k, values[i]))
    }

    /// The element, by a load that acquires at the scope.
    #[track_caller]
    pub fn load_acquire(self, scope: Scope) -> Val<'k, T> {
        let [value] = self.load_as(Load::WEAK.order(LdOrder::Acquire(scope)));
        value
    }

    /// The element, by a relaxed atomic load.
    #[track_caller]
    pub fn load_relaxed(self, scope: Scope) -> Val<'k, T> {
        let [value] = self.load_as(Load::WEAK.order(LdOrder::Relaxed(scope)));
        value
    }
}

impl<'k, S: Writable, T: Scalar> Ptr<'k, S, T> {
    /// Writes the element, by a weak store.
    #[track_caller]
    pub fn store(self, value: impl IntoVal<'k, T>) {
        let value = value.val(self.k);
        self.store_as([value], Store::WEAK);
    }

    /// Writes `N` elements by one weak store: N is 1, 2, 4 or 8, at most 16 bytes.
    #[track_caller]
    pub fn store_vec<const N: usize>(self, values: [Val<'k, T>; N]) {
        self.store_as(values, Store::WEAK);
    }

    /// Writes `N` elements by one store of a given kind.
    #[track_caller]
    pub fn store_as<const N: usize>(self, values: [Val<'k, T>; N], how: Store<'k>) {
        let Store { order, cache, policy } = how;
        let at = self.addr();
        let v = values.iter().map(|v| v.op).collect();
        let policy = policy.map(|p| p.op);
        self.k.emit(MemOp::St { ty: T::TY, at, v, policy, order, cache });
    }

    /// Writes the element, by a store that releases at the scope.
    #[track_caller]
    pub fn store_release(self, value: impl IntoVal<'k, T>, scope: Scope) {
        let value = value.val(self.k);
        self.store_as([value], Store::WEAK.order(StOrder::Release(scope)));
    }

    /// Writes the element, by a relaxed atomic store.
    #[track_caller]
    pub fn store_relaxed(self, value: impl IntoVal<'k, T>, scope: Scope) {
        let value = value.val(self.k);
        self.store_as([value], Store::WEAK.order(StOrder::Relaxed(scope)));
    }
}

impl<'k, S: Writable, T: Atomic> Ptr<'k, S, T> {
    /// Combines the element with a value in one atomic step, and gives what it was.
    #[track_caller]
    pub fn atom(self, op: AtomOp, value: impl IntoVal<'k, T>, order: AtomOrder) -> Val<'k, T> {
        let ty = T::TY;
        let at = self.addr();
        let v = value.val(self.k).op;
        Val::new(self.k, self.k.value(ty, |d| MemOp::Atom { ty, d, at, v, op, order }))
    }

    /// Combines the element with a value in one atomic step.
    #[track_caller]
    pub fn red(self, op: AtomOp, value: impl IntoVal<'k, T>, order: RedOrder) {
        let ty = T::TY;
        let at = self.addr();
        let v = value.val(self.k).op;
        self.k.emit(MemOp::Red { ty, at, v, op, order });
    }
}

impl<'k, S: Writable, T: Raw> Ptr<'k, S, T> {
    /// Replaces the element by `value` if it equals `old`, in one atomic step, and gives what it
    /// was.
    #[track_caller]
    pub fn compare_swap(self, old: impl IntoVal<'k, T>, value: impl IntoVal<'k, T>, order: AtomOrder) -> Val<'k, T> {
        let ty = T::TY;
        let at = self.addr();
        let old = old.val(self.k).op;
        let v = value.val(self.k).op;
        Val::new(self.k, self.k.value(ty, |d| MemOp::Cas { ty, d, at, old, v, order }))
    }
}

impl<T> Ptr<'_, Global, T> {
    /// Hints that the line will be read.
    #[track_caller]
    pub fn prefetch(self) {
        self.k.emit(MemOp::PrefetchL2 { at: self.addr() });
    }
}

impl Builder {
    /// Marks a value that is zero where a mask has no element: taking the maximum or the minimum of
    /// such values is refused. For libraries that load under masks.
    ///
    /// ```
    /// use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
    /// let kernel = record("hasty", Arch::Sm80, block(32), |k| {
    ///     let x = k.padded(k.global::<f32>("x").at(k.lane()).load());
    ///     k.global::<f32>("y").store(x.max(x.shfl_bfly(1)));
    /// });
    /// assert!(verify(kernel).unwrap_err().to_string().contains("maximum or minimum of a masked load"));
    /// ```
    pub fn padded<'k, T: Scalar>(&'k self, value: Val<'k, T>) -> Val<'k, T> {
        self.mark_padded(value.operand());
        value
    }

    /// An access policy of L2 that treats every access alike.
    #[track_caller]
    pub fn policy(&self, eviction: Eviction) -> Val<'_, u64> {
        Val::new(self, self.value(Ty::U64, |d| MemOp::CreatePolicy { d, eviction }))
    }
}
