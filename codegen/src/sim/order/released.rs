//! The releases at a place in memory, with their scopes: the scopes of both sides must include each
//! other.

use super::{Geometry, ThreadView};
use crate::ir::attr::Scope;

/// The releases that the value now at a place carries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Released {
    /// The releases by scope and block, oldest first. Releases of several blocks of a device that
    /// reach all of it are merged, and then reach no acquirer of a narrower scope.
    parts: Vec<ReleasePart>,
}

#[derive(Clone, Debug)]
struct ReleasePart {
    scope: Scope,
    /// The block that released, or one of several.
    block: u32,
    several: bool,
    view: ThreadView,
}

/// Whether a scope around one block includes another.
pub(crate) fn includes(geometry: Geometry, scope: Scope, block: u32, other: u32) -> bool {
    match scope {
        Scope::Cta => block == other,
        Scope::Cluster => geometry.cluster_of(block) == geometry.cluster_of(other),
        Scope::Gpu => geometry.device_of(block) == geometry.device_of(other),
        Scope::Sys => true,
    }
}

impl Released {
    /// Adds a release: the value goes on carrying what it carried, as of a read-modify-write.
    pub(crate) fn add(&mut self, geometry: Geometry, scope: Scope, block: u32, view: &ThreadView) {
        self.join(geometry, ReleasePart { scope, block, several: false, view: view.clone() });
    }

    /// Carries in addition what another value carries.
    pub(crate) fn absorb(&mut self, geometry: Geometry, other: &Released) {
        other.parts.iter().for_each(|part| self.join(geometry, part.clone()));
    }

    fn join(&mut self, geometry: Geometry, new: ReleasePart) {
        let wide = matches!(new.scope, Scope::Gpu | Scope::Sys);
        let same = self.parts.iter_mut().find(|part| {
            let near = part.block == new.block || wide && includes(geometry, Scope::Gpu, part.block, new.block);
            part.scope == new.scope && near
        });
        match same {
            Some(part) => {
                part.several |= new.several || part.block != new.block;
                part.view.join(&new.view);
            }
            None => self.parts.push(new),
        }
    }

    /// The view that an acquirer of a scope in a block receives.
    pub(crate) fn acquire(&self, geometry: Geometry, scope: Scope, block: u32) -> Option<ThreadView> {
        let mut learnt: Option<ThreadView> = None;
        for part in &self.parts {
            let both =
                includes(geometry, part.scope, part.block, block) && includes(geometry, scope, block, part.block);
            if both && (!part.several || matches!(scope, Scope::Gpu | Scope::Sys)) {
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
        released.add(geometry, Scope::Cta, 0, &ThreadView::default());
        assert!(released.acquire(geometry, Scope::Gpu, 0).is_some());
        assert!(released.acquire(geometry, Scope::Gpu, 1).is_none(), "released to the block only");
        let mut released = Released::default();
        released.add(geometry, Scope::Gpu, 0, &ThreadView::default());
        assert!(released.acquire(geometry, Scope::Cta, 1).is_none(), "acquired from the block only");
        assert!(released.acquire(geometry, Scope::Cluster, 1).is_some());
        assert!(released.acquire(geometry, Scope::Cluster, 2).is_none());
        released.add(geometry, Scope::Sys, 5, &ThreadView::default());
        assert!(released.acquire(geometry, Scope::Gpu, 9).is_some());
    }

    #[test]
    fn a_device_is_as_far_as_the_scope_of_a_gpu_reaches() {
        let geometry = Geometry::new(32, 1, 0).on_devices(4);
        let reaches = |from: Scope, to: Scope, blocks: [u32; 2]| {
            let mut released = Released::default();
            released.add(geometry, from, blocks[0], &ThreadView::default());
            released.acquire(geometry, to, blocks[1]).is_some()
        };
        assert!(reaches(Scope::Gpu, Scope::Gpu, [0, 3]) && reaches(Scope::Sys, Scope::Gpu, [0, 3]));
        assert!(!reaches(Scope::Gpu, Scope::Sys, [0, 4]) && !reaches(Scope::Sys, Scope::Gpu, [0, 4]));
        assert!(reaches(Scope::Sys, Scope::Sys, [0, 4]));
        let mut released = Released::default();
        (0..8).for_each(|block| released.add(geometry, Scope::Sys, block, &ThreadView::default()));
        assert_eq!(released.parts.len(), 2, "one of each device");
        let mut other = Released::default();
        other.absorb(geometry, &released);
        assert!(other.acquire(geometry, Scope::Gpu, 7).is_some() && other.acquire(geometry, Scope::Cta, 7).is_none());
    }
}
