//! Indices that are known at run time, and the extents that they must stay below: the simulator
//! checks every access.

use super::Index;
use core::panic::Location;
use tilewright_codegen::build::{Ptr, SpaceOf};
use tilewright_codegen::ir::IndexBound;

/// The pointer, whose accesses the simulator checks against bounds: of each a mode, an index and
/// its extent. Constant indices are refused while recording instead, and what is proven of an index
/// needs no check.
#[track_caller]
pub(super) fn bounded<'k, S: SpaceOf, E>(
    base: Ptr<'k, S, E>,
    indices: impl Iterator<Item = (usize, Index<'k>, u32)>,
    layout: &dyn Fn() -> String,
) -> Ptr<'k, S, E> {
    let k = base.builder();
    let src = Location::caller();
    let mut next = base.bound();
    for (mode, at, extent) in indices {
        let Some(index) = at.value().map(|value| value.operand()) else { continue };
        if k.is_below(index, at.constant(), extent) {
            continue;
        }
        let tensor = match base.allocation() {
            Some(of) => format!("`{}` {}", of.name, layout()),
            None => layout(),
        };
        let mode = mode as u32;
        next = Some(k.bound(IndexBound { tensor, mode, index, constant: at.constant(), extent, src, next }));
    }
    base.bounded(next)
}
