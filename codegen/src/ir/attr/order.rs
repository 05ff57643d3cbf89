//! Memory orders, each with the scopes it can have.

use super::{Attr, Scope};

/// Order of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LdOrder {
    /// No order; the bytes must not be written concurrently.
    Weak,
    /// Performed as written, not merged or moved past another volatile access of the thread; as
    /// `relaxed.sys` otherwise.
    Volatile,
    /// Atomic, no order on other accesses.
    Relaxed(Scope),
    /// Writes before the matching release are visible to accesses that follow.
    Acquire(Scope),
}

/// Order of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StOrder {
    /// No order; the bytes must not be accessed concurrently.
    Weak,
    /// Performed as written; as `relaxed.sys` otherwise.
    Volatile,
    /// Atomic, no order on other accesses.
    Relaxed(Scope),
    /// Earlier accesses, of this thread or cumulatively, are visible to a thread that acquires this
    /// value.
    Release(Scope),
}

/// Order of an atomic read-modify-write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomOrder {
    /// Atomic, no order.
    Relaxed(Scope),
    /// Acquires, like an acquiring load.
    Acquire(Scope),
    /// Releases, like a releasing store.
    Release(Scope),
    /// Both.
    AcqRel(Scope),
}

/// Order of a reduction, which returns nothing and so cannot acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedOrder {
    /// Atomic, no order.
    Relaxed(Scope),
    /// Releases, like a releasing store.
    Release(Scope),
}

/// Order of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceOrder {
    /// Acquire and release.
    AcqRel(Scope),
    /// Sequentially consistent, also with every other such fence. `membar` is this fence.
    Sc(Scope),
}

macro_rules! orders {
    ($($Name:ident { plain: [$($P:ident $ptext:literal),*], scoped: [$($S:ident $stext:literal),*] })+) => { $(
        impl $Name {
            /// The scope, where the order has one.
            pub const fn scope(self) -> Option<Scope> {
                match self { $($Name::$P => None,)* $($Name::$S(scope) => Some(scope),)* }
            }
        }

        impl Attr for $Name {
            fn choices() -> Vec<Self> {
                let mut all = vec![$($Name::$P),*];
                for &scope in Scope::ALL {
                    all.extend([$($Name::$S(scope)),*]);
                }
                all
            }

            fn text(&self) -> String {
                match self {
                    $($Name::$P => $ptext.into(),)*
                    $($Name::$S(scope) => format!(concat!($stext, ".{}"), scope.name()),)*
                }
            }
        }
    )+ };
}

orders! {
    LdOrder { plain: [Weak "", Volatile "volatile"], scoped: [Relaxed "relaxed", Acquire "acquire"] }
    StOrder { plain: [Weak "", Volatile "volatile"], scoped: [Relaxed "relaxed", Release "release"] }
    AtomOrder { plain: [], scoped: [Relaxed "relaxed", Acquire "acquire", Release "release", AcqRel "acq_rel"] }
    RedOrder { plain: [], scoped: [Relaxed "relaxed", Release "release"] }
    FenceOrder { plain: [], scoped: [AcqRel "acq_rel", Sc "sc"] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_prints_with_its_scope() {
        assert_eq!(LdOrder::Acquire(Scope::Gpu).text(), "acquire.gpu");
        assert_eq!(LdOrder::Weak.text(), "");
        assert_eq!(AtomOrder::choices().len(), 16);
    }
}
