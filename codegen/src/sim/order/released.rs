//! What was released at a place in memory, and to whom: the scopes of both sides must include each other.

use super::{Geometry, View};
use crate::ir::attr::Scope;

/// The releases that the value now at a place carries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Released {
    /// By scope and block, oldest first. Device-wide releases of several blocks are merged, and then reach no
    /// acquirer of a narrower scope.
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    scope: Scope,
    /// The block that released; nothing where several did.
    block: Option<u32>,
    view: View,
}

/// Whether a scope around one block includes another.
pub(crate) fn includes(geometry: Geometry, scope: Scope, block: u32, other: u32) -> bool {
    match scope {
        Scope::Cta => block == other,
        Scope::Cluster => geometry.cluster_of(block) == geometry.cluster_of(other),
        Scope::Gpu | Scope::Sys => true,
    }
}

impl Released {
    /// Adds a release: the value goes on carrying what it carried, as of a read-modify-write.
    pub(crate) fn add(&mut self, scope: Scope, block: u32, view: &View) {
        let wide = matches!(scope, Scope::Gpu | Scope::Sys);
        let same = self.parts.iter_mut().find(|part| {
            if wide {
                matches!(part.scope, Scope::Gpu | Scope::Sys)
            } else {
                part.scope == scope && part.block == Some(block)
            }
        });
        match same {
            Some(part) => {
                if part.block != Some(block) {
                    part.block = None;
                }
                part.view.join(view);
            }
            None => self.parts.push(Part { scope, block: Some(block), view: view.clone() }),
        }
    }

    /// Carries in addition what another value carries.
    pub(crate) fn absorb(&mut self, other: &Released) {
        for part in &other.parts {
            match part.block {
                Some(block) => self.add(part.scope, block, &part.view),
                None => match self.parts.iter_mut().find(|own| own.block.is_none()) {
                    Some(own) => own.view.join(&part.view),
                    None => self.parts.push(part.clone()),
                },
            }
        }
    }

    /// What an acquirer of a scope in a block learns.
    pub(crate) fn acquire(&self, geometry: Geometry, scope: Scope, block: u32) -> Option<View> {
        let mut learnt: Option<View> = None;
        for part in &self.parts {
            let reached = match part.block {
                Some(from) => includes(geometry, part.scope, from, block) && includes(geometry, scope, block, from),
                None => matches!(scope, Scope::Gpu | Scope::Sys),
            };
            if reached {
                match &mut learnt {
                    Some(view) => view.join(&part.view),
                    None => learnt = Some(part.view.clone()),
                }
            }
        }
        learnt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_scopes_must_include_the_other_thread() {
        let geometry = Geometry::new(32, 2, 0);
        let mut released = Released::default();
        released.add(Scope::Cta, 0, &View::default());
        assert!(released.acquire(geometry, Scope::Gpu, 0).is_some());
        assert!(released.acquire(geometry, Scope::Gpu, 1).is_none(), "released to the block only");
        let mut released = Released::default();
        released.add(Scope::Gpu, 0, &View::default());
        assert!(released.acquire(geometry, Scope::Cta, 1).is_none(), "acquired from the block only");
        assert!(released.acquire(geometry, Scope::Cluster, 1).is_some());
        assert!(released.acquire(geometry, Scope::Cluster, 2).is_none());
        released.add(Scope::Sys, 5, &View::default());
        assert!(released.acquire(geometry, Scope::Gpu, 9).is_some());
    }
}
